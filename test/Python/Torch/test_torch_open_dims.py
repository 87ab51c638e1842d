"""Modules with open batches and lengths: extents that follow from them are known, and calls are equal to PyTorch's."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn
from torch.nn import functional as F

import saccade
import saccade.torch

OPEN = torch.export.Dim.DYNAMIC
WIDTH, HEADS = 32, 4


@pytest.fixture(autouse=True)
def slow_path():
    """The fast path of PyTorch's encoder layers gives 0 at padded positions."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    yield
    torch.backends.mha.set_fastpath_enabled(before)


class Call(nn.Module):
    def __init__(self, function, module=None):
        super().__init__()
        self.function, self.module = function, module

    def forward(self, *inputs):
        return self.function(self.module, *inputs) if self.module is not None else self.function(*inputs)


def padding(batch, length, is_float=False):
    hidden = torch.arange(length) >= torch.randint(1, length + 1, (batch, 1))
    return torch.zeros(hidden.shape).masked_fill(hidden, -torch.inf) if is_float else hidden


def agrees(module, make, shapes, *sizes):
    """The compiled module gives the results of the module, for inputs of all sizes; the first are the example."""
    module.eval()
    compiled = saccade.torch.compile(module, make(*sizes[0]), dynamic_shapes={"inputs": shapes})
    for each in sizes:
        inputs = make(*each)
        with torch.no_grad():
            expected = module(*inputs)
        torch.testing.assert_close(compiled(*inputs), expected, atol=2e-5, rtol=2e-5)
    return compiled


@pytest.mark.parametrize("is_float", [False, True])
@pytest.mark.parametrize("opened", [{0: OPEN}, {0: OPEN, 1: OPEN}])
def test_padding_mask(is_float, opened):
    attend = Call(lambda m, x, mask: m(x, x, x, key_padding_mask=mask)[0], nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    lengths = (10, 1) if 1 in opened else (10, 10)
    agrees(attend, lambda b, n: (torch.randn(b, n, WIDTH), padding(b, n, is_float)), (opened, opened), (2, 10),
           (5, 13 if 1 in opened else 10), (1, 10), (3, lengths[1]))  # fmt: skip


LAYER = {"d_model": WIDTH, "nhead": HEADS, "dim_feedforward": 24}


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_with_padding(norm_first):
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**LAYER, batch_first=True, norm_first=norm_first), 2)
    both = {0: OPEN, 1: OPEN}
    agrees(Call(lambda m, x, mask: m(x, src_key_padding_mask=mask), encoder),
           lambda b, n: (torch.randn(b, n, WIDTH), padding(b, n)), (both, both), (2, 10), (4, 7), (1, 1))  # fmt: skip


def test_decoder_with_both_masks():
    decoder = nn.TransformerDecoderLayer(**LAYER)
    agrees(Call(lambda m, x, y, own, other: m(x, y, tgt_key_padding_mask=own, memory_key_padding_mask=other), decoder),
           lambda b, n, m: (torch.randn(n, b, WIDTH), torch.randn(m, b, WIDTH), padding(b, n), padding(b, m)),
           ({0: OPEN, 1: OPEN}, {0: OPEN, 1: OPEN}, {0: OPEN, 1: OPEN}, {0: OPEN, 1: OPEN}), (2, 5, 7), (3, 9, 4))  # fmt: skip


def test_transformer_stacks():
    model = nn.Transformer(WIDTH, HEADS, 1, 1, 24, batch_first=True)
    both = {0: OPEN, 1: OPEN}
    agrees(Call(lambda m, x, y, mask: m(x, y, src_key_padding_mask=mask, memory_key_padding_mask=mask), model),
           lambda b, n, m: (torch.randn(b, n, WIDTH), torch.randn(b, m, WIDTH), padding(b, n)), (both, both, both),
           (2, 5, 7), (4, 8, 3))  # fmt: skip


