"""Weights of a key by its score alone: `saccade.attention(..., normalizer=...)` against plain PyTorch in float64."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from normalizer_calls import TOLERANCES, close, diagonal, draw_call, operands

import saccade
from saccade.dropout import dropout_mask

NAMED = {"sigmoid": torch.sigmoid, "silu": F.silu, "relu_squared": lambda s: s.relu() ** 2}


def plain(q, k, v, function, sees=None, scale=None, score=None):
    """Σ f(s) v over the visible keys, with all of Q·Kᵀ in memory."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    weights = function(s if score is None else score(s))
    return (weights if sees is None else torch.where(sees, weights, 0)) @ v


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", NAMED)
@pytest.mark.parametrize(("queries", "keys"), [(37, 1053), (3, 2053), (1, 1)])
def test_named_normalizers(name, dtype, queries, keys):
    q, k, v = operands(dtype, queries=queries, keys=keys)
    expected = plain(q.double(), k.double(), v.double(), NAMED[name], diagonal(queries, keys, keys - queries))
    assert close(saccade.attention(q, k, v, normalizer=name, causal="bottom_right"), expected, dtype)


def test_softmax_is_the_default():
    q, k, v = operands(torch.float32)
    plain = saccade.attention(q, k, v, normalizer=None)
    before = saccade.cache_info().compilations
    assert torch.equal(saccade.attention(q, k, v, normalizer="softmax"), plain)
    assert saccade.cache_info().compilations == before
    assert len(saccade.attention(q, k, v, normalizer="softmax", return_lse=True)) == 2


def test_a_function_of_the_position_with_captures():
    q, k, v = operands()
    gates = torch.rand(4, dtype=torch.float64)
    found = saccade.attention(q, k, v, normalizer=lambda s, b, h, i, j: gates[h] * F.silu(s) / (i + 1))
    rows = 1 / torch.arange(1, 38, dtype=torch.float64)[:, None]
    assert close(found, plain(q, k, v, lambda s: gates[:, None, None] * F.silu(s) * rows), torch.float64)


def test_the_bias_of_sigmoid_attention_is_read_at_each_call():
    q, k, v = operands(torch.float32)

    def attend(bias):
        return saccade.attention(q, k, v, normalizer=lambda s, b, h, i, j: torch.sigmoid(s + bias))

    attend(-1.0)
    before = saccade.cache_info().compilations
    for bias in (-math.log(53), 0.25, -40.0):
        expected = plain(q.double(), k.double(), v.double(), lambda s: torch.sigmoid(s + bias))
        assert close(attend(bias), expected, torch.float32)
    assert saccade.cache_info().compilations == before


def test_numpy_and_score_regions():
    q, k, v = (x.numpy() for x in operands(torch.float32))
    slopes = np.array([0.1, 0.2, 0.3, 0.4], np.float32)
    found = saccade.attention(q, k, v, normalizer="sigmoid", score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))
    distance = (torch.arange(37)[:, None] - torch.arange(53)).abs()
    expected = plain(*(torch.from_numpy(x).double() for x in (q, k, v)), torch.sigmoid,
                     score=lambda s: s - torch.from_numpy(slopes).double()[:, None, None] * distance)  # fmt: skip
    assert isinstance(found, np.ndarray) and close(torch.from_numpy(found), expected, torch.float32)
    by_numpy = saccade.attention(q, k, v, normalizer=lambda s, b, h, i, j: 1 / (1 + np.exp(-s)),
                                 score=lambda s, b, h, i, j: s - slopes[h] * abs(i - j))  # fmt: skip
    assert np.allclose(by_numpy, found, 1e-6, 1e-6)


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMED)
def test_masked_rows_are_zero(name, dtype, queries):
    q, k, v = operands(dtype, queries=queries, keys=60)
    v[:, :, 50:] = math.nan
    hidden = saccade.attention(q, k, v, normalizer=name, mask=lambda b, h, i, j: (i % 2 == 0) & (j < 50),
                               kv_len=torch.tensor([0, 50]))  # fmt: skip
    assert (hidden[:, :, 1::2] == 0).all() and (hidden[0] == 0).all()
    expected = plain(q.double(), k.double()[:, :, :50], v.double()[:, :, :50], NAMED[name])
    assert close(hidden[1, :, ::2], expected[1, :, ::2], dtype)
    by_score = saccade.attention(q, k, v.nan_to_num(), normalizer=name,
                                 score=lambda s, b, h, i, j: torch.where(j < 50, s, -math.inf))  # fmt: skip
    assert close(by_score, expected, dtype)


