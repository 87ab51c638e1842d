"""Dot products of queries and keys in int8: saccade.attention with qk_type."""

import numpy as np
import pytest
import torch

import saccade

HEAD_SIZES = [64, 128]


@pytest.fixture(scope="module")
def target():
    """The target with products of int8, expanded on a processor without them."""
    x = np.zeros((1, 1, 1, 16), np.float32)
    try:
        saccade.attention(x, x, x, target="v4-bf16")
    except NotImplementedError:
        return "v4-bf16-expanded"
    return "v4-bf16"


def operands(head_size, queries, keys, shift=0.0, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(head_size)
    q, k, v = (torch.randn(1, 2, n, head_size, generator=generator) for n in (queries, keys, keys))
    k += shift * torch.randn(head_size, generator=generator)  # the part that keys of a channel have in common
    return [x.to(dtype) for x in (q, k, v)]


def weights(scores, is_causal):
    if is_causal:
        hidden = np.arange(scores.shape[3])[None] > np.arange(scores.shape[2])[:, None]
        scores = np.where(hidden, -np.inf, scores)
    return np.exp(scores - scores.max(-1, keepdims=True))


def exact_attention(q, k, v, is_causal):
    p = weights(q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3]), is_causal)
    return p @ v / p.sum(-1, keepdims=True)


def sage_attention(q, k, v, is_causal):
    """SageAttention's quantizer (per_block_int8 with smooth_k): blocks of 128 queries and 64 keys have a scale each, and
    halves are rounded away from zero. Weights and values are f16, sums exact."""

    def quantized(x, block):
        parts = []
        for first in range(0, x.shape[2], block):
            rows = x[:, :, first : first + block]
            scale = np.abs(rows).max((2, 3), keepdims=True) / 127
            scaled = rows / scale
            parts.append(np.trunc(scaled + np.copysign(0.5, scaled)) * scale)
        return np.concatenate(parts, 2)

    keys = quantized(k - k.mean(2, keepdims=True), 64)
    p = weights(quantized(q / np.sqrt(q.shape[3]), 128) @ keys.swapaxes(2, 3), is_causal)
    return p.astype(np.float16).astype(float) @ v.astype(np.float16).astype(float) / p.sum(-1, keepdims=True)


def metrics(found, exact):
    """Cosine similarity, relative L1 distance, and root mean square of the error: those of SageAttention's paper."""
    cosine = (found * exact).sum() / np.sqrt((found**2).sum() * (exact**2).sum())
    return cosine, np.abs(found - exact).sum() / np.abs(exact).sum(), np.sqrt(((found - exact) ** 2).mean())


@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_errors_are_those_of_sage_attention(target, head_size, is_causal, shift):
    q, k, v = operands(head_size, 600, 1100, shift)
    given = [x.double().numpy() for x in (q, k, v)]
    exact = exact_attention(*given, is_causal)
    causal = "top_left" if is_causal else None
    cosine, l1, rmse = metrics(
        saccade.attention(q, k, v, causal=causal, qk_type="int8", target=target).double().numpy(), exact)  # fmt: skip
    _, sage_l1, sage_rmse = metrics(sage_attention(*given, is_causal), exact)
    assert cosine > 0.9999
    assert l1 < 0.012 and l1 <= 1.1 * sage_l1
    assert rmse <= 1.1 * sage_rmse
    plain = saccade.attention(q, k, v, causal=causal, target=target).double().numpy()
    assert metrics(plain, exact)[1] < l1 / 2  # the products are those of int8


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_types(target, dtype):
    q, k, v = operands(64, 100, 300, dtype=dtype)
    exact = exact_attention(*[x.double().numpy() for x in (q, k, v)], False)
    found = saccade.attention(q, k, v, qk_type="int8", target=target)
    assert found.dtype == dtype
    assert 1e-3 < metrics(found.double().numpy(), exact)[1] < 0.012


def test_rows_do_not_depend_on_the_number_of_queries(target):
    # Chunks of 600 queries end at other rows than those of 1,100, and both end within a tile of keys.
    q, k, v = operands(64, 1100, 1100)
    whole = saccade.attention(q, k, v, causal="top_left", qk_type="int8", target=target)
    part = saccade.attention(q[:, :, :600], k, v, causal="top_left", qk_type="int8", target=target)
    assert torch.equal(whole[:, :, :600], part)


def test_log_sum_exp_includes_the_mean(target):
    q, k, v = operands(64, 50, 200, shift=4.0, dtype=torch.float32)
    scores = q.double().numpy() @ k.double().numpy().swapaxes(2, 3) / 8
    exact = np.log(np.exp(scores - scores.max()).sum(-1)) + scores.max()
    _, lse = saccade.attention(q, k, v, qk_type="int8", target=target, return_lse=True)
    assert np.abs(lse.numpy() - exact).max() < 0.1


def test_gradients_are_those_of_unquantized_attention():
    arguments = [operands(64, 40, 60, dtype=torch.float32) for _ in range(2)]
    results = []
    for (q, k, v), qk_type in zip(arguments, ("int8", None)):
        tensors = [x.requires_grad_() for x in (q, k, v)]
        output = saccade.attention(*tensors, qk_type=qk_type)
        output.square().sum().backward()
        results.append([output, *[x.grad for x in tensors]])
    for quantized, plain in zip(*results):
        assert torch.equal(quantized, plain)


def test_compiled_functions(target):
    q, k, v = operands(64, 100, 300)
    compiled = torch.compile(lambda q, k, v: saccade.attention(q, k, v, qk_type="int8", target=target), fullgraph=True)
    assert torch.equal(compiled(q, k, v), saccade.attention(q, k, v, qk_type="int8", target=target))


@pytest.mark.parametrize(("qk_type", "dtype", "error", "message"), [
    ("int4", torch.float32, ValueError, "qk_type is 'int4', expected \"int8\" or None"),
    (torch.int8, torch.float32, TypeError, "qk_type is torch.int8, expected \"int8\" or None"),
    ("int8", torch.float64, ValueError, "q of float64, expected float32, float16 or bfloat16"),
])  # fmt: skip
def test_invalid_options(qk_type, dtype, error, message):
    q, k, v = operands(16, 10, 10, dtype=dtype)
    with pytest.raises(error, match=message):
        saccade.attention(q, k, v, qk_type=qk_type)