BEFORE = {
    "cat": lambda x: torch.cat([x[:, :1], x], 1),
    "cat twice": lambda x: torch.cat([x, x[:, :1], x], 1),
    "pad": lambda x: F.pad(x, (0, 0, 1, 2)),
    "first dropped": lambda x: x[:, 1:],
    "last dropped": lambda x: x[:, :-1],
    "dropped and padded": lambda x: F.pad(x[:, 2:], (0, 0, 0, 3)),
}
SPLIT = {
    "view": lambda x, b, n: x.contiguous().view(b, n, HEADS, -1),
    "reshape": lambda x, b, n: x.reshape(b, -1, HEADS, WIDTH // HEADS),
    "unflatten": lambda x, b, n: x.unflatten(-1, (HEADS, -1)),
    "chunk": lambda x, b, n: torch.stack(x.chunk(HEADS, -1), 2),
}


@pytest.mark.parametrize("split", SPLIT)
@pytest.mark.parametrize("before", BEFORE)
def test_heads_after_changed_length(before, split):
    def attend(x):
        x = BEFORE[before](x)
        b, n, _ = x.shape
        q = SPLIT[split](x, b, n).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(b, n, -1)

    compiled = agrees(Call(attend), lambda b, n: (torch.randn(b, n, WIDTH),), ({0: OPEN, 1: OPEN},), (2, 10), (5, 13), (1, 4))
    assert "not raised" not in str(compiled.module.explain())


@pytest.mark.parametrize("attend", ["by hand", "operator", "operator with scale"])
def test_attention_over_channels_stays_plain(attend):
    def call(x):
        q = x.transpose(1, 2)
        if attend == "by hand":
            return ((q @ x * 0.2).softmax(-1) @ q).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q, scale=0.3 if "scale" in attend else None).transpose(1, 2)

    compiled = agrees(Call(call), lambda b, n: (torch.randn(b, n, 8),), ({0: OPEN, 1: OPEN},), (2, 10), (3, 17), (1, 1))
    assert "its head size is known only at run time" in str(compiled.module.explain())


def test_extents_that_others_define():
    """2 * half and half are open, and so are a length and the next one."""
    half, length = torch.export.Dim("half", min=2), torch.export.Dim("length", min=3)
    pairs = Call(lambda x, y: (x.unflatten(0, (-1, 2)).sum(1), y[1:] - y[:-1]))
    pairs.eval()
    make = lambda n, m: (torch.randn(2 * n, 4), torch.randn(m + 1, 3))
    compiled = saccade.torch.compile(pairs, make(3, 5), dynamic_shapes={"inputs": ({0: 2 * half}, {0: length + 1})})
    for sizes in ((3, 5), (7, 9)):
        inputs = make(*sizes)
        torch.testing.assert_close(compiled(*inputs), pairs(*inputs))
    with pytest.raises(ValueError, match="in dimension 0"):
        compiled(torch.randn(5, 4), torch.randn(6, 3))


@pytest.mark.parametrize("step", [1, 2, 8])
@pytest.mark.parametrize("function", ["unfold", "topk"])
def test_more_elements_than_an_open_extent_has_are_refused(function, step):
    take = Call(lambda x: x.unfold(1, 3, step) if function == "unfold" else x.topk(3, 1)[0])
    compiled = agrees(take, lambda b, n: (torch.randn(b, n),), ({0: OPEN, 1: OPEN},), (2, 10), (1, 3), (4, 5))
    with pytest.raises(ValueError, match="slice leaves its tensor in dimension 1"):
        compiled(torch.randn(2, 2))


@pytest.mark.parametrize("where", ["q", "k", "q and k", "q, twice", "q, by a tensor"])
def test_what_is_scaled_before_heads_are_split_is_raised(where):
    """As in Whisper: the product with the factor has no dimension of heads, and its view has one."""

    class Scaled(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k, self.v = (torch.nn.Linear(32, 32) for _ in range(3))
            self.factor = torch.nn.Parameter(torch.tensor(0.3))

        def forward(self, x):
            q, k = self.q(x), self.k(x)
            q = q * self.factor if "tensor" in where else q * 0.25 if "q" in where else q
            q = q.view(*x.shape[:2], 4, 8).transpose(1, 2)
            q = q * 0.5 if "twice" in where else q
            k = (k * 0.25 if "k" in where else k).view(*x.shape[:2], 4, 8).transpose(1, 2)
            v = self.v(x).view(*x.shape[:2], 4, 8).transpose(1, 2)
            return ((q @ k.mT).softmax(-1) @ v).transpose(1, 2).flatten(2)

    torch.manual_seed(0)
    module, x = Scaled().eval(), torch.randn(2, 7, 32)
    dims = {0: torch.export.Dim("b", min=1, max=9), 1: torch.export.Dim("n", min=2, max=99)}
    compiled = saccade.torch.compile(module, (x,), dynamic_shapes=(dims,))
    report = compiled.module.explain()
    assert report.count("attention in 'main'") == 1 and "not raised" not in report, report
    for shape in ((2, 7, 32), (1, 40, 32)):
        x = torch.randn(shape)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module.double()(x.double()).float(), rtol=1e-4, atol=1e-5)
            module.float()