def test_a_scale_of_zero_hides_no_less():
    q, k, v = operands(torch.float32)
    found = saccade.attention(q, k, v, normalizer="sigmoid", scale=0.0, causal="top_left")
    sees = diagonal(37, 53)
    assert close(found, plain(*(x.double() for x in (q, k, v)), torch.sigmoid, sees, scale=0.0), torch.float32)


def test_weights_and_dropout_apply_to_the_weights():
    q, k, v = operands()
    found = saccade.attention(q, k, v, normalizer="silu", weight=lambda p, b, h, i, j: p * p, dropout_p=0.25, seed=5)
    kept = torch.from_numpy(dropout_mask((2, 4, 37, 53), 0.25, 5))
    assert close(found, plain(q, k, v, lambda s: F.silu(s) ** 2 * kept / 0.75), torch.float64)


@pytest.mark.parametrize("name", NAMED)
def test_ragged_batches(name):
    offsets = [0, 3, 3, 70, 111]
    q, k, v = operands(torch.float32, batch=1, queries=111, keys=111)
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    cu = torch.tensor(offsets, dtype=torch.int32)
    found = saccade.attention(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal="bottom_right", normalizer=name)
    for begin, end in itertools.pairwise(offsets):
        part = (x[begin:end].transpose(0, 1)[None].double() for x in (q, k, v))
        expected = plain(*part, NAMED[name], diagonal(end - begin, end - begin))[0].transpose(0, 1)
        assert begin == end or close(found[begin:end], expected, torch.float32)


def test_pages_and_quantized_caches():
    q, k, v = operands(torch.float32, queries=2, keys=64, depth_v=16)
    lengths, pages = torch.tensor([64, 41], dtype=torch.int32), torch.randperm(16)
    table = pages.reshape(2, 8).int()
    pools = []
    for x in (k, v):
        pool = torch.zeros(16, 2, 8, 16)
        pool[pages] = x.reshape(2, 2, 8, 8, 16).transpose(1, 2).reshape(16, 2, 8, 16)
        pools.append(pool)
    sees = torch.arange(64) < lengths[:, None, None, None]
    expected = plain(q.double(), k.double(), v.double(), torch.sigmoid, sees)
    found = saccade.attention(q, *pools, page_table=table, kv_len=lengths, normalizer="sigmoid")
    assert close(found, expected, torch.float32)
    stored = [(x * 40).round().clamp(-127, 127).to(torch.int8) for x in (k, v)]
    expected = plain(q.double(), stored[0].double() / 40, stored[1].double() / 40, F.silu)
    found = saccade.attention(q, *stored, k_scale=1 / 40, v_scale=1 / 40, normalizer="silu")
    assert close(found, expected, torch.float32)


def draw(seed):
    """A random call and its expected output."""
    rng = random.Random(seed)
    (q, k, v), options, sees, scale, score = draw_call(rng, seed)
    name = rng.choice(list(NAMED))
    function = NAMED[name]
    options["normalizer"] = name
    if rng.random() < 0.3:
        options["weight"], function = (lambda p, b, h, i, j: p * 0.5 - 0.01), lambda s, f=function: f(s) * 0.5 - 0.01
    if rng.random() < 0.2 and q.dtype == torch.float32:
        options["layout"] = "bshd"
    expected = plain(q.double(), k.double(), v.double(), function, sees, scale, score)
    if "layout" in options:
        q, k, v, expected = (x.transpose(1, 2) for x in (q, k, v, expected))
    return (q, k, v), options, expected


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_calls(first):
    for seed in range(first, first + 20):
        arguments, options, expected = draw(seed)
        found = saccade.attention(*arguments, **options)
        assert close(found, expected, arguments[0].dtype), (seed, options)


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["sigmoid", "silu"])
@pytest.mark.parametrize("options", [{}, {"causal": "bottom_right"}, {"kv_len": 9}, {"window": (3, 1)}], ids=str)
def test_gradcheck(name, options):
    inputs = [x.requires_grad_() for x in operands(queries=7, keys=11, depth=4, depth_v=5)]
    assert torch.autograd.gradcheck(lambda q, k, v: saccade.attention(q, k, v, normalizer=name, **options), inputs,
                                    check_forward_ad=True)  # fmt: skip


