"""Cost of interleaving PyTorch operations with tasks of the Saccade runtime on the same thread pool.

`python -m saccade_bench.threads --build TREE` in this folder's parent prints a table. PyTorch runs a 256 x 256 GEMM and
an addition of 256 k elements; the runtime runs a task of known serial cost. Every round measures each side alone and
both interleaved, so that other load on the machine disturbs all of them alike. The rows with one thread show the cost
of interleaving without the thread pool, e.g. cache misses.
"""

import argparse
import ctypes
import dataclasses
import os
import pathlib
import statistics
import tempfile
import time

from .artifact import run, toolchain

COSTS = (20, 200)  # microseconds on one thread


@dataclasses.dataclass
class Result:
    """Microseconds of a call, medians over rounds; `loss` is relative within a round: (ours, PyTorch's), 0.05 is 5 %."""

    cost: int
    threads: int  # of our task; PyTorch always uses --threads
    ours: tuple[float, float]  # alone, interleaved
    torch: tuple[float, float]
    loss: tuple[float, float]

    def __str__(self):
        return (f"| {self.cost} | {self.threads} | "
                f"{self.ours[0]:.1f} / {self.ours[1]:.1f} | {100 * self.loss[0]:+.1f} % | "
                f"{self.torch[0]:.1f} / {self.torch[1]:.1f} | {100 * self.loss[1]:+.1f} % |")


HEADER = """| serial cost (us) | our threads | ours alone / interleaved (us) | loss | PyTorch alone / interleaved | loss |
|---|---|---|---|---|---|"""


def load_kernel(build, folder):
    """Builds threads.c with the runtime into a shared library, as in compiled artifacts."""
    library = pathlib.Path(folder) / "threads.so"
    compiler, *flags = toolchain(build)
    source = pathlib.Path(__file__).with_name("threads.c")
    root = source.parent.parent.parent
    run([compiler.replace("clang++", "clang"), *flags, "-O2", "-fPIC", "-shared", "-I", root / "include", source,
         "-Wl,--whole-archive", build / "lib" / "libSaccadeRuntime.a", "-Wl,--no-whole-archive", "-o", library])
    loaded = ctypes.CDLL(str(library))
    loaded.kernel.argtypes, loaded.kernel.restype = [ctypes.c_int64], ctypes.c_double
    return loaded


def calibrate(kernel, microseconds):
    """Iterations per item such that the task takes `microseconds` on one thread."""
    iterations = 100_000
    kernel(iterations)
    seconds = min(timed(kernel, iterations) for _ in range(20))
    return max(1, round(iterations * microseconds * 1e-6 / seconds))


def timed(call, *arguments):
    start = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - start


def measure(build, threads=2, rounds=20, calls=50):
    """Results for each of COSTS, on one thread and on all."""
    import torch

    torch.set_num_threads(threads)
    matrix, result = torch.randn(256, 256), torch.empty(256, 256)
    vector, total = torch.randn(1 << 18), torch.empty(1 << 18)

    def operation():
        torch.mm(matrix, matrix, out=result)
        torch.add(vector, vector, out=total)

    with tempfile.TemporaryDirectory() as folder:
        library = load_kernel(build, folder)
    assert library.saccade_threads() == threads, "PyTorch's pool was not found"
    results = []
    for cost in COSTS:
        library.saccade_set_threads(1)
        iterations = calibrate(library.kernel, cost)
        for ours in dict.fromkeys((1, threads)):
            library.saccade_set_threads(ours)
            found = [interleave(operation, lambda: library.kernel(iterations), calls) for _ in range(rounds)]
            middle = [1e6 * statistics.median(column) for column in zip(*found)]
            loss = (statistics.median(row[1] / row[0] for row in found) - 1,
                    statistics.median(row[3] / row[2] for row in found) - 1)
            results.append(Result(cost, ours, tuple(middle[:2]), tuple(middle[2:]), loss))
    return results


def interleave(operation, ours, calls):
    """Median seconds of one round: ours alone and interleaved, PyTorch alone and interleaved."""
    ours_alone = statistics.median(timed(ours) for _ in range(calls))
    operation_alone = statistics.median(timed(operation) for _ in range(calls))
    pairs = [(timed(operation), timed(ours)) for _ in range(calls)]
    return (ours_alone, statistics.median(pair[1] for pair in pairs),
            operation_alone, statistics.median(pair[0] for pair in pairs))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/dev"), help="the build tree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    if options.threads > (os.cpu_count() or 1):
        parser.error(f"--threads is {options.threads}, expected at most {os.cpu_count()}")
    print(HEADER)
    for result in measure(options.build.resolve(), options.threads, options.rounds):
        print(result)


if __name__ == "__main__":
    main()
