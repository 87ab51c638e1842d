"""Floats of 8 bits: conversions of all codes, and quantized key/value caches of float8_e4m3fn and float8_e5m2."""

import itertools
import re

import numpy as np
import pytest

import saccade

torch = pytest.importorskip("torch")

TYPES = {"float8_e4m3fn": "f8E4M3FN", "float8_e5m2": "f8E5M2"}
TARGETS = ["portable", "v3", "v4-expanded", "v4-bf16-expanded", "v4-amx-expanded"]
RNG = np.random.default_rng(8)


def all_codes(name):
    return torch.arange(256, dtype=torch.int32).to(torch.uint8).view(getattr(torch, name))


def conversions(target, name):
    """widen(x) to float32, bfloat16 and float64, and narrow(float32, bfloat16), which also yields the bits."""
    own = TYPES[name]
    text = f"""
func.func @widen(%x: tensor<?x{own}>) -> (tensor<?xf32>, tensor<?xbf16>, tensor<?xf64>) {{
  %a = arith.extf %x : tensor<?x{own}> to tensor<?xf32>
  %b = arith.extf %x : tensor<?x{own}> to tensor<?xbf16>
  %c = arith.extf %x : tensor<?x{own}> to tensor<?xf64>
  return %a, %b, %c : tensor<?xf32>, tensor<?xbf16>, tensor<?xf64>
}}
func.func @narrow(%x: tensor<?xf32>, %y: tensor<?xbf16>) -> (tensor<?x{own}>, tensor<?x{own}>, tensor<?xi8>) {{
  %a = arith.truncf %x : tensor<?xf32> to tensor<?x{own}>
  %b = arith.truncf %y : tensor<?xbf16> to tensor<?x{own}>
  %c = arith.bitcast %a : tensor<?x{own}> to tensor<?xi8>
  return %a, %b, %c : tensor<?x{own}>, tensor<?x{own}>, tensor<?xi8>
}}"""
    return saccade.compile(text, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TYPES)
def test_all_codes_are_widened_exactly(name, target):
    x = all_codes(name)
    for found, dtype in zip(conversions(target, name).widen(x), (torch.float32, torch.bfloat16, torch.float64)):
        expected = x.to(dtype)
        assert found.dtype == dtype
        assert torch.equal(found.isnan(), expected.isnan())
        numbers = ~expected.isnan()
        assert torch.equal(found[numbers], expected[numbers])
        assert torch.equal(torch.signbit(found[numbers]), torch.signbit(expected[numbers]))  # of zeros


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", TYPES)
def test_conversions_round_as_pytorch(name, target):
    values = all_codes(name).float()
    values = values[values.isfinite()].sort().values
    ties = (values[1:] + values[:-1]) / 2
    around = [torch.nextafter(x, torch.tensor(to)) for x in (values, ties) for to in (float("inf"), -float("inf"))]
    extremes = torch.tensor([464, 464.1, 480, 61439.9, 61440, 1e9, float("inf"), float("nan"), 1e-30, 1e-42])
    drawn = torch.randn(5000) * torch.exp2(torch.randint(-20, 20, (5000,)))
    x = torch.cat([values, ties, *around, extremes, -extremes, drawn])
    narrow, narrow_bf16, bits = conversions(target, name).narrow(x, x.bfloat16())
    dtype = getattr(torch, name)
    assert torch.equal(bits, x.to(dtype).view(torch.int8))
    assert torch.equal(narrow.view(torch.int8), bits)
    assert torch.equal(narrow_bf16.view(torch.int8), x.bfloat16().to(dtype).view(torch.int8))


@pytest.mark.parametrize("name", TYPES)
def test_numpy_and_jax_arrays(name):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = np.arange(256, dtype=np.uint8).view(getattr(ml_dtypes, name))
    module = conversions("host", name)
    assert np.array_equal(module.widen(x)[0], x.astype(np.float32), equal_nan=True)
    narrow = module.narrow(np.ones(3, np.float32), np.ones(3, ml_dtypes.bfloat16))[0]
    assert narrow.dtype == x.dtype
    assert narrow.tolist() == [1, 1, 1]
    jnp = pytest.importorskip("jax.numpy")
    q, k = RNG.standard_normal((1, 2, 1, 16), np.float32), RNG.standard_normal((1, 2, 30, 16), np.float32).astype(x.dtype)
    expected = saccade.attention(q, k, k, k_scale=0.5, v_scale=2.0)
    found = saccade.attention(jnp.asarray(q), jnp.asarray(k), jnp.asarray(k), k_scale=0.5, v_scale=2.0)
    assert np.array_equal(np.asarray(found), expected)


