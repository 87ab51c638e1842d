"""Keys and values of 4 bits: saccade.attention with bytes of two codes."""

import re

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(21)


def reference(q, k, v):
    """Attention in float64 on [batch, heads, positions, depth]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k.repeat(group, 1), v.repeat(group, 1)))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def packed(codes):
    return (codes[..., 0::2] | codes[..., 1::2] << 4).astype(np.uint8)


def drawn(*shape, groups=1, has_zero=False):
    """Bytes, the options of scales and zero points of one operand, and the elements."""
    codes = RNG.integers(0, 16, shape)
    scale = RNG.uniform(0.02, 0.3, (*shape[:-1], groups)).astype(np.float32)
    zero = RNG.uniform(-2, 17, scale.shape).astype(np.float32)
    wide = [x.repeat(shape[-1] // groups, -1) for x in (scale, zero)]
    elements = (codes - (wide[1] if has_zero else 8)) * wide[0]
    return packed(codes), {"scale": scale, "zero": zero} if has_zero else {"scale": scale}, elements


def options_of(*operands):
    return {f"{name}_{what}": x for name, numbers in zip("kv", operands) for what, x in numbers.items()}


@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("groups", [1, 4])
@pytest.mark.parametrize("queries", [1, 9])
@pytest.mark.parametrize("target", ["portable", "v3", "v4-expanded", "v4-bf16-expanded", "v4-amx-expanded"])
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
def test_targets(target, element, queries, groups, has_zero):
    torch = pytest.importorskip("torch")
    q = torch.from_numpy(RNG.standard_normal((1, 4, queries, 128))).to(getattr(torch, element))
    (k, of_k, keys), (v, of_v, values) = (drawn(1, 2, 203, 128, groups=groups, has_zero=has_zero) for _ in "kv")
    options = {name: torch.from_numpy(x) for name, x in options_of(of_k, of_v).items()}
    out = saccade.attention(q, torch.from_numpy(k), torch.from_numpy(v), target=target, **options)
    tolerance = 4e-6 if element == "float32" else 3e-2
    np.testing.assert_allclose(out.double().numpy(), reference(q.double().numpy(), keys, values), atol=tolerance)


@pytest.mark.parametrize("kind", ["number", "head"])
@pytest.mark.parametrize("has_zero", [False, True])
@pytest.mark.parametrize("queries", [1, 20])
def test_scales_for_all_positions(queries, has_zero, kind):
    q, codes = RNG.standard_normal((2, 6, queries, 40), np.float32), RNG.integers(0, 16, (2, 2, 77, 40))
    scale = np.float32(0.11) if kind == "number" else np.array([0.1, 0.2], np.float32)
    wide = scale if kind == "number" else scale[:, None, None]
    options = {"k_scale": scale, "v_scale": scale} | ({"k_zero": 30 * scale, "v_zero": 20 * scale} if has_zero else {})
    if kind == "number":
        options = {name: float(x) for name, x in options.items()}
    out = saccade.attention(q, packed(codes), packed(codes), **options)
    keys, values = ((codes - (n * wide if has_zero else 8)) * wide for n in (30, 20))
    np.testing.assert_allclose(out, reference(q, keys, values), atol=4e-6)


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "bhds"])
def test_layouts(layout):
    q, (k, of_k, keys), (v, of_v, values) = RNG.standard_normal((1, 2, 1, 64), np.float32), drawn(1, 2, 77, 64), drawn(1, 2, 77, 64)

    def to(x, view=False):
        moved = x.transpose(["bhsd".index(dim) for dim in layout])
        return moved if view else np.ascontiguousarray(moved)

    options = options_of(*({"scale": to(x["scale"])[..., 0] if layout != "bhds" else to(x["scale"])[:, :, 0]} for x in (of_k, of_v)))
    out = saccade.attention(to(q), to(k, view=True), to(v, view=True), layout=layout, **options)
    np.testing.assert_allclose(out, to(reference(q, keys, values)), atol=4e-6)


def test_keys_and_values_of_different_types():
    q, (k, of_k, keys) = RNG.standard_normal((1, 2, 1, 64), np.float32), drawn(1, 2, 50, 64, groups=2, has_zero=True)
    v = RNG.integers(-127, 128, (1, 2, 50, 24), np.int8)
    out = saccade.attention(q, k, v, v_scale=0.02, **options_of(of_k))
    np.testing.assert_allclose(out, reference(q, keys, v * 0.02), atol=4e-6)


def test_rows_at_the_end_of_memory():
    """A part of a row of a larger array, so that a read beyond it would find other numbers."""
    q, (k, of_k, keys) = RNG.standard_normal((1, 2, 1, 40), np.float32), drawn(1, 2, 33, 40)
    wide = np.full((1, 2, 33, 32), 255, np.uint8)
    wide[..., 4:24] = k
    out = saccade.attention(q, wide[..., 4:24], k, k_scale=of_k["scale"], v_scale=of_k["scale"])
    np.testing.assert_allclose(out, reference(q, keys, keys), atol=4e-6)


def test_jax_arrays():
    jax = pytest.importorskip("jax")
    q, (k, of_k, keys) = RNG.standard_normal((1, 2, 1, 32), np.float32), drawn(1, 2, 33, 32, has_zero=True)
    arrays = [jax.numpy.asarray(x) for x in (q, k, k, of_k["scale"], of_k["zero"])]
    out = saccade.attention(*arrays[:3], k_scale=arrays[3], v_scale=arrays[3], k_zero=arrays[4], v_zero=arrays[4])
    np.testing.assert_allclose(out, reference(q, keys, keys), atol=4e-6)


def test_nan_scales_and_zero_points_affect_their_rows_only():
    q, (k, of_k, _) = RNG.standard_normal((2, 2, 1, 32), np.float32), drawn(2, 2, 40, 32, has_zero=True)
    options = options_of(of_k, {name: x.copy() for name, x in of_k.items()})
    expected = saccade.attention(q, k, k, **options)
    for numbers in options.values():
        kept, numbers[1, 0, 7] = numbers[1, 0, 7].copy(), np.nan
        out = saccade.attention(q, k, k, **options)
        assert np.isnan(out[1, 0]).all()
        assert np.array_equal(out[0], expected[0]) and np.array_equal(out[1, 1], expected[1, 1])
        numbers[1, 0, 7] = kept


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"k": np.zeros((1, 2, 9, 10), np.uint8), "q": np.zeros((1, 4, 1, 20), np.float32)}, ValueError,
     "k has 10 bytes along the head size, which are 20 elements of 4 bits, expected a head size that is a multiple of 8"),
    ({"q": np.zeros((1, 4, 1, 16), np.float32)}, ValueError, "k has head size 32, expected 16, that of q"),
    ({"k": np.zeros((1, 2, 9, 32), np.uint8)[..., ::2]}, ValueError, "k has a stride of 2 bytes along the head size, expected 1"),
    ({"v": np.zeros((1, 2, 9, 18), np.uint8)[..., :16]}, ValueError, "v has strides (324, 162, 18, 1) in bytes, expected multiples of 4"),
    ({"k_scale": np.ones((1, 2, 9, 3), np.float32)}, ValueError, "k_scale has 3 scales for 32 elements, expected blocks of a power of two"),
    ({"k_zero": np.ones((1, 2, 8), np.float32)}, ValueError, "k_zero has shape (1, 2, 8), expected (1, 2, 9), that of k_scale"),
    ({"k_zero": np.ones((1, 2, 9))}, TypeError, "k_zero has element type float64, expected float32"),
    ({"k_zero": np.ones((1, 2, 9), np.uint8)}, TypeError, "k_zero has element type uint8, expected float32"),
    ({"v_scale": 1.0, "v_zero": np.nan}, ValueError, "v_zero is nan"),
    ({"v_scale": 1.0, "v_zero": "8"}, TypeError, "v_zero is '8'"),
    ({"k": np.zeros((1, 2, 9, 32), np.int8), "k_zero": np.ones((1, 2, 9), np.float32)}, TypeError,
     "k_zero is given, expected None: k has element type int8, and only elements of 4 bits (uint8) have zero points"),
    ({"k_scale": None, "v_scale": None, "k_zero": np.ones((1, 2, 9), np.float32)}, TypeError, "k_scale is None"),
])  # fmt: skip
def test_errors_name_the_argument(change, error, message):
    ones = np.ones((1, 2, 9), np.float32)
    arguments = {"q": np.zeros((1, 4, 1, 32), np.float32), "k": np.zeros((1, 2, 9, 16), np.uint8),
                 "v": np.zeros((1, 2, 9, 16), np.uint8), "k_scale": ones, "v_scale": ones, **change}
    with pytest.raises(error, match=re.escape(message)):
        saccade.attention(**arguments)
