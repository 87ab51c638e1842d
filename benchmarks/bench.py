"""Paired CPU benchmark: Saccade against its peers, memory beyond inputs and output, and compile time.

Each contender runs in its own process, one at a time, in rounds whose order rotates. The machine's peak FLOP rate and
read bandwidth are measured in the same rounds. A wrong result of Saccade ends the run with exit code 5.
"""

import argparse
import importlib.metadata
import os
import pathlib
import sys
import time

from saccade_bench import cases, peers

ROOT = pathlib.Path(__file__).resolve().parent.parent
PARTS = ("speed", "memory", "compile")
GROUPS = ("prefill", "layout", "decode", "gemm")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("device", nargs="?", default="cpu", choices=["cpu"])
    parser.add_argument("--quick", action="store_true", help="ten rows, main peers, five rounds: under two minutes")
    parser.add_argument("--case", action="append", metavar="TEXT",
                        help="run this case instead of the table: '1x32(8)x2048x128 causal bf16', '2x8x64x77x40 bias "
                             "bshd', '1x8x8192x64 window512', '6272x768x3072 gemm' (rows x inputs x outputs); the type defaults to f32")
    parser.add_argument("--group", action="append", choices=GROUPS, help="only this group of rows; can be repeated")
    parser.add_argument("--type", choices=list(cases.TYPES), help="only rows of this type; also the type of every --case")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="add N random shapes between the prefill rows")
    parser.add_argument("--seed", type=int, help="seed of --random (default: a new one for each run)")
    parser.add_argument("--rounds", type=int, help="rounds per row (default: 15, with --quick 5)")
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="repeat everything with N sets of fresh processes")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiles", type=int, default=20, metavar="N", help="compilations for the compile-time part")
    parser.add_argument("--target", default="host", help="CPU target; v3 has its own rows in the table")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this part; can be repeated")
    parser.add_argument("--peer", action="append", choices=peers.NAMES, help="only this peer; can be repeated")
    parser.add_argument("--no-peers", action="store_true", help="run Saccade alone; no peer has to be installed")
    parser.add_argument("--handwritten", type=pathlib.Path, metavar="DIR", help="folder of handwritten kernels to compare with")
    parser.add_argument("--before", type=pathlib.Path, metavar="DIR",
                        help="build tree of another commit: its kernels run in the same rounds, its compiler in turn")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the tools")
    options = parser.parse_args()
    options.build, options.out = options.build.resolve(), options.out.resolve()
    options.before = options.before and options.before.resolve()
    options.part = options.part or PARTS
    options.artifacts = options.out / "artifacts"
    options.rounds = options.rounds or (5 if options.quick else 15)
    options.seed = time.time_ns() % 10**6 if options.seed is None else options.seed
    if not 1 <= options.threads <= len(os.sched_getaffinity(0)):
        parser.error(f"--threads is {options.threads}, expected 1 to {len(os.sched_getaffinity(0))}")
    if options.target.startswith(("sm_", "aarch64")):
        parser.error(f"--target is {options.target}, expected a CPU target of this machine")
    if min(options.rounds, options.processes, options.compiles) < 1:
        parser.error("--rounds, --processes and --compiles must be at least 1")
    return options


def main():
    options = parse_arguments()
    # Needs NumPy, which --help does not.
    from saccade_bench import artifact, cpu, rounds, workers

    failed = lambda error, code: print(f"bench: {error}", file=sys.stderr) or code
    try:
        cpu.run(options)
    except importlib.metadata.PackageNotFoundError as error:
        return failed(f"{error.name} is missing; `./dev bench` installs it; --no-peers does not need it", 2)
    except cases.BadCase as error:
        return failed(error, 2)
    except rounds.WrongResult as error:
        return failed(error, 5)
    except (artifact.BuildFailed, workers.WorkerFailed, RuntimeError) as error:
        return failed(error, 1)
    except KeyboardInterrupt:
        return failed("stopped", 130)
    return 0


if __name__ == "__main__":
    sys.exit(main())