@pytest.mark.parametrize("source", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", TYPES)
def test_exported_modules_convert(name, source):
    class Convert(torch.nn.Module):
        def forward(self, x):
            y = x.to(getattr(torch, name))
            return y, y.to(source), y.to(torch.float8_e5m2)

    import saccade.torch

    x = (torch.randn(300) * 50).to(source)
    for found, expected in zip(saccade.torch.compile(Convert(), (x,))(x), Convert()(x)):
        assert found.dtype == expected.dtype
        assert torch.equal(found.float(), expected.float())


def test_what_exported_modules_refuse():
    class Add(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("w", torch.ones(100, dtype=torch.float8_e5m2))

        def forward(self, x):
            return x + self.w.float()

    import saccade.torch

    with pytest.raises(saccade.torch.ExportError, match=r"the weight 'w': the type torch\.float8_e5m2 is not supported"):
        saccade.torch.compile(Add(), (torch.ones(100),))
    x = torch.ones(10, 10, dtype=torch.float8_e5m2)
    with pytest.raises(saccade.CompileError, match="the type 'tensor<10x10xf8E5M2>' is not supported"):
        saccade.torch.compile(torch.nn.Flatten(0), (x,))

    class Convert(torch.nn.Module):
        def forward(self, x):
            return x.int()

    with pytest.raises(saccade.CompileError, match="it converts 'f8E5M2' to 'i32', expected floats"):
        saccade.torch.compile(Convert(), (x,))


def quantized(name, *shape):
    """Elements, some of which are subnormal."""
    return (torch.randn(shape) * torch.exp2(torch.randint(-12, 6, shape))).to(getattr(torch, name))


def scale_of(kind, x):
    """A scale for elements [batch or pages, heads, positions, depth]."""
    if kind == "number":
        return 0.125
    return torch.rand({"head": x.shape[1:2], "position": x.shape[:3], "blocks": (*x.shape[:3], x.shape[3] // 8)}[kind]) / 4 + 0.01


def floats(x, scale):
    scale = torch.as_tensor(scale)
    if scale.ndim == 4:
        return x.float() * scale.repeat_interleave(x.shape[3] // scale.shape[3], 3)
    return x.float() * (scale[:, None, None] if scale.ndim == 1 else scale[..., None] if scale.ndim else scale)


@pytest.mark.parametrize("queries", [1, 40])
@pytest.mark.parametrize("kinds", [*itertools.combinations_with_replacement(["number", "head", "position", "blocks"], 2)])
@pytest.mark.parametrize("name", TYPES)
def test_scales_of_all_shapes(name, kinds, queries):
    # The head sizes are whole and broken numbers of registers.
    q, k, v = torch.randn(2, 6, queries, 24), quantized(name, 2, 2, 301, 24), quantized(name, 2, 2, 301, 64)
    scales = scale_of(kinds[0], k), scale_of(kinds[1], v)
    found = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], causal="bottom_right")
    expected = saccade.attention(q, floats(k, scales[0]), floats(v, scales[1]), causal="bottom_right")
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["number", "head", "position", "blocks"])
@pytest.mark.parametrize("page_size", [1, 16])
@pytest.mark.parametrize("name", TYPES)
def test_pages(name, page_size, kind):
    lengths, entries = torch.tensor([530, 61, 200], dtype=torch.int32), -(-531 // page_size)
    pages = 3 * entries + 2
    table = torch.randperm(pages)[: 3 * entries].reshape(3, entries).to(torch.int32)
    q, k, v = torch.randn(3, 4, 1, 16), quantized(name, pages, 2, page_size, 16), quantized(name, pages, 2, page_size, 48)
    scales = scale_of(kind, k), scale_of(kind, v)
    options = {"page_table": table, "kv_len": lengths, "causal": "bottom_right"}
    found = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], **options)
    expected = saccade.attention(q, floats(k, scales[0]), floats(v, scales[1]), **options)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("element", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", TYPES)
def test_targets(name, element, target):
    q = torch.randn(1, 4, 1, 100).to(getattr(torch, element))
    k, v = quantized(name, 1, 2, 90, 100), quantized(name, 1, 2, 90, 72)
    scales = scale_of("position", k), scale_of("position", v)
    found = saccade.attention(q, k, v, k_scale=scales[0], v_scale=scales[1], target=target)
    expected = saccade.attention(q.float(), floats(k, scales[0]), floats(v, scales[1]))
    torch.testing.assert_close(found.float(), expected, atol=2e-5 if element == "float32" else 2e-2, rtol=1e-2)


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("name", TYPES)
def test_nan_codes_affect_their_rows_and_columns_only(name, queries):
    q, k, v = torch.randn(2, 2, queries, 32), quantized(name, 2, 2, 40, 32), quantized(name, 2, 2, 40, 32)
    expected = saccade.attention(q, k, v, k_scale=0.25, v_scale=0.25)
    for code in (0x7F, 0xFF):
        changed = v.clone()
        changed.view(torch.uint8)[1, 0, 7, 5] = code
        found = saccade.attention(q, k, changed, k_scale=0.25, v_scale=0.25)
        assert found[1, 0, :, 5].isnan().all()
        found[1, 0, :, 5] = expected[1, 0, :, 5]
        assert torch.equal(found, expected)
        changed = k.clone()
        changed.view(torch.uint8)[1, 0, 7, 5] = code
        found = saccade.attention(q, changed, v, k_scale=0.25, v_scale=0.25)
        assert found[1, 0].isnan().all()
        found[1, 0] = expected[1, 0]
        assert torch.equal(found, expected)


def test_keys_and_values_of_different_types():
    q, k, v = torch.randn(1, 2, 1, 32), quantized("float8_e4m3fn", 1, 2, 70, 32), quantized("float8_e5m2", 1, 2, 70, 32)
    found = saccade.attention(q, k, v, k_scale=0.5, v_scale=0.25)
    torch.testing.assert_close(found, saccade.attention(q, floats(k, 0.5), floats(v, 0.25)), atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("element", ["int8", "float8_e5m2"])
def test_another_type_of_8_bits_is_refused(element):
    widen = conversions("host", "float8_e4m3fn").widen
    found = {"int8": "i8", "float8_e5m2": "f8E5M2"}[element]
    with pytest.raises(TypeError, match=re.escape(f"element type {found}, expected f8E4M3FN")):
        widen(torch.zeros(3).to(getattr(torch, element)))


def test_a_cache_without_scales_is_refused():
    q, k = torch.zeros(1, 2, 1, 16), quantized("float8_e4m3fn", 1, 2, 9, 16)
    message = ("k has element type float8_e4m3fn, expected float64, float32, float16, bfloat16, or int8, float8_e4m3fn, "
               "float8_e5m2 or uint8 with k_scale")
    with pytest.raises(TypeError, match=re.escape(message)):
        saccade.attention(q, k, k)
