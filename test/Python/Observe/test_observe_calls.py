"""`saccade.observe` sees the calls of attention of a model, and changes nothing."""

import numpy
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from observed_weights import check, statistics
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import saccade
import saccade.torch

B, H, S, D = 2, 4, 20, 8
q, k, v = torch.randn(3, B, H, S, D, generator=torch.Generator().manual_seed(0))
few = k[:, :2], v[:, :2]
causal = torch.ones(S, S, dtype=torch.bool).tril()
padding = (torch.arange(S) < torch.tensor([[20], [13]]))[:, None, None]
holes = causal.clone()
holes[3] = False
bias = torch.randn(H, S, S, generator=torch.Generator().manual_seed(1))
everything = torch.ones(1, 1, dtype=torch.bool)


class Lambda(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.attend = nn.Module()
        self.attend.forward = function

    def forward(self, *args):
        return self.attend(*args)


def sdpa(*operands, **options):
    return lambda: F.scaled_dot_product_attention(*(operands or (q, k, v)), **options)


CASES = {
    "full": (sdpa(), dict(visible=everything)),
    "causal": (sdpa(is_causal=True), dict(visible=causal)),
    "scale": (sdpa(scale=0.7), dict(visible=everything, scale=0.7)),
    "padding": (sdpa(attn_mask=padding), dict(visible=padding)),
    "rows without keys": (sdpa(attn_mask=holes), dict(visible=holes)),
    "bias": (sdpa(attn_mask=bias.masked_fill(~causal, -torch.inf)), dict(visible=causal, bias=bias)),
    "lowest numbers": (sdpa(attn_mask=torch.zeros(S, S).masked_fill(~causal, torch.finfo(torch.float32).min)),
                       dict(visible=causal)),
    "gqa": (sdpa(q, *few, is_causal=True, enable_gqa=True), dict(visible=causal, k=few[0])),
    "heads only": (sdpa(q[0], k[0], v[0]), dict(visible=everything, q=q[:1], k=k[:1])),
    "five": (sdpa(q[None], k[None], v[None], attn_mask=padding), dict(visible=padding)),
    "one batch of keys": (sdpa(q, k[:1], v[:1]), dict(visible=everything, k=k[:1].expand(B, -1, -1, -1))),
    "fewer queries": (sdpa(q[:, :, :5], k, v, is_causal=True), dict(visible=causal[:5], q=q[:, :, :5])),
    "dropout": (sdpa(dropout_p=0.5), dict(visible=everything)),
    "flex": (lambda: flex_attention(q, k, v, lambda s, b, h, i, j: s + 0.1 * (j - i),
                                    create_block_mask(lambda b, h, i, j: i >= j, None, None, S, S, "cpu")),
             dict(visible=causal, bias=0.1 * (torch.arange(S) - torch.arange(S)[:, None]))),
    "saccade.attention": (lambda: saccade.attention(q, k, v, causal="top_left", window=4),
                          dict(visible=causal.triu(-3))),
    "statistics of its own": (lambda: saccade.attention(q, k, v, stats=("received",))[0], dict(visible=everything)),
    "layout": (lambda: saccade.attention(*[x.transpose(1, 2) for x in (q, k, v)], causal="top_left", layout="bshd"),
               dict(visible=causal)),
    "drop-in": (lambda: saccade.torch.scaled_dot_product_attention(q, k, v, is_causal=True), dict(visible=causal)),
    "flex drop-in": (lambda: saccade.torch.flex_attention(q, k, v, block_mask=lambda b, h, i, j: i >= j),
                     dict(visible=causal)),
}  # fmt: skip
WITH_MAPS = ("full", "gqa", "bias", "saccade.attention")


@pytest.mark.parametrize("name", CASES)
def test_statistics_are_those_of_all_weights(name):
    has_maps = name in WITH_MAPS
    attend, expected = CASES[name]
    expected = statistics(**{"q": q, "k": k, **expected})
    torch.manual_seed(0)
    before = attend()
    torch.manual_seed(0)
    model = Lambda(attend)
    with saccade.observe(model, tile=32, maps=has_maps) as record:
        result = model()
    assert torch.equal(result, before)
    assert [layer.name for layer in record.layers] == ["attend"]
    check(record, 0, expected)
    weights = expected["weights"]
    assert len(record.maps) == len(record.tiles) == len(record.received) == H * has_maps
    for each, tile in zip(record.maps, record.tiles):
        numpy.testing.assert_allclose(each.numbers(), weights[:, each.head].mean(0), atol=3e-3)
        numpy.testing.assert_allclose(tile.numbers(), weights[0, tile.head], atol=3e-3)
    for each in record.received:
        numpy.testing.assert_allclose(each.numbers(), weights[:, each.head].sum(1).mean(0), rtol=1e-2, atol=2e-2)
