# REQUIRES: tile-handler
# RUN: %python %s "%{with-tiles}"
"""Executed tile instructions are those of the model: a product multiplies 16 × 16 pairs of bf16 with 16 × 16, a block of 2 × 2
accumulators loads each operand once for its four products (test/Codegen/CPU/tile_loops.py), and a part of a sum stores its
accumulators once. An f16 has two parts: three products of them, which load four operands, take the place of one; of
scores four, which load five."""

import re
import shlex
import subprocess
import sys

PROGRAM = """
func.func @matmul(%a: tensor<?x?xbf16>, %b: tensor<?x?xbf16>) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %a, %c0 : tensor<?x?xbf16>
  %n = tensor.dim %b, %c1 : tensor<?x?xbf16>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %r = linalg.matmul ins(%a, %b : tensor<?x?xbf16>, tensor<?x?xbf16>) outs(%f : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
}
func.func @attention(%q: tensor<?x?x128xbf16>, %k: tensor<?x?x128xbf16>, %v: tensor<?x?x80xbf16>) -> tensor<?x?x80xbf16> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
    : (tensor<?x?x128xbf16>, tensor<?x?x128xbf16>, tensor<?x?x80xbf16>) -> tensor<?x?x80xbf16>
  return %o : tensor<?x?x80xbf16>
}
func.func @causal(%q: tensor<?x?x128xbf16>, %k: tensor<?x?x128xbf16>, %v: tensor<?x?x80xbf16>) -> tensor<?x?x80xbf16> {
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] mask causal<bottom_right>
    : (tensor<?x?x128xbf16>, tensor<?x?x128xbf16>, tensor<?x?x80xbf16>) -> tensor<?x?x80xbf16>
  return %o : tensor<?x?x80xbf16>
}
func.func @decoding(%q: tensor<?x32x?x128xbf16>, %k: tensor<?x1x?x128xbf16>, %v: tensor<?x1x?x128xbf16>) -> tensor<?x32x?x128xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x32x?x128xbf16>, tensor<?x1x?x128xbf16>, tensor<?x1x?x128xbf16>) -> tensor<?x32x?x128xbf16>
  return %o : tensor<?x32x?x128xbf16>
}
"""
# The same attention and a matmul with a result of f16.
F16_PROGRAM = re.sub(r"func.func @decoding.*?\n}\n", "", PROGRAM, flags=re.S).replace("bf16", "f16").replace("f32", "f16")
SIZE = 16  # rows of a register, and pairs of a row
CHAIN, PART, TILE = 512, 128, 512  # k-packs of the first parts of a matmul, and of a part; keys of a tile


