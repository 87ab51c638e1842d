"""Derivatives of rows whose scores are far from 0, as masks of -1e9 or the lowest float on all keys make them, through every
frontend. test/Execution/shifted_rows.py compares the kernels."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import saccade
import saccade.torch

SHIFTS = (0.0, -1e4, 1e4, -1e7, -1e9, 1e9, -1e30, 1e30, "lowest")
KEYS = 7


def shift_of(shift, dtype):
    return torch.finfo(dtype).min if shift == "lowest" else shift


def weights_of(gradient):
    """The weights of a row with values of one element, from their gradient."""
    return gradient.flatten().double()


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_of_a_gradient_sum_to_one_under_a_mask_that_hides_all_keys(dtype, shift):
    q, k = torch.zeros(1, 1, 1, 1, dtype=dtype), torch.zeros(1, 1, KEYS, 1, dtype=dtype)
    v = torch.arange(KEYS, dtype=dtype).reshape(1, 1, KEYS, 1).requires_grad_()
    mask = torch.full((1, KEYS), shift_of(shift, dtype), dtype=dtype)
    saccade.torch.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
    expected = torch.full((KEYS,), 1 / KEYS, dtype=torch.float64)
    torch.testing.assert_close(weights_of(v.grad), expected, rtol=torch.finfo(dtype).eps * 4, atol=0)
    v.grad = None
    with saccade.torch.enabled():
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum().backward()
    torch.testing.assert_close(weights_of(v.grad), expected, rtol=torch.finfo(dtype).eps * 4, atol=0)


@pytest.mark.parametrize("queries", [1, 8, 9, 40])
@pytest.mark.parametrize("kv_heads", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_weights_of_a_gradient_sum_to_one_for_large_scores(queries, kv_heads, dtype):
    """The backward pass computes scores again: other sums of products would change probabilities by factors."""
    random = torch.Generator().manual_seed(1)
    q, k = (torch.randn(2, h, n, 64, generator=random, dtype=dtype) for h, n in ((4, queries), (kv_heads, 70)))
    v = torch.zeros(2, kv_heads, 70, 1, dtype=dtype, requires_grad=True)
    scale = 1e15 if dtype == torch.float64 else 1e6
    output = saccade.torch.scaled_dot_product_attention(q, k, v, scale=scale, enable_gqa=True)
    for query in (0, queries - 1):
        [found] = torch.autograd.grad(output[:, 0, query].sum(), v, retain_graph=True)
        torch.testing.assert_close(found.sum((1, 2, 3)), torch.ones(2, dtype=dtype))


def exact(q, k, v, bias):
    """Attention in float64; queries and keys are orthogonal, so the scores are those of the bias."""
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5 + bias, -1) @ v


def operands(shift, dtype=torch.float32):
    random = torch.Generator().manual_seed(0)
    q, k, v = (torch.randint(-8, 9, (2, 5, 8), generator=random) / 8 for _ in range(3))
    q[..., 4:], k[..., :4] = 0, 0
    shift = shift_of(shift, dtype)
    unit = max(abs(float(np.spacing(np.float32(shift / 2)))) * 2, 1 / 16)
    bias = torch.tensor(shift, dtype=torch.float64) + torch.randint(0, 6, (2, 5, 5), generator=random) * unit
    return [x.to(dtype) for x in (q, k, v, bias.clamp(torch.finfo(dtype).min, torch.finfo(dtype).max))]


def gradients_of(function, given, dtype):
    leaves = [x.to(dtype).requires_grad_() for x in given]
    output = function(*leaves)
    return torch.autograd.grad(output, leaves, torch.linspace(-1, 1, output.numel(), dtype=dtype).reshape(output.shape))


@pytest.mark.parametrize("shift", SHIFTS)
def test_gradients_of_a_bias_are_those_of_float64(shift):
    given = operands(shift)
    found = gradients_of(lambda q, k, v, bias: saccade.attention(q, k, v, layout="hsd",
                                                                 score=lambda s, b, h, i, j: s + bias[h, i, j]),
                         given, torch.float32)  # fmt: skip
    for each, expected in zip(found, gradients_of(exact, given, torch.float64)):
        torch.testing.assert_close(each.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("shift", SHIFTS)
def test_tangents_are_those_of_float64(shift):
    given = operands(shift)
    tangents = [torch.linspace(-1, 1, x.numel()).reshape(x.shape) for x in given]

    def attend(q, k, v, bias):
        return saccade.attention(q, k, v, layout="hsd", score=lambda s, b, h, i, j: s + bias[h, i, j])

    found = torch.func.jvp(attend, tuple(given), tuple(tangents))[1]
    expected = torch.func.jvp(exact, tuple(x.double() for x in given), tuple(x.double() for x in tangents))[1]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shift", SHIFTS)
def test_gradients_of_jax_are_those_of_float64(shift):
    jax = pytest.importorskip("jax")
    import saccade.jax

    q, k, v, bias = operands(shift)
    arrays = [x.movedim(0, 1)[None].numpy() for x in (q, k, v)]  # [1, positions, heads, head size]

    def loss(q, k, v, bias):
        return saccade.jax.dot_product_attention(q, k, v, bias=bias).sum()

    found = jax.grad(loss, argnums=(0, 1, 2, 3))(*arrays, bias[None].numpy())
    leaves = [x.double().requires_grad_() for x in (q, k, v, bias)]
    expected = torch.autograd.grad(exact(*leaves).sum(), leaves)
    for each, gradient in zip(found[:3], expected):
        np.testing.assert_allclose(np.asarray(each)[0], gradient.movedim(0, 1), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(found[3])[0], expected[3], rtol=1e-5, atol=1e-6)


def test_gradients_of_the_registry_of_flash_attention_compute_the_low_part_again():
    from saccade.torch.recorded import flash_gradients

    q, k = torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, KEYS, 4)
    v = torch.arange(KEYS * 4.0).reshape(1, 1, KEYS, 4)
    output, lse = v.mean(2, keepdim=True), torch.full((1, 1, 1), -1e9)
    *_, found = flash_gradients(torch.ones(1, 1, 1, 4), q, k, v, output, lse, 0.0, False,
                                attn_mask=torch.full((1, 1, 1, KEYS), -1e9))  # fmt: skip
    torch.testing.assert_close(found, torch.full_like(found, 1 / KEYS))


def test_the_error_of_the_log_sum_exp_has_the_stated_bound():
    for shift in SHIFTS:
        q, k, v, bias = operands(shift)
        _, lse = saccade.attention(q, k, v, layout="hsd", return_lse=True, score=lambda s, b, h, i, j: s + bias[h, i, j])
        expected = torch.logsumexp(bias.double(), -1)
        assert ((lse.double() - expected).abs() <= expected.abs() * 2.0**-22 + 1e-6).all(), shift


@pytest.mark.parametrize("scale", [0.0, 1e-40])
@pytest.mark.parametrize("causal", [None, "top_left"])
@pytest.mark.parametrize("options", [{}, {"score": lambda s, b, h, i, j: s}], ids=["plain", "score"])
def test_hidden_keys_stay_hidden_with_a_tiny_scale(scale, causal, options):
    """The natural maximum is the largest product times the scale, and 0 times the −inf of a hidden key is NaN."""
    q, k, v = (torch.linspace(-1, 1, 80).reshape(1, 2, 5, 8).mul(n).requires_grad_() for n in (1, 2, 3))
    bias = torch.zeros(5, 5) if causal is None else torch.full((5, 5), -torch.inf).triu(1)
    found = saccade.attention(q, k, v, scale=scale, causal=causal, **options)
    expected = torch.softmax((q @ k.mT) * scale + bias, -1) @ v
    torch.testing.assert_close(found, expected)
    for each, other in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (found, expected))):
        torch.testing.assert_close(each, other)
