"""Time of the first use of a program in a fresh process: compiled, and read from the disk cache.

`first call` is `saccade.attention`, or `saccade.compile` of a program of examples/. It excludes the start of Python,
imports and the loading of the compiler's library, which `process` includes. Each figure is a median over processes.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def measure(what, use_torch):
    """In the fresh process: prints the seconds of the first use, and whether anything was compiled."""
    import numpy as np

    import saccade
    import saccade.regions.numpy_trace

    q, k, v = np.random.default_rng(1).standard_normal((3, 1, 8, 16, 64)).astype(np.float32)
    slopes = np.ones(8, np.float32)
    if use_torch:
        import torch
        import tvm_ffi

        import saccade.regions.torch_trace

        assert tvm_ffi  # which the first call with torch tensors would import

        q, k, v, slopes = (torch.from_numpy(x) for x in (q, k, v, slopes))
    saccade.num_threads()  # loads the library
    start = time.perf_counter()
    if what == "attention":
        saccade.attention(q, k, v, causal="bottom_right")
    elif what == "attention with a score function":
        saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i), causal="bottom_right")
    else:
        saccade.compile(ROOT / "examples" / what)
    print(json.dumps({"seconds": time.perf_counter() - start, "compilations": saccade.cache_info().compilations}))


def in_process(what, options, cache):
    """(milliseconds of the first use, milliseconds of the process, compilations)."""
    variables = {**os.environ, "PYTHONPATH": str(options.build / "python"), "SACCADE_CACHE": cache}
    start = time.perf_counter()
    line = [sys.executable, __file__, "--measure", what, *["--torch"] * options.torch]
    done = subprocess.run(line, env=variables, capture_output=True, text=True)
    process = time.perf_counter() - start
    if done.returncode != 0:
        sys.exit(done.stderr)
    found = json.loads(done.stdout)
    return found["seconds"] * 1e3, process * 1e3, found["compilations"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15, help="processes for each figure")
    parser.add_argument("--quick", action="store_true", help="five rounds")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    parser.add_argument("--torch", action="store_true", help="call with torch tensors; default: NumPy arrays")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("programs", nargs="*", help='"attention" or the name of an example; default: all')
    options = parser.parse_args()
    if options.measure:
        return measure(options.measure, options.torch)
    options.build = options.build.resolve()
    rounds = 5 if options.quick else options.rounds
    names = options.programs or ["attention", "attention with a score function",
                                 *sorted(path.name for path in (ROOT / "examples").glob("*.mlir"))]  # fmt: skip
    print("| program | compiled: first call | process | from disk: first call (min) | process |\n|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="saccade-") as cache:
        for name in names:
            cold = [in_process(name, options, "0") for _ in range(min(rounds, 3))]
            in_process(name, options, cache)
            warm = [in_process(name, options, cache) for _ in range(rounds)]
            if any(compilations for *_, compilations in warm):
                sys.exit(f"{name} was compiled again")
            (cold_call, cold_process, _), (call, process, _) = (map(statistics.median, zip(*runs)) for runs in (cold, warm))
            print(f"| {name} | {cold_call:.0f} ms | {cold_process:.0f} ms | {call:.1f} ms ({min(warm)[0]:.1f}) "
                  f"| {process:.0f} ms |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
