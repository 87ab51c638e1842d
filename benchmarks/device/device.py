"""Checks the bundle in this folder on the GPU of this machine, then times it against PyTorch.

Requires Python 3.8 and an NVIDIA driver for CUDA 12.0 or newer; timing requires PyTorch. Exit codes: 0 all checks pass,
1 a check fails, 2 wrong usage, 4 no usable GPU.
"""

import argparse
import json
import pathlib
import platform
import sys
import time

from saccade_device import bench, checks, instructions, peers, report
from saccade_device.memory import DriverMemory, TorchMemory


def find_torch():
    """(torch, "") if PyTorch is installed and has a GPU, else (None, reason)."""
    try:
        import torch
    except ImportError:
        return None, "PyTorch is not installed"
    return (torch, "") if torch.cuda.is_available() else (None, f"PyTorch {torch.__version__} finds no GPU")


def describe(torch, memory, manifest):
    """The first line of the report."""
    words = [f"Python {platform.python_version()}", f"built from {manifest['commit']}",
             f"kernels for {manifest['target']}{' with machine code' if manifest['cubin'] else ', PTX only'}"]
    if torch:
        words[:0] = [f"PyTorch {torch.__version__} (CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()})"]
    return f"{memory.name}; " + ", ".join(words) + "."


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output folder of the tables")
    parser.add_argument("--checks-only", action="store_true", help="skip the benchmark")
    parser.add_argument("--skip-checks", action="store_true", help="skip the checks, e.g. under a profiler")
    parser.add_argument("--only", default="", help="benchmark rows whose name contains this")
    parser.add_argument("--peers", default=",".join(peers.NAMES), help="peers to time, separated by commas")
    parser.add_argument("--rounds", type=int, default=9, help="rounds per row")
    parser.add_argument("--seconds", type=float, default=0.3, help="seconds per contender and row")
    parser.add_argument("--minutes", type=float, default=8, help="start no further row after this time")
    parser.add_argument("--driver", help="a libcuda.so.1 to use instead of PyTorch, e.g. the driver double of the tests")
    options = parser.parse_args()
    start = time.monotonic()

    torch, why = (None, "--driver is given") if options.driver else find_torch()
    try:
        memory = TorchMemory(torch) if torch else DriverMemory(options.driver or "libcuda.so.1")
    except (OSError, RuntimeError) as error:
        print(f"device.py: no usable GPU: {why}; NVIDIA driver: {error}", file=sys.stderr)
        return 4
    folder = pathlib.Path(__file__).resolve().parent
    manifest = json.loads((folder / "manifest.json").read_text())
    header = describe(torch, memory, manifest)
    print(header, flush=True)

    def log(line):
        print(line, flush=True)

    options.out.mkdir(parents=True, exist_ok=True)
    outcomes, results = [], []
    if not options.skip_checks:
        outcomes = checks.run(folder, manifest, memory, torch, log)
        driver = memory if isinstance(memory, DriverMemory) else DriverMemory()
        compared, distances = instructions.check(driver, folder, log)
        outcomes += compared
        (options.out / "instructions.csv").write_text(report.instructions(distances))

    def write():
        (options.out / "device.md").write_text(report.markdown(header, outcomes, results))
        (options.out / "device.csv").write_text(report.table(results))

    write()
    rows = [row for row in manifest["benchmark"] if options.only in row["name"]]
    if torch and not options.checks_only:
        deadline = start + 60 * options.minutes
        requested = options.peers.split(",")
        for result in bench.run(torch, folder, rows, requested, options.rounds, options.seconds, deadline, log):
            results.append(result)
            write()  # keeps the results if the run is stopped
    elif not options.checks_only:
        log(f"no benchmark: {why}")
    print((options.out / "device.md").read_text())
    return 0 if all(passed for _, passed, _ in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
