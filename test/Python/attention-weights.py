"""`sink`, `weight` and `return_max` of `saccade.attention`: against the formula, and what is refused.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import math
import sys

import numpy as np
import torch

import saccade

sys.path.insert(0, sys.argv[1])
from plain_attention import expect_close, plain_attention

torch.manual_seed(9)
q, k, v = torch.randn(2, 4, 13, 16), torch.randn(2, 2, 21, 16), torch.randn(2, 2, 21, 16)


def check(q=q, k=k, v=v, **options):
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    expected, wanted_lse = plain_attention(q, k, v, **options)
    expect_close(output, expected, options)
    expect_close(lse, wanted_lse, options)
    expect_close(saccade.attention(q, k, v, **options), expected, options)


# Sinks: one a head, in other types, one for all, beside all that masks. −inf is none.
sinks = torch.tensor([0.5, -1.0, 7.0, -math.inf])
check(sink=sinks)
check(sink=1.5)
check(sink=-math.inf)
check(sink=2)
check(sink=sinks, causal=-3, kv_len=torch.tensor([20, 0]), scale=0.3)
check(*(x.double() for x in (q, k, v)), sink=sinks.double())
for dtype in (torch.bfloat16, torch.float16):
    halves = [x.to(dtype) for x in (q, k, v)]
    check(*halves, sink=sinks)
    check(*halves, sink=sinks.to(dtype))
    check(*halves, sink=0.25)
check(q[0, 0], k[0, 0], v[0, 0], sink=sinks[:1], layout="sd")

before = saccade.cache_info().compilations
for sink in (sinks + 1, sinks[::2].repeat_interleave(2), torch.zeros(8)[::2]):
    check(sink=sink)
check(q[:, :2], k[:, :1], v[:, :1], sink=sinks[:2])
assert saccade.cache_info().compilations == before, "sinks are arguments, and heads are counted at run time"
for sink in (3.0, -3.0):
    saccade.attention(q, k, v, sink=sink)
assert saccade.cache_info().compilations == before, "one number is one, too"

# Functions of weights: proportional ones, others, with captured tensors, after a score.
gate = torch.rand(4, 13, 21)
check(weight=lambda p, b, h, i, j: p * gate[h, i, j])
check(weight=lambda p, b, h, i, j: torch.where((i + j) % 2 == 0, p, 0.0), causal="bottom_right")
check(weight=lambda p, b, h, i, j: p * p, sink=sinks, causal="top_left")
check(weight=lambda p, b, h, i, j: p.sqrt() + gate[h, i, j], score=lambda s, b, h, i, j: 3 * s, kv_len=17)
check(*(x.double() for x in (q, k, v)), weight=lambda p, b, h, i, j: torch.clamp(p - 0.01, min=0.0))
found = saccade.attention(*(x.numpy() for x in (q, k, v)), weight=lambda p, b, h, i, j: np.minimum(p, 0.1))
expect_close(torch.from_numpy(found), plain_attention(q, k, v, weight=lambda p, *_: p.clamp(max=0.1))[0])

# The largest score and its key.
for options in ({}, {"sink": sinks}, {"causal": -2}, {"score": lambda s, b, h, i, j: s - 0.1 * (j - i).abs()}):
    output, lse, top, where = saccade.attention(q, k, v, return_lse=True, return_max=True, **options)
    expect_close(output, plain_attention(q, k, v, **options)[0])
    scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) / 4
    i, j = torch.arange(13)[:, None], torch.arange(21)
    if "score" in options:
        scores = scores - 0.1 * (j - i).abs()
    scores = scores.masked_fill(~(j <= i + options.get("causal", 21)), -math.inf)
    expected = scores.max(-1)
    expect_close(top, expected.values.double())
    assert where.dtype == torch.int64
    assert torch.equal(where, expected.indices.masked_fill(expected.values.isneginf(), -1))
    output, top, where = saccade.attention(q, k, v, return_max=True, **options)
    expect_close(top, expected.values.double())
pair = torch.empty_like(q), torch.empty(2, 4, 13)
found = saccade.attention(q, k, v, return_lse=True, return_max=True, out=pair)
assert found[0] is pair[0] and found[1] is pair[1] and len(found) == 4


def expect_error(kind, message, **options):
    try:
        saccade.attention(q, k, v, **options)
    except kind as error:
        assert message in str(error), (message, str(error))
    else:
        raise AssertionError(f"expected {kind.__name__}: {message}")


expect_error(ValueError, "sink has 3 numbers, expected 4: one for each head of q", sink=sinks[:3])
expect_error(TypeError, "sink has 2 dimensions, expected 1: a number for each head of q", sink=sinks.reshape(2, 2))
expect_error(TypeError, "sink has element type float64, expected float32", sink=sinks.double())
expect_error(TypeError, "sink is a NumPy array, expected a torch tensor, as q is", sink=sinks.numpy())
expect_error(ValueError, "sink requires grad", sink=sinks.clone().requires_grad_())
expect_error(TypeError, "return_max is 1, expected True or False", return_max=1)
expect_error(TypeError, "weight is 0.5, expected a function (p, b, h, i, j) -> weight", weight=0.5)
expect_error(saccade.TraceError, "weight function takes (p, j), expected (p, b, h, i, j)", weight=lambda p, j: p)
short = torch.rand(12)
expect_error(ValueError, "'short', which weight reads by query length, is too small for it",
             weight=lambda p, b, h, i, j: p * short[i])
