"""Overhead of a call from Python and from C, alone and interleaved with PyTorch's kernels.

All cases run in this process, one after the other in every round. Each figure is a median over rounds.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TINY, HEADS, LENGTH, DEPTH = (1, 1, 8, 16), 8, 256, 64

PROGRAM = """func.func @attention(%q: tensor<?x?x?x{depth}xf32>, %k: tensor<?x?x?x{depth}xf32>, %v: tensor<?x?x?x{depth}xf32>)
    -> tensor<?x?x?x{depth}xf32> {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]
    : (tensor<?x?x?x{depth}xf32>, tensor<?x?x?x{depth}xf32>, tensor<?x?x?x{depth}xf32>) -> tensor<?x?x?x{depth}xf32>
  return %o : tensor<?x?x?x{depth}xf32>
}}
"""

NOOP = "int __tvm_ffi_nothing(void *self, const void *args, int n, void *result) { return 0; }\n"


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the tools")
    options = parser.parse_args()
    options.rounds = 5 if options.quick else options.rounds
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def microseconds(call, seconds=0.02):
    """Microseconds of a call, the mean of as many calls as fit into `seconds`."""
    start = time.perf_counter()
    call()
    count = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count * 1e6


def in_rounds(calls, rounds):
    """Median microseconds of each named call; every round runs each of them."""
    times = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            times[name].append(microseconds(call))
    return {name: statistics.median(values) for name, values in times.items()}


def import_milliseconds(rounds):
    """Median milliseconds of (a bare interpreter, an interpreter that imports saccade)."""
    def run(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - start) * 1e3

    pairs = [(run("pass"), run("import saccade")) for _ in range(rounds)]
    return tuple(statistics.median(column) for column in zip(*pairs))


def empty_function(options):
    """An empty TVM-FFI function, which measures the call alone."""
    import tvm_ffi

    sys.path.insert(0, str(ROOT / "benchmarks"))
    from saccade_bench import artifact

    folder = options.out / "artifacts"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nothing.c").write_text(NOOP)
    library = folder / "nothing.so"
    artifact.run([*artifact.toolchain(options.build), "-x", "c", "-O2", "-fPIC", "-shared", folder / "nothing.c", "-o", library])
    return tvm_ffi.load_module(str(library)).nothing


def overhead(options):
    """Median microseconds of a warm call on a tiny problem, by call path."""
    import numpy as np
    import torch

    import saccade.torch

    query, key, value = (torch.randn(TINY) for _ in range(3))
    out = torch.empty_like(query)
    arrays = [tensor.numpy() for tensor in (query, key, value)]
    compiled = saccade.compile(PROGRAM.format(depth=TINY[-1])).attention
    direct, empty = compiled.tvm_ffi, empty_function(options)
    one, one_out = query[:, :, :1], out[:, :, :1]
    slope = torch.tensor([0.5])

    def with_score():
        # A new function object in each call, as in a model's forward method.
        return saccade.attention(query, key, value, score=lambda s, b, h, i, j: s + slope[h] * (j - i), causal="top_left")

    calls = {
        "an empty TVM-FFI function, 4 torch tensors": lambda: empty(query, key, value, out),
        "compiled function object (TVM-FFI), 4 torch tensors": lambda: direct(query, key, value, out),
        "compiled function object (TVM-FFI), one query": lambda: direct(one, key, value, one_out),
        "torch.empty_like": lambda: torch.empty_like(query),
        "module.attention(q, k, v), torch": lambda: compiled(query, key, value),
        "saccade.attention(q, k, v), torch": lambda: saccade.attention(query, key, value),
        "saccade.attention(..., score=lambda with a captured table, causal), torch": with_score,
        "saccade.attention(q, k, v), NumPy": lambda: saccade.attention(*arrays),
        "saccade.torch.scaled_dot_product_attention": lambda: saccade.torch.scaled_dot_product_attention(query, key, value),
        "torch scaled_dot_product_attention": lambda: torch.nn.functional.scaled_dot_product_attention(query, key, value),
    }
    torch.set_num_threads(options.threads)
    assert np.allclose(saccade.attention(*arrays), out) or direct(query, key, value, out) is None
    with torch.inference_mode():
        return in_rounds(calls, options.rounds)


def compiled_overhead(options):
    """Median microseconds of functions of 1 and 8 calls that torch.compile has compiled, by function called."""
    import torch

    import saccade.torch

    torch.set_num_threads(options.threads)
    query, key, value = (torch.randn(TINY) for _ in range(3))

    def repeated(attend, count):
        def model(query, key, value):
            for _ in range(count):
                query = attend(query, key, value)
            return query

        compiled = torch.compile(model, fullgraph=True)
        return lambda: compiled(query, key, value)

    functions = {"saccade.torch": saccade.torch.scaled_dot_product_attention,
                 "torch": torch.nn.functional.scaled_dot_product_attention}  # fmt: skip
    with torch.no_grad():
        return in_rounds({f"torch.compile, {count} × {name} scaled_dot_product_attention": repeated(attend, count)
                          for count in (1, 8) for name, attend in functions.items()}, options.rounds)  # fmt: skip


def interleaved(options):
    """Rows (kernel, alone, interleaved, loss %, loss % of the interleaved GEMM): median microseconds of a call."""
    import torch

    import saccade

    torch.set_num_threads(options.threads)
    lhs, rhs, out = torch.randn(256, 256), torch.randn(256, 256), torch.empty(256, 256)
    values, results = torch.rand(40_000), torch.empty(40_000)
    attend = saccade.compile(PROGRAM.format(depth=DEPTH)).attention.tvm_ffi

    def attention(heads, length):
        query, key, value, out = (torch.randn(1, heads, length, DEPTH) for _ in range(4))
        return f"attention 1×{heads}×{length}×{DEPTH}", lambda: attend(query, key, value, out)

    kernels = [attention(HEADS, LENGTH), attention(2, 64),
               ("PyTorch's own exp of 40,000 elements", lambda: torch.exp(values, out=results))]  # fmt: skip
    matmul = lambda: torch.mm(lhs, rhs, out=out)

    def timed(call):
        start = time.perf_counter()
        call()
        return (time.perf_counter() - start) * 1e6

    def medians(*calls, count=60):
        """Median microseconds of each call when they are interleaved."""
        samples = [[timed(call) for call in calls] for _ in range(count)]
        return [statistics.median(column) for column in zip(*samples)]

    rows = []
    for name, kernel in kernels:
        found = [(*medians(kernel), *medians(matmul), *medians(kernel, matmul)) for _ in range(options.rounds * 2)]
        loss = lambda before, after: statistics.median((row[after] / row[before] - 1) * 100 for row in found)
        alone, mixed = (statistics.median(row[column] for row in found) for column in (0, 2))
        rows.append([name, f"{alone:.1f}", f"{mixed:.1f}", f"{loss(0, 2):+.1f}", f"{loss(1, 3):+.1f}"])
    return rows


def markdown(options):
    import torch

    from saccade_bench import threads
    from saccade_bench.report import processor, table

    bare, importing = import_milliseconds(options.rounds)
    split = overhead(options) | compiled_overhead(options)
    rows = interleaved(options)
    calibrated = threads.measure(options.build, options.threads, options.rounds)
    shape = "×".join(map(str, TINY))
    parts = [
        f"{processor()}; {options.threads} threads; torch {torch.__version__}. Medians of {options.rounds} rounds.\n",
        f"`import saccade` takes {importing - bare:.0f} ms (a bare interpreter {bare:.0f} ms, with the import {importing:.0f} ms).\n",
        f"A warm call on {shape} f32:\n",
        table(["call path", "µs"], [[name, f"{value:.2f}"] for name, value in split.items()]),
        "Interleaved with a 256×256×256 GEMM of PyTorch (the last row is PyTorch alone, for comparison):\n",
        table(["kernel", "alone µs", "interleaved µs", "loss %", "loss % of the GEMM"], rows),
        "A task of known serial cost on PyTorch's thread pool, interleaved with a GEMM and an addition of PyTorch:\n",
        "\n".join([threads.HEADER, *map(str, calibrated)]) + "\n",
    ]
    return "\n".join(parts)


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    from saccade_bench.report import publish

    publish(markdown(options), "calls", options)


if __name__ == "__main__":
    main()