def test_gradcheck_of_captures_scales_and_dropout():
    q, k, v = operands(queries=5, keys=9, depth=4, depth_v=3)
    gates, bias, scale = (torch.randn(n, dtype=torch.float64) for n in ((4,), (9,), ()))

    def attend(q, k, v, gates, bias, scale):
        return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + bias[j], scale=scale, dropout_p=0.3, seed=2,
                                 normalizer=lambda s, b, h, i, j: gates[h] * torch.sigmoid(s))  # fmt: skip

    inputs = [x.requires_grad_() for x in (q, k, v, gates, bias, scale)]
    assert torch.autograd.gradcheck(attend, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", NAMED)
def test_gradients_agree_with_pytorch(name, dtype):
    inputs = [x.requires_grad_() for x in operands(dtype, queries=130, keys=200, depth=32, depth_v=32)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    out = saccade.attention(*inputs, normalizer=name, causal="bottom_right")
    by = torch.randn(out.shape, dtype=torch.float64).to(dtype)
    found = torch.autograd.grad(out, inputs, by)
    exact = torch.autograd.grad(plain(*wide, NAMED[name], diagonal(130, 200, 70)), wide, by.double())
    assert all(close(x, y, dtype) for x, y in zip(found, exact))


def test_hidden_keys_have_no_gradient():
    q, k, v = (x.requires_grad_() for x in operands())
    saccade.attention(q, k, v, normalizer="silu", score=lambda s, b, h, i, j: torch.where(j % 2 == 0, s, -math.inf),
                      mask=lambda b, h, i, j: j < 40).sum().backward()  # fmt: skip
    for x in (k.grad, v.grad):
        assert (x[:, :, 1::2] == 0).all() and (x[:, :, 40:] == 0).all() and x.isfinite().all()
    assert q.grad.isfinite().all()


def test_torch_compile():
    q, k, v = operands(torch.float32)
    attend = torch.compile(lambda q, k, v: saccade.attention(q, k, v, normalizer="silu", causal="top_left"), fullgraph=True)
    assert torch.equal(attend(q, k, v), saccade.attention(q, k, v, normalizer="silu", causal="top_left"))
    recorded = torch.compile(lambda q, k, v: saccade.attention(q, k, v, normalizer="silu"))
    inputs = [x.requires_grad_() for x in operands()]
    wide = [x.detach().requires_grad_() for x in inputs]
    recorded(*inputs).square().sum().backward()
    plain(*wide, F.silu).square().sum().backward()
    assert all(close(x.grad, y.grad, torch.float64) for x, y in zip(inputs, wide))


# --- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("option", "value"), [("sink", 0.5), ("return_lse", True), ("return_max", True),
                                           ("stats", ["entropy"])])  # fmt: skip
def test_options_of_the_softmax_are_refused(option, value):
    with pytest.raises(ValueError, match=rf"{option} is .*: it belongs to the softmax, and a normalizer is given"):
        saccade.attention(*operands(), normalizer="sigmoid", **{option: value})
    saccade.attention(*operands(), normalizer="softmax", **{option: value})


def test_other_normalizers_are_refused():
    q, k, v = operands()
    with pytest.raises(ValueError, match="normalizer is 'gelu', expected one of 'softmax', 'sigmoid', 'silu', "):
        saccade.attention(q, k, v, normalizer="gelu")
    with pytest.raises(TypeError, match=r"normalizer is 3, expected a function \(s, b, h, i, j\) -> weight"):
        saccade.attention(q, k, v, normalizer=3)
    with pytest.raises(saccade.TraceError):
        saccade.attention(q, k, v, normalizer=lambda s, b: s)
    with pytest.raises(TypeError, match=r"normalizer is .* expected a function"):
        saccade.attention(q, k, v, normalizer=saccade.scores.soft_cap(3.0))