def ceil(count, unit):
    return -(-count // unit)


def block_of(rows, columns, steps):
    """Products and loads of a matrix in blocks of 2 × 2 registers, and its accumulators."""
    heights, widths = ceil(rows, SIZE), ceil(columns, SIZE)
    loads = 0
    for height in [2] * (heights // 2) + [1] * (heights % 2):
        for width in [2] * (widths // 2) + [1] * (widths % 2):
            loads += (height + width) * steps
    return heights * widths * steps, loads, heights * widths


def matmul(m, k, n):
    n = ceil(n, 2 * SIZE) * 2 * SIZE  # columns of whole panels
    is_packed = m > 192  # before the tasks; sums then start from 0, else from the result
    pairs = ceil(k, 2)
    products, loads, accumulators = block_of(m, n, ceil(pairs, SIZE))
    parts, chained = ceil(pairs, PART), ceil(min(pairs, CHAIN), PART)
    loaded = chained - is_packed
    return {"tdpbf16ps": products, "tileloadd": loads + loaded * accumulators, "tilestored": parts * accumulators,
            "tilezero": (parts - loaded) * accumulators}  # fmt: skip


def attention(queries, keys, is_causal=False, qk=128, v=80):
    """Groups of 32 queries with the keys that one of them attends to, in tiles of keys."""
    total = {"tdpbf16ps": 0, "tileloadd": 0, "tilestored": 0, "tilezero": 0}
    for first in range(0, queries, 2 * SIZE):
        rows = min(2 * SIZE, queries - first)
        visible = keys - queries + first + rows if is_causal else keys
        for begin in range(0, visible, TILE):
            count = min(TILE, visible - begin)
            for products, loads, accumulators in (block_of(rows, count, ceil(qk, 2 * SIZE)),
                                                  block_of(rows, v, ceil(count, 2 * SIZE))):  # fmt: skip
                total["tdpbf16ps"] += products
                total["tileloadd"] += loads
                total["tilestored"] += accumulators
                total["tilezero"] += accumulators
    return total


def matmul_f16(m, k, n):
    """Operands are padded to whole steps of 32 elements, and parts have half as many."""
    total = matmul(m, 2 * ceil(k, 2 * SIZE) * 2 * SIZE, n)  # of a matmul of pairs with as many k-packs as places
    steps = ceil(k, 2 * SIZE)
    n = ceil(n, 2 * SIZE) * 2 * SIZE
    whole = block_of(m, n, 2 * steps)
    products, loads, _ = block_of(m, n, steps)
    return total | {"tdpbf16ps": 3 * products, "tileloadd": total["tileloadd"] - whole[1] + 2 * loads}


def attention_f16(queries, keys, is_causal=False, qk=128):
    """Both parts of an operand are loaded once, and lower parts of queries twice: scores have four products."""
    total = attention(queries, keys, is_causal=is_causal)
    products = loads = 0
    for first in range(0, queries, 2 * SIZE):
        rows = min(2 * SIZE, queries - first)
        visible = keys - queries + first + rows if is_causal else keys
        steps = ceil(qk, 2 * SIZE)
        loads += ceil(rows, SIZE) * ceil(visible, 2 * SIZE) * steps
        products += ceil(rows, SIZE) * ceil(visible, SIZE) * steps
    return total | {"tdpbf16ps": 3 * total["tdpbf16ps"] + products, "tileloadd": 2 * total["tileloadd"] + loads}


def decoding(rows, keys, head=128):
    """Scores of blocks of 32 keys are keys × queries, values add to accumulators in memory, 64 keys at once."""
    scores, scores_loads, scores_tiles = block_of(2 * SIZE, rows, head // (2 * SIZE))
    blocks = keys // 32
    values, values_loads, values_tiles = block_of(rows, head, 2 if head <= 128 else 1)
    return {"tdpbf16ps": blocks * scores + keys // 64 * values, "tileloadd": blocks * scores_loads + keys // 64 * (values_loads + values_tiles),
            "tilestored": blocks * scores_tiles + keys // 64 * values_tiles, "tilezero": blocks * scores_tiles}  # fmt: skip


def tensors(entry, sizes):
    if entry == "matmul":
        m, k, n = sizes
        return f"{m}x{k}", f"{k}x{n}"
    rows, keys = sizes
    if entry == "decoding":
        return "1x32x1x128", f"1x1x{keys}x128", f"1x1x{keys}x128"
    return f"1x{rows}x128", f"1x{keys}x128", f"1x{keys}x80"


def executed(entry, sizes, runner, element, program):
    arguments = [f"--arg={tensor}:{element}:{i}" for i, tensor in enumerate(tensors(entry, sizes))]
    done = subprocess.run(["saccade-run", "-", "--target=v4-amx", f"--entry={entry}", "--threads=1", "--out=/dev/null", runner, *arguments],
                          input=program, check=True, text=True, stderr=subprocess.PIPE)  # fmt: skip
    words = re.search(r"tile instructions: (.*) partial 0", done.stderr)[1].split()
    return dict(zip(words[::2], map(int, words[1::2])))


CASES = [
    (matmul, "matmul", "bf16", [(64, 256, 64), (48, 256, 96), (33, 100, 40), (64, 4096, 64), (192, 768, 768), (400, 768, 256), (1, 1, 1)]),
    (attention, "attention", "bf16", [(512, 512), (64, 1024), (37, 71), (16, 2000)]),
    (lambda *sizes: attention(*sizes, is_causal=True), "causal", "bf16", [(512, 512), (64, 64), (128, 700)]),
    (matmul_f16, "matmul", "f16", [(64, 256, 64), (48, 256, 96), (33, 100, 40), (64, 4096, 64), (192, 768, 768), (400, 768, 256), (1, 1, 1)]),
    (attention_f16, "attention", "f16", [(512, 512), (64, 1024), (37, 71), (16, 2000)]),
    (lambda *sizes: attention_f16(*sizes, is_causal=True), "causal", "f16", [(512, 512), (64, 64), (128, 700)]),
    (decoding, "decoding", "bf16", [(32, 64), (32, 512), (32, 2048)]),
]  # fmt: skip

failures = 0
for model, entry, element, calls in CASES:
    for sizes in calls:
        program = F16_PROGRAM if element == "f16" else PROGRAM
        found = executed(entry, sizes, shlex.split(sys.argv[1])[0], element, program)
        ideal = model(*sizes)
        ideal = {name: count for name, count in ideal.items() if count}
        tasks = found.pop("ldtilecfg")
        is_equal = found.pop("tilerelease") == tasks and found == ideal
        failures += not is_equal
        print(f"{element} {entry} {sizes}: {tasks} tasks, {found}" + ("" if is_equal else f", expected {ideal}"))
sys.exit(failures != 0)
