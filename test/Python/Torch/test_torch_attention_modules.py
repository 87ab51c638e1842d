"""Modules that call flex_attention or Saccade's own functions, compiled as a whole."""

import warnings

import pytest

torch = pytest.importorskip("torch")
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import saccade
import saccade.torch
import saccade.torch.backend

pytestmark = pytest.mark.usefixtures("dynamo")
assert saccade.torch.backend  # importing it registers the backend

LENGTH = 16
document = torch.arange(LENGTH) // 5
blocks = create_block_mask(lambda b, h, i, j: document[i] == document[j], None, None, LENGTH, LENGTH, device="cpu")


def flex_with_table(q, k, v, table):
    output, lse = flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s * table[h] + (j - i) * 0.1, return_lse=True)
    return output * lse.unsqueeze(-1)


def attention_with_numbers(q, k, v, table):
    output, lse = saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + table[h] * i, scale=0.3, causal=2, kv_len=9,
                                    return_lse=True)
    return output * lse.unsqueeze(-1)


CALLS = {
    "flex_attention, a table": flex_with_table,
    "flex_attention, a block mask": lambda q, k, v, table: flex_attention(q, k, v, block_mask=blocks),
    "saccade.attention": attention_with_numbers,
    "scaled_dot_product_attention": lambda q, k, v, table: saccade.torch.scaled_dot_product_attention(
        q, k, v, is_causal=True),
}


class Model(torch.nn.Module):
    """A projection and attention of four heads."""

    def __init__(self, call):
        super().__init__()
        self.call, self.projection, self.table = call, torch.nn.Linear(32, 96), torch.nn.Parameter(torch.rand(4))

    def forward(self, x):
        q, k, v = self.projection(x).unflatten(-1, (3, 4, 8)).permute(2, 0, 3, 1, 4)
        return self.call(q, k, v, self.table).transpose(1, 2).flatten(2)


def compiled(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside of torch.export
        return saccade.torch.compile(*args, **kwargs)


@pytest.mark.parametrize("name", CALLS)
def test_compile_takes_modules_with_calls_of_attention(name):
    model, x = Model(CALLS[name]), torch.randn(2, LENGTH, 32)
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, (x,))(x), model(x), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["flex_attention, a table", "saccade.attention"])
def test_whole_graphs_contain_attention(name):
    model, x = Model(CALLS[name]), torch.randn(2, LENGTH, 32)
    with torch.no_grad():
        found = torch.compile(model, backend="saccade", options={"whole_graph": True})(x)
        torch.testing.assert_close(found, model(x), atol=1e-4, rtol=1e-4)


def test_lengths_stay_dynamic():
    model, length = Model(CALLS["scaled_dot_product_attention"]), torch.export.Dim("length", min=2, max=512)
    with torch.no_grad():
        call = compiled(model, (torch.randn(2, LENGTH, 32),), dynamic_shapes=({1: length},))
        for extent in (5, 29):
            x = torch.randn(2, extent, 32)
            torch.testing.assert_close(call(x), model(x), atol=1e-4, rtol=1e-4)


def test_flex_attention_that_is_not_supported_is_refused_with_its_line():
    lists = BlockMask.from_kv_blocks(torch.ones(1, 1, 2, dtype=torch.int32), torch.zeros(1, 1, 2, 2, dtype=torch.int32),
                                     BLOCK_SIZE=8)
    model = Model(lambda q, k, v, table: flex_attention(q, k, v, block_mask=lists))
    with torch.no_grad(), pytest.raises(saccade.torch.ExportError, match=r":\d+: .*flex_attention.*lists of blocks only"):
        compiled(model, (torch.randn(2, LENGTH, 32),))
