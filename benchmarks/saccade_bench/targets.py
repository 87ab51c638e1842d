"""Size, load time and cost of a call of libraries with code for several targets.

`python -m saccade_bench.targets` in this folder's parent prints a table: libraries for single CPU targets, for all of
them, and for these and GPUs. Size is that of the file. Load is the time of `dlopen`, and of `saccade.load`, which
also verifies the checksum; each is measured in a process of its own. A call computes one element,
so it consists of checks and of the selection of the code. In every round all libraries are called one after the other,
so that other load on the machine disturbs all of them alike; the minimum of the rounds counts.
"""

import argparse
import ctypes
import pathlib
import statistics
import subprocess
import sys
import tempfile

LEVELS = ("portable", "v3", "v3-int8", "v4", "v4-bf16", "v4-amx")
LISTS = (*LEVELS, ",".join(LEVELS), ",".join(LEVELS) + ",sm_75,sm_80")
ROOT = pathlib.Path(__file__).resolve().parents[2]

PROGRAM = """
func.func @attend(%q: tensor<?x?x?x64xbf16>, %k: tensor<?x?x?x64xbf16>, %v: tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<bottom_right>
    : (tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>, tensor<?x?x?x64xbf16>) -> tensor<?x?x?x64xbf16>
  return %o : tensor<?x?x?x64xbf16>
}
func.func @add(%x: tensor<?xf64>) -> tensor<?xf64> {
  %y = arith.addf %x, %x : tensor<?xf64>
  return %y : tensor<?xf64>
}
"""

# Prints the milliseconds of a load in a fresh process: argument 1 is the way, argument 2 the library.
LOAD = """
import ctypes, sys, time
if sys.argv[1] == "saccade":
    import saccade
    from saccade import artifact
begin = time.perf_counter()
if sys.argv[1] == "saccade":
    saccade.load(sys.argv[2])
else:
    ctypes.CDLL(sys.argv[2])
print(1e3 * (time.perf_counter() - begin))
"""


def load_time(way, path, processes):
    """The median time of a load in ms, after one that reads the file into the page cache."""
    command = [sys.executable, "-c", LOAD, way, path]
    times = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
             for _ in range(processes + 1)]  # fmt: skip
    return statistics.median(times[1:])


def call_times(libraries, helper, rounds, count):
    """The least mean time of a call of each library in ns."""
    helper.time_calls.restype = ctypes.c_double
    memory = (ctypes.c_double * 16)()
    out = ctypes.byref(memory, 64)
    least = [float("inf")] * len(libraries)
    for _ in range(rounds):
        for i, library in enumerate(libraries):
            taken = helper.time_calls(library.saccade_add, memory, out, ctypes.c_int64(1), ctypes.c_int64(count))
            assert taken >= 0, "a call failed"
            least[i] = min(least[i], taken)
    return least


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--calls", type=int, default=2000, help="calls of a round")
    parser.add_argument("--processes", type=int, default=9, help="processes that measure a load")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "program.mlir").write_text(PROGRAM)
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{ROOT / 'include'}",
                        pathlib.Path(__file__).with_name("targets.c"), "-o", folder / "helper.so"], check=True)  # fmt: skip
        paths = []
        for i, targets in enumerate(LISTS):
            paths.append(folder / f"{i}.so")
            subprocess.run(["saccade-compile", folder / "program.mlir", f"--target={targets}", "--emit=so",
                            "-o", paths[-1]], check=True, stderr=subprocess.DEVNULL)  # fmt: skip
        libraries = [ctypes.CDLL(str(path)) for path in paths]
        for library in libraries:
            library.saccade_add_target.restype = ctypes.c_char_p
        runnable = [i for i, library in enumerate(libraries) if library.saccade_add_target() is not None]
        times = call_times([libraries[i] for i in runnable], ctypes.CDLL(str(folder / "helper.so")), options.rounds,
                           options.calls)  # fmt: skip
        print("| targets | size (KB) | dlopen (ms) | saccade.load (ms) | code of a call | call (ns) |\n|---|---|---|---|---|---|")
        for i, taken in zip(runnable, times):
            loads = [load_time(way, paths[i], options.processes) for way in ("dlopen", "saccade")]
            print(f"| {LISTS[i]} | {paths[i].stat().st_size / 1000:.0f} | {loads[0]:.2f} | {loads[1]:.2f} | "
                  f"{libraries[i].saccade_add_target().decode()} | {taken:.1f} |")


if __name__ == "__main__":
    main()
