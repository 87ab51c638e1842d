"""Quantized key/value caches: saccade.attention with k_scale and v_scale."""

import itertools
import re

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(12)
KINDS = ["number", "head", "position", "blocks"]


def reference(q, k, v, *, causal=None, kv_len=None):
    """Attention in float64 on [batch, heads, positions, depth]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k.repeat(group, 1), v.repeat(group, 1)))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    lengths = np.full(len(q), k.shape[2]) if kv_len is None else np.asarray(kv_len)
    for b, length in enumerate(lengths):
        own = np.arange(q.shape[2])[:, None] + (length - q.shape[2] if causal else length)
        scores[b, :, np.arange(k.shape[2])[None] > np.minimum(own, length - 1)] = -np.inf
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def scale_of(kind, x):
    """A scale for elements [batch or pages, heads, positions, depth]."""
    if kind == "number":
        return 0.013
    shape = {"head": x.shape[1], "position": x.shape[:3], "blocks": (*x.shape[:3], x.shape[3] // 8)}[kind]
    return RNG.uniform(0.002, 0.03, shape).astype(np.float32)


def floats(x, scale):
    scale = np.asarray(scale, np.float32)
    if scale.ndim == 4:
        return x * scale.repeat(x.shape[3] // scale.shape[3], 3)
    return x * (scale[:, None, None] if scale.ndim == 1 else scale[..., None] if scale.ndim else scale)


def integers(*shape):
    return RNG.integers(-128, 128, shape, np.int8)


@pytest.mark.parametrize("queries", [1, 3, 50])
@pytest.mark.parametrize("v_kind", KINDS)
@pytest.mark.parametrize("k_kind", KINDS)
def test_scales_of_all_shapes(k_kind, v_kind, queries):
    q = RNG.standard_normal((2, 6, queries, 24), np.float32)
    k, v = integers(2, 2, 301, 24), integers(2, 2, 301, 40)
    scales = scale_of(k_kind, k), scale_of(v_kind, v)
    out = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], causal="bottom_right")
    expected = reference(q, floats(k, scales[0]), floats(v, scales[1]), causal=True)
    np.testing.assert_allclose(out, expected, atol=4e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("page_size", [1, 16])
def test_pages(page_size, queries, kind):
    lengths, entries = np.array([530, 61, 200], np.int32), -(-531 // page_size)
    pages = 3 * entries + 2
    table = RNG.permutation(pages)[: 3 * entries].reshape(3, entries).astype(np.int32)
    k, v = integers(pages, 2, page_size, 16), integers(pages, 2, page_size, 24)
    scales = scale_of(kind, k), scale_of(kind, v)
    q = RNG.standard_normal((3, 4, queries, 16), np.float32)
    out = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], page_table=table, kv_len=lengths,
                            causal="bottom_right")
    dense = [floats(x, s)[table].transpose(0, 2, 1, 3, 4).reshape(3, 2, -1, x.shape[-1])
             for x, s in ((k, scales[0]), (v, scales[1]))]
    np.testing.assert_allclose(out, reference(q, *dense, causal=True, kv_len=lengths), atol=4e-6)


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "bhds"])
@pytest.mark.parametrize("depth", [64, 50])
def test_layouts_and_depths(layout, depth):
    q, k, v = RNG.standard_normal((1, 2, 1, depth), np.float32), integers(1, 2, 77, depth), integers(1, 2, 77, depth)
    scales = scale_of("position", k), scale_of("position", v)
    expected = reference(q, floats(k, scales[0]), floats(v, scales[1]))

    def to(x, dims):
        return np.ascontiguousarray(x.transpose(["bhsd".index(dim) for dim in dims]))

    rest = layout.replace("d", "")
    out = saccade.attention(*(to(x, layout) for x in (q, k, v)), k_scale=to(scales[0], rest), v_scale=to(scales[1], rest),
                            layout=layout)
    np.testing.assert_allclose(out, to(expected, layout), atol=4e-6)


def test_a_ragged_batch():
    offsets, q = np.array([0, 30, 31, 75], np.int32), RNG.standard_normal((75, 4, 16), np.float32)
    k, v = integers(75, 2, 16), integers(75, 2, 16)
    scales = [RNG.uniform(0.002, 0.03, (75, 2)).astype(np.float32) for _ in range(2)]
    out = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    for begin, end in itertools.pairwise(offsets):
        part = [x[begin:end].transpose(1, 0, 2)[None] for x in (q, k * scales[0][..., None], v * scales[1][..., None])]
        np.testing.assert_allclose(out[begin:end], reference(*part)[0].transpose(1, 0, 2), atol=4e-6)


@pytest.mark.parametrize("element", ["float64", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("queries", [1, 33])
def test_element_types_of_torch(element, queries):
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(RNG.standard_normal((2, 4, queries, 32))).to(getattr(torch, element))
    k, v = (torch.from_numpy(integers(2, 2, 600, 32)) for _ in range(2))
    scales = [torch.from_numpy(scale_of("position", k.numpy())) for _ in range(2)]
    out = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1])
    assert out.dtype == q.dtype
    expected = reference(q.double().numpy(), *(floats(x.numpy(), s.numpy()) for x, s in zip((k, v), scales)))
    # Keys and values may be rounded to the type of q.
    tolerance = {"float64": 1e-12, "float32": 4e-6, "float16": 4e-3, "bfloat16": 3e-2}[element]
    np.testing.assert_allclose(out.double().numpy(), expected, atol=tolerance)


@pytest.mark.parametrize("target", ["portable", "v3", "v4-expanded", "v4-bf16-expanded", "v4-amx-expanded"])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_targets(target, element):
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(RNG.standard_normal((1, 4, 2, 40))).to(getattr(torch, element))
    k, v = (torch.from_numpy(integers(1, 2, 90, 40)) for _ in range(2))
    scales = [torch.from_numpy(scale_of("position", k.numpy())) for _ in range(2)]
    out = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], target=target)
    expected = reference(q.double().numpy(), *(floats(x.numpy(), s.numpy()) for x, s in zip((k, v), scales)))
    np.testing.assert_allclose(out.double().numpy(), expected, atol=4e-6 if element == "float32" else 3e-2)


def test_one_kernel_serves_all_sizes_and_scales():
    saccade.cache_clear()
    for batch, heads, keys, queries in ((1, 1, 9, 1), (3, 2, 2000, 1), (2, 4, 70, 65)):
        q, k, v = RNG.standard_normal((batch, 4, queries, 16), np.float32), integers(batch, heads, keys, 16), integers(batch, heads, keys, 16)
        number, scale = RNG.uniform(0.01, 0.02), scale_of("position", v)
        out = saccade.attention(q, k, v, k_scale=number, v_scale=scale)
        np.testing.assert_allclose(out, reference(q, floats(k, number), floats(v, scale)), atol=4e-6)
    assert saccade.cache_info().compilations == 1


def test_scales_without_dimensions_are_numbers():
    torch = pytest.importorskip("torch")
    q, k = torch.randn(1, 2, 1, 16), torch.from_numpy(integers(1, 2, 30, 16))
    expected = saccade.attention(q, k, k, k_scale=0.5, v_scale=0.25)
    assert torch.equal(saccade.attention(q, k, k, k_scale=torch.tensor(0.5), v_scale=torch.tensor(0.25)), expected)


@pytest.mark.parametrize("queries", [1, 20])
def test_nan_scales_affect_their_rows_only(queries):
    q, k, v = RNG.standard_normal((2, 2, queries, 16), np.float32), integers(2, 2, 40, 16), integers(2, 2, 40, 16)
    k_scale, v_scale = scale_of("position", k), scale_of("position", v)
    expected = saccade.attention(q, k, v, k_scale=k_scale, v_scale=v_scale)
    for scale in (k_scale, v_scale):
        kept = scale[1, 0, 7]
        scale[1, 0, 7] = np.nan
        out = saccade.attention(q, k, v, k_scale=k_scale, v_scale=v_scale)
        assert np.isnan(out[1, 0]).all()
        assert np.array_equal(out[0], expected[0])
        assert np.array_equal(out[1, 1], expected[1, 1])
        scale[1, 0, 7] = kept


def test_scores_windows_and_statistics():
    q, k, v = RNG.standard_normal((1, 2, 2, 16), np.float32), integers(1, 1, 300, 16), integers(1, 1, 300, 16)
    scale = scale_of("position", k)
    options = {"window": 50, "causal": "bottom_right", "return_lse": True, "score": saccade.scores.soft_cap(20.0)}
    found = saccade.attention(q, k, v, k_scale=scale, v_scale=scale, **options)
    expected = saccade.attention(q, floats(k, scale), floats(v, scale), **options)
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, atol=4e-6)


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"v_scale": None}, TypeError, "v_scale is None, expected a scale, as k_scale is given: k and v are both quantized, or neither"),
    ({"k": np.zeros((1, 2, 9, 16), np.float32)}, TypeError, "k has element type float32, expected int8, float8_e4m3fn, float8_e5m2 or uint8: k_scale is given"),
    ({"k_scale": None, "v_scale": None}, TypeError,
     "k has element type int8, expected float64, float32, float16, bfloat16, or int8, float8_e4m3fn, float8_e5m2 or uint8 with k_scale"),
    ({"k_scale": np.ones(2)}, TypeError, "k_scale has element type float64, expected float32"),
    ({"k_scale": np.ones(3, np.float32)}, ValueError, "k_scale has shape (3,), expected (2,), that of k in heads"),
    ({"v_scale": np.ones((1, 2, 8), np.float32)}, ValueError,
     "v_scale has shape (1, 2, 8), expected (1, 2, 9), that of v without the head size"),
    ({"k_scale": np.ones((2, 9), np.float32)}, TypeError,
     'k_scale has 2 dimensions, expected 0, 1, 3 or 4: one scale, one for each KV head, one for each position, "bhs", or for '
     'blocks of its elements, "bhsd"'),
    ({"k_scale": np.ones((1, 2, 9, 3), np.float32)}, ValueError, "k_scale has 3 scales for 16 elements, expected blocks of a power of two"),
    ({"v_scale": np.ones((1, 2, 8, 2), np.float32)}, ValueError, "v_scale has shape (1, 2, 8), expected (1, 2, 9)"),
    ({"k_scale": "1"}, TypeError, "k_scale is"),
])  # fmt: skip
def test_errors_name_the_scale(change, error, message):
    arguments = {"q": np.zeros((1, 4, 1, 16), np.float32), "k": np.zeros((1, 2, 9, 16), np.int8),
                 "v": np.zeros((1, 2, 9, 16), np.int8), "k_scale": 1.0, "v_scale": 1.0, **change}
    with pytest.raises(error, match=re.escape(message)):
        saccade.attention(**arguments)


@pytest.mark.parametrize("role", ["q", "k_scale"])
def test_gradients_are_refused(role):
    torch = pytest.importorskip("torch")
    k = torch.zeros(1, 2, 5, 16, dtype=torch.int8)
    arguments = {"q": torch.zeros(1, 2, 1, 16), "k_scale": torch.ones(2), "v_scale": torch.ones(2)}
    arguments[role].requires_grad_()
    with pytest.raises(ValueError, match="requires grad"):
        saccade.attention(k=k, v=k, **arguments)
