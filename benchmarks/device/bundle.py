"""Bundles libraries, inputs and expected results, to check and time this build on another machine with a GPU.

There, `python device.py --out DIR` in the bundle runs everything. It needs neither LLVM nor this repository nor NumPy.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import math
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from saccade_device import instructions
from saccade_device.memory import DriverMemory

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 60 << 20
# Maximum relative error in norm; inputs, softmax weights and outputs are rounded to the type.
ALLOWED = {"f32": 2e-5, "f16": 2e-3, "bf16": 1e-2}

ALIBI = """ captures(%slope : tensor<?xf32>) score(%s, %b, %h, %i, %j, %sl) {
      %m = tensor.extract %sl[%h] : tensor<?xf32>
      %d = arith.subi %j, %i : index
      %d32 = arith.index_cast %d : index to i32
      %df = arith.sitofp %d32 : i32 to f32
      %bias = arith.mulf %m, %df : f32
      %r = arith.addf %s, %bias : f32
      attn.yield %r : f32
    }"""
SOFTCAP = """ score(%s, %b, %h, %i, %j) {
      %cap = arith.constant 20.0 : f32
      %x = arith.divf %s, %cap : f32
      %t = math.tanh %x : f32
      %r = arith.mulf %t, %cap : f32
      attn.yield %r : f32
    }"""
MASKS = {"full": "", "causal": " mask causal<bottom_right>", "window": " mask causal<bottom_right> mask window<31, *>",
         "alibi": ALIBI, "softcap": SOFTCAP}
# f32 programs with several kernels: file, entry, shapes of the arguments.
PROGRAMS = [("multi-head", "multi_head_attention", [(2, 9, 512)] + 4 * [(512, 512), (512,)]),
            ("multi-head-fused-qkv", "fused_projection", [(2, 9, 512), (1536, 512), (1536,), (512, 512), (512,)])]


@dataclasses.dataclass(frozen=True)
class Kind:
    """One attention program; all sizes are dynamic except head_dim."""

    dtype: str
    depth: int
    mask: str = "full"
    lse: bool = False
    gradient: bool = False  # also the entry @attend_gradient
    paged: bool = False  # keys and values are in pages of any size

    @property
    def name(self):
        parts = [self.dtype, f"d{self.depth}", self.mask]
        return "_".join(parts + [part for part in ("lse", "gradient", "paged") if getattr(self, part)])

    def program(self):
        if self.paged:
            return self.paged_program()
        tensor = f"tensor<?x?x?x{self.depth}x{self.dtype}>"
        slope, argument = ("tensor<?xf32>", ", %slope: tensor<?xf32>") if self.mask == "alibi" else ("", "")
        results = [tensor] + ["tensor<?x?x?xf32>"] * self.lse
        assert not (slope and self.lse)
        return (f"func.func @attend(%q: {tensor}, %k: {tensor}, %v: {tensor}{argument}) -> ({', '.join(results)})"
                f"{' attributes {attn.gradient}' * self.gradient} {{\n"
                f"  {', '.join(['%o', '%l'][:len(results)])} = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]"
                f"{MASKS[self.mask]}{' lse' * self.lse} : ({tensor}, {tensor}, {tensor}) -> ({', '.join(results)})\n"
                f"  return {', '.join(['%o', '%l'][:len(results)])} : {', '.join(results)}\n}}\n")

    def paged_program(self):
        tensor, table = f"tensor<?x?x?x{self.depth}x{self.dtype}>", "tensor<?x?xi32>"
        pages = "".join(f"  %{x} = attn.paged %{x}p[b,h,s,d], %table : {tensor}, {table} -> {tensor}\n" for x in "kv")
        return (f"func.func @attend(%q: {tensor}, %kp: {tensor}, %vp: {tensor}, %table: {table}) -> {tensor} {{\n{pages}"
                f"  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]{MASKS[self.mask]}"
                f" : ({tensor}, {tensor}, {tensor}) -> {tensor}\n  return %o : {tensor}\n}}\n")


@dataclasses.dataclass(frozen=True)
class Case:
    """One check: a kind with sizes."""

    kind: Kind
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    page: int = 0  # positions of a page

    @property
    def name(self):
        heads = f"{self.heads}({self.kv_heads})" if self.heads != self.kv_heads else str(self.heads)
        pages = f", pages of {self.page}" if self.page else ""
        return f"{self.kind.name} {self.batch}x{heads}x{self.queries}x{self.keys}{pages}"


def cases(tiny):
    """Head dimensions, types, masks, partial tiles, one query, many chunks of keys, fully masked rows, grouped heads;
    gradients."""
    for dtype in ("f16", "bf16", "f32"):
        for depth in (64,) if tiny or dtype == "f32" else (64, 128, 80):
            yield Case(Kind(dtype, depth), 1, 2, 1, 37, 50)
            if tiny:
                continue
            yield Case(Kind(dtype, depth, "causal", lse=True), 2, 4, 2, 131, 197)
            yield Case(Kind(dtype, depth, "causal", lse=True), 1, 2, 2, 70, 40)
            yield Case(Kind(dtype, depth, "window"), 1, 2, 2, 150, 150)
            yield Case(Kind(dtype, depth, "alibi"), 1, 4, 2, 65, 129)
            yield Case(Kind(dtype, depth, "softcap"), 1, 4, 2, 65, 129)
            yield Case(Kind(dtype, depth), 2, 4, 4, 1, 300)
            yield Case(Kind(dtype, depth), 1, 1, 1, 256, 192)
    if not tiny:
        yield Case(Kind("bf16", 128), 1, 4, 1, 1, 2500)
    for dtype, depth in () if tiny else (("bf16", 128), ("f32", 64)):
        for queries, page in ((1, 16), (1, 1), (70, 16)):
            yield Case(Kind(dtype, depth, "causal", paged=True), 2, 4, 2, queries, 272, page)
    for dtype, depth in () if tiny else (("f16", 64), ("bf16", 64), ("bf16", 128), ("f32", 64)):
        yield Case(Kind(dtype, depth, "causal", gradient=True), 1, 4, 2, 131, 197)
        yield Case(Kind(dtype, depth, "causal", gradient=True), 2, 2, 2, 70, 40)


def benchmark_rows(tiny):
    """16,384 tokens and a width of 2,048, as in the FlashAttention papers; then decode with long KV, and gradients."""
    for dtype, depth, mask in [("bf16", 128, "causal"), ("bf16", 128, "full"), ("bf16", 64, "causal"),
                               ("bf16", 64, "full"), ("f16", 128, "causal")]:
        for length in (512,) if tiny else (1024, 4096, 16384, 512, 2048, 8192):
            yield Kind(dtype, depth, mask), 16384 // length, 2048 // depth, 2048 // depth, length, length
    if tiny:
        return
    for batch, length in ((8, 4096), (32, 4096), (1, 4096), (1, 32768)):
        yield Kind("bf16", 128), batch, 32, 8, 1, length
    for page in (16, 1, 64):
        yield Kind("bf16", 128, paged=True), 8, 32, 8, 1, 4096, page
    yield Kind("bf16", 128, "causal"), 2, 32, 8, 4096, 4096
    for depth in (128, 64):
        for mask, length in (("causal", 4096), ("full", 4096), ("causal", 1024), ("causal", 16384)):
            yield Kind("bf16", depth, mask, gradient=True), 16384 // length, 2048 // depth, 2048 // depth, length, length


def encode(dtype, array):
    """The bytes of an array rounded to a type, and the rounded values in float64."""
    if dtype == "bf16":
        bits = array.astype(np.float32).view(np.uint32)
        halves = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
        return halves.tobytes(), (halves.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    rounded = array.astype({"f16": np.float16, "f32": np.float32, "i32": np.int32}[dtype])
    return rounded.tobytes(), rounded.astype(np.float64)


def in_pages(array, table, page):
    """A pool with the positions of a tensor [b, h, s, d]; page i of sequence n is page table[n, i] of the pool."""
    batch, heads, _, depth = array.shape
    pages = array.reshape(batch, heads, -1, page, depth).swapaxes(1, 2)
    pool = np.empty((table.size, heads, page, depth))
    pool[table.reshape(-1)] = pages.reshape(pool.shape)
    return pool


def masked_scores(case, q, keys, slope=None):
    """Scores in float64, those of hidden keys -inf; `keys` has the heads of q."""
    scores = q @ keys.swapaxes(-1, -2) / math.sqrt(case.kind.depth)
    i, j = np.arange(case.queries)[:, None], np.arange(case.keys)[None]
    if case.kind.mask == "alibi":
        scores = scores + slope[:, None, None] * (j - i)
    if case.kind.mask == "softcap":
        scores = 20 * np.tanh(scores / 20)
    hidden = np.zeros((case.queries, case.keys), bool)
    if case.kind.mask in ("causal", "window"):
        hidden |= j > i + case.keys - case.queries
    if case.kind.mask == "window":
        hidden |= j < i - 31
    scores[..., hidden] = -np.inf
    return scores


def gradients(case, q, k, v, output, lse, output_gradient):
    """Gradients of queries, keys and values in float64 (FlashAttention-2, algorithm 2)."""
    group, scale = case.heads // case.kv_heads, 1 / math.sqrt(case.kind.depth)
    keys, values = (np.repeat(x, group, axis=1) for x in (k, v))
    weights = np.exp(masked_scores(case, q, keys) - np.where(np.isfinite(lse), lse, 0)[..., None])
    delta = (output_gradient * output).sum(axis=-1, keepdims=True)
    score_gradient = weights * (output_gradient @ values.swapaxes(-1, -2) - delta) * scale

    def of_group(x):
        return x.reshape(case.batch, case.kv_heads, group, *x.shape[2:]).sum(axis=2)

    return (score_gradient @ keys, of_group(score_gradient.swapaxes(-1, -2) @ q),
            of_group(weights.swapaxes(-1, -2) @ output_gradient))


def reference(case, q, k, v, slope):
    """Output and log-sum-exp in float64."""
    k, v = (np.repeat(x, case.heads // case.kv_heads, axis=1) for x in (k, v))
    scores = masked_scores(case, q, k, slope)
    row_max = np.maximum(scores.max(axis=-1, keepdims=True), -1e30)
    weights = np.exp(scores - row_max)
    row_sum = weights.sum(axis=-1, keepdims=True)
    with np.errstate(divide="ignore"):
        return weights / np.maximum(row_sum, 1e-300) @ v, (np.log(row_sum) + row_max)[..., 0]


def bundle_case(case, number, folder):
    """Writes inputs and expected outputs of a case; its entry of the manifest."""
    rng = np.random.default_rng(number)
    kind, entries, values = case.kind, [], []
    shapes = [(case.batch, heads, rows, kind.depth) for heads, rows in
              ((case.heads, case.queries), (case.kv_heads, case.keys), (case.kv_heads, case.keys))]
    inputs = [(name, kind.dtype, rng.standard_normal(shape)) for name, shape in zip("qkv", shapes)]
    if kind.mask == "alibi":
        inputs.append(("slope", "f32", 2.0 ** -np.arange(1, case.heads + 1)))

    def add_input(name, dtype, array):
        content, value = encode(dtype, array)
        file = f"case-{number}-{name}.bin"
        (folder / file).write_bytes(content)
        entries.append({"file": file, "dtype": dtype, "shape": list(array.shape)})
        values.append(value)

    for each in inputs:
        add_input(*each)
    output, lse = reference(case, *values[:3], values[3] if len(values) > 3 else None)
    if kind.paged:
        entries[1:], values[1:] = [], []
        table = rng.permutation(case.batch * case.keys // case.page).reshape(case.batch, -1)
        for name, _, array in inputs[1:]:
            add_input(name, kind.dtype, in_pages(array, table, case.page))
        add_input("table", "i32", table)
    results = [("output", kind.dtype, output, ALLOWED[kind.dtype])] + [("lse", "f32", lse, 1e-5)] * kind.lse
    if kind.gradient:
        add_input("output", kind.dtype, output)
        add_input("lse", "f32", lse)
        add_input("output_gradient", kind.dtype, rng.standard_normal(output.shape))
        results = [(f"{name}_gradient", kind.dtype, array, 3 * ALLOWED[kind.dtype])
                   for name, array in zip("qkv", gradients(case, *values))]
    outputs = []
    for name, dtype, array, allowed in results:
        file = f"case-{number}-{name}-expected.bin"
        (folder / file).write_bytes(array.astype("<f4").tobytes())
        outputs.append({"name": name, "expected": file, "dtype": dtype, "shape": list(array.shape), "allowed": allowed})
    entry = "attend_gradient" if kind.gradient else "attend"
    return {"name": case.name, "artifact": f"{kind.name}.so", "entry": entry, "inputs": entries, "outputs": outputs}


def bundle_program(name, entry, shapes, folder, bin, target):
    """The same for an example program, whose expected results come from the CPU."""
    source, rng = HERE.parents[1] / "examples" / f"{name}.mlir", np.random.default_rng(len(name))
    compile_library(source, folder / f"{name}.so", bin, target)
    arguments, entries = [], []
    for i, shape in enumerate(shapes):
        # The scale of the weights keeps attention scores near 1.
        array = (rng.standard_normal(shape) * (1 if i == 0 else 0.05)).astype(np.float32)
        file = folder / f"{name}-{i}.npy"
        np.save(file, array)
        arguments.append(f"--arg={file}")
        (folder / f"{name}-{i}.bin").write_bytes(array.tobytes())
        entries.append({"file": f"{name}-{i}.bin", "dtype": "f32", "shape": list(shape)})
    out = folder / f"{name}-out.npy"
    subprocess.run([bin / "saccade-run", source, f"--entry={entry}", *arguments, f"--out={out}"], check=True)
    expected = np.load(out)
    (folder / f"{name}-output.bin").write_bytes(expected.astype("<f4").tobytes())
    for file in folder.glob(f"{name}-*.npy"):
        file.unlink()
    output = {"name": "output", "expected": f"{name}-output.bin", "dtype": "f32", "shape": list(expected.shape),
              "allowed": ALLOWED["f32"]}
    return {"name": name, "artifact": f"{name}.so", "entry": entry, "inputs": entries, "outputs": [output]}


def bundle_row(kind, batch, heads, kv_heads, queries, keys, page=0):
    grouped, longer = f"({kv_heads})" if heads != kv_heads else "", f"x{keys}" if keys != queries else ""
    what = "gradient " if kind.gradient else f"pages of {page} " if page else ""
    return {"name": f"{kind.dtype} d{kind.depth} {kind.mask} {what}{batch}x{heads}{grouped}x{queries}{longer}",
            "artifact": f"{kind.name}.so", "gradient": kind.gradient, "page": page,
            "contiguous": f"{dataclasses.replace(kind, paged=False).name}.so", "dtype": kind.dtype, "depth": kind.depth,
            "mask": kind.mask, "batch": batch, "heads": heads, "kv_heads": kv_heads, "queries": queries, "keys": keys}


def compile_library(source, library, bin, target):
    """Compiles a library; whether it contains machine code (not PTX only)."""
    done = subprocess.run([bin / "saccade-compile", source, "--emit=so", f"--target={target}", "-o", library],
                          capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bundle.py: {source}: {done.stderr}")
    library.with_suffix(".h").unlink()
    return "PTX only" not in done.stderr


def compile_kind(kind, folder, bin, target):
    source = folder / f"{kind.name}.mlir"
    source.write_text(kind.program())
    has_code = compile_library(source, source.with_suffix(".so"), bin, target)
    source.unlink()
    return has_code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build tree")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output folder; its previous contents are deleted")
    parser.add_argument("--target", default="sm_80", help="GPU targets, as for saccade-compile --target")
    parser.add_argument("--tiny", action="store_true", help="a few cases only, for tests")
    options = parser.parse_args()
    folder, bin = options.out.resolve(), options.build.resolve() / "bin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    checks = [bundle_case(case, number, folder) for number, case in enumerate(cases(options.tiny))]
    rows = [bundle_row(*row) for row in benchmark_rows(options.tiny)]
    kinds = {case.kind.name: case.kind for case in cases(options.tiny)}
    for kind, *_ in benchmark_rows(options.tiny):
        kinds.setdefault(kind.name, kind)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        cubins = list(pool.map(lambda kind: compile_kind(kind, folder, bin, options.target), kinds.values()))

    checks += [bundle_program(*program, folder, bin, options.target) for program in PROGRAMS[:1 if options.tiny else None]]

    # The simulator computes the expected results through the CUDA driver double of the tests.
    instructions.record(DriverMemory(str(options.build.resolve() / "test/Support/FakeCUDA/libcuda.so.1")), folder)

    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    manifest = {"commit": commit.stdout.strip() or "unknown commit", "target": options.target, "cubin": all(cubins),
                "checks": checks, "benchmark": rows}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    shutil.copy(HERE / "device.py", folder)
    shutil.copytree(HERE / "saccade_device", folder / "saccade_device", ignore=shutil.ignore_patterns("__pycache__"))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    print(f"{folder}: {len(kinds)} libraries, {len(checks)} checks, {len(rows)} benchmark rows, "
          f"{size / 2**20:.1f} MiB")
    return 1 if size > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
