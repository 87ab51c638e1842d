"""Matmuls with weights of attn.dequantize against NumPy, which decodes the blocks as ggml and ONNX Runtime define them."""

import pytest

pytest.importorskip("numpy")

import numpy as np

import saccade

RAND = np.random.default_rng(4)
SIZES = {"q4_0": (32, 18), "q4_1": (32, 20), "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210)}


def half(blocks, at):
    return blocks[..., at : at + 2].copy().view(np.float16).astype(np.float64)


def pairs(block, count):
    """Low nibbles of `count` bytes, then high ones."""
    return np.concatenate([block[..., :count] & 15, block[..., :count] >> 4], axis=-1).astype(np.int64)


def q4_k(blocks):
    words = blocks[..., 4:16].astype(np.int64)
    scales = np.concatenate([words[..., :4] & 63, (words[..., 8:] & 15) | (words[..., :4] >> 6 << 4)], axis=-1)
    least = np.concatenate([words[..., 4:8] & 63, (words[..., 8:] >> 4) | (words[..., 4:8] >> 6 << 4)], axis=-1)
    codes = np.concatenate([pairs(blocks[..., 16 + 32 * i :], 32) for i in range(4)], axis=-1).reshape(*blocks.shape[:-1], 8, 32)
    return (half(blocks, 0) * scales)[..., None] * codes - (half(blocks, 2) * least)[..., None]


def q6_k(blocks):
    parts = []
    for i in range(2):
        low, high = pairs(blocks[..., 64 * i :], 64), blocks[..., 128 + 32 * i : 160 + 32 * i].astype(np.int64)
        parts.append(low | np.concatenate([(high >> shift & 3) << 4 for shift in (0, 2, 4, 6)], axis=-1))
    scales = blocks[..., 192:208].copy().view(np.int8).astype(np.float64)
    codes = np.concatenate(parts, axis=-1).reshape(*blocks.shape[:-1], 16, 16) - 32
    return (half(blocks, 208) * scales)[..., None] * codes


def dequantized(kind, blocks):
    """The weights in f64, by rows."""
    found = {
        "q4_0": lambda: half(blocks, 0) * (pairs(blocks[..., 2:], 16) - 8),
        "q4_1": lambda: half(blocks, 0) * pairs(blocks[..., 4:], 16) + half(blocks, 2),
        "q8_0": lambda: half(blocks, 0) * blocks[..., 2:].copy().view(np.int8),
        "q4_k": lambda: q4_k(blocks), "q6_k": lambda: q6_k(blocks)}[kind]()  # fmt: skip
    return found.reshape(blocks.shape[0], -1)


def of_scales(kind, codes, scales, zeros, columns):
    codes, count = codes.astype(np.int64), scales.shape[1]
    if kind == "u4":
        codes = np.stack([codes & 15, codes >> 4], axis=-1).reshape(*codes.shape[:2], -1)
    if zeros is None:
        zeros = np.full(scales.shape, 8 if kind == "u4" else 128)
    elif zeros.dtype == np.uint8 and kind == "u4":
        zeros = np.stack([zeros & 15, zeros >> 4], axis=-1).reshape(len(zeros), -1)[:, :count]
    weights = scales.astype(np.float64)[..., None] * (codes - zeros.astype(np.float64)[..., None])
    return weights.reshape(len(codes), -1)[:, :columns]


def random_blocks(kind, rows, columns):
    elements, size = SIZES[kind]
    blocks = RAND.integers(0, 256, (rows, columns // elements, size), dtype=np.uint8)
    for at in {"q4_1": (0, 2), "q4_k": (0, 2), "q6_k": (208,)}.get(kind, (0,)):
        numbers = (RAND.standard_normal(blocks.shape[:2]) / 64).astype(np.float16)
        blocks[..., at : at + 2] = numbers[..., None].view(np.uint8)
    return blocks


def program(kind, codes, columns, scales=None, zeros=None, element="f32", rows="?", transposed=False, rounded=False):
    """x · wᵀ + bias, through tanh; `rows` of x. `rounded`: x is rounded to 8 bits first."""
    n = codes.shape[0]
    of_codes = f"tensor<{'x'.join(map(str, codes.shape))}xi8>"
    arguments, clauses = [f"%b: {of_codes} {{attn.constant}}"], ""
    for name, clause, given in (("s", "scales", scales), ("z", "zeros", zeros)):
        if given is not None:
            type = f"tensor<{given.shape[0]}x{given.shape[1]}x{'f32' if given.dtype == np.float32 else 'i8'}>"
            arguments.append(f"%{name}: {type}")
            clauses += f"{clause}(%{name} : {type}) "
    x, w, y, t = (f"tensor<{shape}>" for shape in (f"{rows}x{columns}x{element}", f"{n}x{columns}x{element}",
                                                  f"{rows}x{n}xf32", f"{columns}x{n}x{element}"))  # fmt: skip
    wide = "" if element == "f32" else f"%pw = arith.extf %p : {element} to f32\n %qw = arith.extf %q : {element} to f32"
    p, q = ("%p", "%q") if element == "f32" else ("%pw", "%qw")
    rhs, order = (t, "(k, j)") if transposed else (w, "(j, k)")
    return f"""
func.func @f(%x: {x}, {", ".join(arguments)}, %bias: tensor<{n}xf32>) -> {y} {{
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %{"w" if not transposed else "rows"} = attn.dequantize %b {clauses}format({kind}) : {of_codes} -> {w}
  {f"%te = tensor.empty() : {t} " if transposed else ""}
  {f"%w = linalg.transpose ins(%rows : {w}) outs(%te : {t}) permutation = [1, 0]" if transposed else ""}
  {f"%x8 = attn.fake_quantize %x : {x}" if rounded else ""}
  %m = tensor.dim %x, %c0 : {x}
  %e = tensor.empty({"%m" if rows == "?" else ""}) : {y}
  %f = linalg.fill ins(%zero : f32) outs(%e : {y}) -> {y}
  %y = linalg.generic {{indexing_maps = [affine_map<(i, j, k) -> (i, k)>, affine_map<(i, j, k) -> {order}>,
      affine_map<(i, j, k) -> (i, j)>], iterator_types = ["parallel", "parallel", "reduction"]}}
      ins({"%x8" if rounded else "%x"}, %w : {x}, {rhs}) outs(%f : {y}) {{
  ^bb0(%p: {element}, %q: {element}, %o: f32):
    {wide}
    %product = arith.mulf {p}, {q} : f32
    %sum = arith.addf %o, %product : f32
    linalg.yield %sum : f32
  }} -> {y}
  %r = linalg.generic {{indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (j)>, affine_map<(i, j) -> (i, j)>],
      iterator_types = ["parallel", "parallel"]}} ins(%y, %bias : {y}, tensor<{n}xf32>) outs(%e : {y}) {{
  ^bb0(%p: f32, %q: f32, %o: f32):
    %sum = arith.addf %p, %q : f32
    %h = math.tanh %sum : f32
    linalg.yield %h : f32
  }} -> {y}
  return %r : {y}
}}"""


def fake_quantized(x):
    """x with blocks of 32 columns rounded to 8 bits, in f32 as attn.fake_quantize is defined."""
    blocks = x.reshape(len(x), -1, 32)
    most = np.abs(blocks).max(axis=-1, keepdims=True)
    with np.errstate(all="ignore"):
        codes = np.where(most < np.float32(2.0**-100), 0, np.rint(blocks * (np.float32(127) / most)))
        return (codes * (most / np.float32(127))).astype(np.float32).reshape(x.shape)


def check(text, weights, operands, sizes, **options):
    module = saccade.compile(text, **options)
    check_calls(module.f, weights, operands, sizes)
    return module


def check_calls(call, weights, operands, sizes, seen=lambda x: x, change=lambda x: x):
    """Compares calls with random rows. `seen`: the rows as the matmul reads them. `change` makes others of random ones."""
    bias = RAND.standard_normal(len(weights)).astype(np.float32)
    for rows in sizes:
        x = change(RAND.standard_normal((rows, weights.shape[1])).astype(np.float32))
        found = call(x, *operands, bias)
        x = seen(x)
        expected = np.tanh(x.astype(np.float64) @ weights.T + bias)
        size = np.abs(x.astype(np.float64)) @ np.abs(weights).T + 1
        assert np.all(np.abs(found - expected) <= 2e-7 * size), (rows, np.abs(found - expected).max())


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("target", ["host", "v3", "portable", "v4-expanded", "v4-bf16-expanded"])
def test_rows_rounded_to_8_bits(kind, target):
    def with_edges(x):
        # Blocks of zeros, of tiny and of huge numbers, and halves of steps, which are rounded to the even one.
        x[0, :32], x[-1, 32:64] = 0, x[-1, 32:64] * np.float32(2.0**-90)
        x[0, 64:96] *= np.float32(2.0**60)
        x[-1, 96:128] = np.arange(32) + np.float32(0.5)
        x[-1, 127] = 127
        return x

    for rows, columns in ((37, 512), (5, 768 if kind[-1] == "k" else 832)):
        blocks = random_blocks(kind, rows, columns)
        module = saccade.compile(program(kind, blocks, columns, rounded=True, transposed=rows == 37), target=target)
        assert ("multiplied in int8" in module.explain()) == (target != "portable")
        check_calls(module.f, dequantized(kind, blocks), [blocks.view(np.int8)], (1, 2, 3, 7, 8, 16, 17, 64), fake_quantized, with_edges)


@pytest.mark.parametrize("rows", [1, 3, 20])
def test_rounded_rows_that_are_not_finite(rows):
    blocks = random_blocks("q4_0", 24, 128)
    call = saccade.compile(program("q4_0", blocks, 128, rounded=True)).f
    for number in (np.nan, np.inf, -np.inf):
        x = RAND.standard_normal((rows, 128)).astype(np.float32)
        x[-1, 40] = number
        found = call(x, blocks.view(np.int8), np.zeros(24, np.float32))
        assert np.isnan(found[-1]).all() and np.isfinite(found[:-1]).all()


def test_weights_of_rounded_and_of_other_rows():
    # One matmul reads x, and one x rounded, with the same weights.
    blocks, columns = random_blocks("q4_0", 40, 256), 256
    text = program("q4_0", blocks, columns, rounded=True)
    first = text.index("  %y = linalg.generic")
    again = text[first : text.index("  %r = linalg.generic")].replace("%y =", "%y2 =").replace("ins(%x8,", "ins(%x,")
    y = "tensor<?x40xf32>"
    text = text[: text.index("  %r = linalg.generic")] + again + f"  return %y, %y2 : {y}, {y}\n}}"
    text = text.replace(f"-> {y} {{\n", f"-> ({y}, {y}) {{\n", 1)
    call = saccade.compile(text).f
    x = RAND.standard_normal((3, columns)).astype(np.float32)
    rounded, exact = call(x, blocks.view(np.int8), np.zeros(40, np.float32))
    weights = dequantized("q4_0", blocks)
    assert np.abs(rounded - fake_quantized(x).astype(np.float64) @ weights.T).max() < 1e-5
    assert np.abs(exact - x.astype(np.float64) @ weights.T).max() < 1e-5 < np.abs(exact - rounded).max()


@pytest.mark.parametrize("kind", SIZES)
@pytest.mark.parametrize("target", ["host", "v3", "portable", "v4-expanded"])
def test_formats_of_ggml(kind, target):
    # The last tile of columns has 5, and no register block fits 37.
    for rows, columns in ((37, 512), (261, 256)):
        blocks = random_blocks(kind, rows, columns)
        if target == "v4-expanded" and rows != 37:
            continue
        check(program(kind, blocks, columns, transposed=rows == 37), dequantized(kind, blocks), [blocks.view(np.int8)],
              (1, 2, 3, 7, 8, 16, 17, 64) if rows == 37 else (1, 33), target=target)


@pytest.mark.parametrize("kind", ["u4", "u8"])
@pytest.mark.parametrize("zeros", [None, "packed", "float"])
def test_codes_with_scales(kind, zeros):
    for block, columns in ((16, 48), (32, 90), (64, 320), (256, 300)):
        rows, blocks = 41, -(-columns // block)
        codes = RAND.integers(0, 256, (rows, blocks, block // (2 if kind == "u4" else 1)), dtype=np.uint8)
        scales = (RAND.standard_normal((rows, blocks)) / 64).astype(np.float32)
        given = None
        if zeros == "packed":
            given = RAND.integers(0, 256, (rows, -(-blocks // 2) if kind == "u4" else blocks), dtype=np.uint8)
        elif zeros == "float":
            given = RAND.uniform(0, 15, scales.shape).astype(np.float32)
        operands = [codes.view(np.int8), scales]
        if given is not None:
            operands.append(given if zeros == "float" else given.view(np.int8))
        check(program(kind, codes, columns, scales, given), of_scales(kind, codes, scales, given, columns), operands, (1, 5, 20))


@pytest.mark.parametrize("rows", [1, 4, 16, 65])
def test_a_known_number_of_rows(rows):
    blocks = random_blocks("q4_0", 70, 4096)
    check(program("q4_0", blocks, 4096, rows=rows), dequantized("q4_0", blocks), [blocks.view(np.int8)], [rows])


def test_more_rows_than_a_task_and_one_thread():
    blocks = random_blocks("q4_k", 130, 1024)
    text, weights = program("q4_k", blocks, 1024), dequantized("q4_k", blocks)
    check(text, weights, [blocks.view(np.int8)], (700,))
    before = saccade.num_threads()
    saccade.set_num_threads(1)
    try:
        check(text, weights, [blocks.view(np.int8)], (1, 30))
    finally:
        saccade.set_num_threads(before)


@pytest.mark.parametrize("target", ["host", "v4-bf16", "v3"])
def test_bf16(target):
    torch = pytest.importorskip("torch")
    blocks = random_blocks("q4_0", 45, 512)
    try:
        call = saccade.compile(program("q4_0", blocks, 512, element="bf16"), target=target).f
    except NotImplementedError as error:
        pytest.skip(str(error))
    exact = torch.from_numpy(dequantized("q4_0", blocks))
    bias = torch.zeros(45)
    # In registers weights are not rounded.
    for rows, weights in ((1, exact), (6, exact), (40, exact.bfloat16().double())):
        x = torch.randn(rows, 512).bfloat16()
        found = torch.as_tensor(call(x, torch.from_numpy(blocks.view(np.int8)), bias))
        torch.testing.assert_close(found.double(), torch.tanh(x.double() @ weights.T), rtol=0, atol=2e-4)


def test_operands_with_other_strides():
    blocks = random_blocks("q4_0", 45, 256)
    call, weights = saccade.compile(program("q4_0", blocks, 256)).f, dequantized("q4_0", blocks)
    apart = np.zeros((45, 16, 18), np.int8)
    apart[:, ::2] = blocks.view(np.int8)
    for rows in (3, 20):
        x = RAND.standard_normal((256, 2 * rows)).astype(np.float32)[:, ::2].T
        found = call(x, apart[:, ::2], np.zeros(45, np.float32))
        np.testing.assert_allclose(found, np.tanh(x @ weights.T), atol=1e-5)


def test_numbers_that_are_not_finite():
    blocks = random_blocks("q4_0", 20, 64)
    call = saccade.compile(program("q4_0", blocks, 64)).f
    for rows in (1, 5, 20):
        x = np.ones((rows, 64), np.float32)
        x[0, 3], x[-1, 7] = np.inf, np.nan
        with np.errstate(invalid="ignore"):
            expected = np.tanh(x @ dequantized("q4_0", blocks).T)
        found = call(x, blocks.view(np.int8), np.zeros(20, np.float32))
        np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("kind", SIZES)
def test_the_oracle_is_that_of_gguf(kind):
    gguf = pytest.importorskip("gguf")
    blocks = random_blocks(kind, 5, 512)
    expected = gguf.dequantize(blocks.reshape(5, -1), gguf.GGMLQuantizationType[kind.upper()])
    np.testing.assert_allclose(dequantized(kind, blocks), expected, rtol=1e-6, atol=1e-9)


def test_bound_weights_stay_quantized():
    blocks = random_blocks("q8_0", 64, 256)
    module = saccade.compile(program("q8_0", blocks, 256), prepack=True)
    call = module.f.bind(b=blocks.view(np.int8)) if hasattr(module, "f__prepack") else module.f
    x, bias = RAND.standard_normal((20, 256)).astype(np.float32), np.zeros(64, np.float32)
    found = call(x, bias) if call is not module.f else call(x, blocks.view(np.int8), bias)
    np.testing.assert_allclose(found, np.tanh(x @ dequantized("q8_0", blocks).T), atol=1e-5)
    assert not hasattr(module, "f__prepack")
