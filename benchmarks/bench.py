"""Paired benchmark on this machine's CPU: our code against PyTorch, memory beyond inputs and output, compile time.

Every implementation works in a process of its own, one at a time, in rounds whose order rotates; the machine's own
peak and bandwidth are measured in the same rounds. A result far from float64 ends the run with exit code 5.
"""

import argparse
import datetime
import importlib.metadata
import importlib.util
import os
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS, PARTS = "saccade", ("speed", "memory", "compile")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("device", nargs="?", default="cpu", choices=["cpu"])
    parser.add_argument("--quick", action="store_true", help="three cases, in less than two minutes")
    parser.add_argument("--case", action="append", metavar="TEXT", help="a case of your own: '1x32(8)x2048x128 causal f32'")
    parser.add_argument("--type", choices=["f32", "f64", "f16", "bf16"], help="the type of every case")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--processes", type=int, default=1, metavar="N", help="start all workers anew N times")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--compiles", type=int, default=20, metavar="N", help="compilations for the compile time")
    parser.add_argument("--target", default="host", help="ISA level to compile for")
    parser.add_argument("--part", action="append", choices=PARTS, help="one part only")
    parser.add_argument("--no-peers", action="store_true", help="ours alone: needs no PyTorch, gives no ratio")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="folder of the results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree with the tools")
    return parser.parse_args()


def choose_cases(options):
    from saccade_bench import cases

    chosen = cases.QUICK_CASES if options.quick else cases.CPU_CASES
    if options.case:
        chosen = [cases.Case.parse(text) for text in options.case]
    if options.type:
        chosen = [cases.dataclasses.replace(case, type=options.type) for case in chosen]
    return chosen


def compile_kinds(report, chosen, options):
    """One artifact for every kind among the cases."""
    from saccade_bench.artifact import Artifact
    from saccade_bench.progress import progress

    kinds = list(dict.fromkeys(case.kind for case in chosen))
    artifacts = {}
    with progress(len(kinds), "compiling") as tick:
        for kind in kinds:
            artifacts[kind] = Artifact(kind, options.build, options.out / "artifacts", options.target)
            report.compilations.append((kind, artifacts[kind].seconds))
            tick()
    print(f"{len(kinds)} compilations ({', '.join(map(str, kinds))}) for {len(chosen)} cases", flush=True)
    return {kind: artifact.library for kind, artifact in artifacts.items()}


def measure_speed(report, chosen, options):
    from saccade_bench import peaks, rounds, workers
    from saccade_bench.progress import progress

    libraries = compile_kinds(report, chosen, options)
    limits = peaks.compile_peaks(options.build, options.out / "artifacts")
    measured = {case: [] for case in chosen}
    errors = {}
    for process in range(options.processes):
        with workers.environment(workers.STEADY_ALLOCATOR):
            ours = workers.Remote(OURS, workers.SaccadeWorker, libraries, options.threads)
            peers = [] if options.no_peers else [workers.Remote("torch", workers.TorchWorker, options.threads)]
            machine = workers.Remote("machine", workers.MachineWorker, limits, options.threads)
        for case in chosen:
            with progress(options.rounds, str(case)) as tick:
                found, errors[case] = rounds.measure(case, [ours, *peers], machine, options.rounds, process, tick)
            measured[case] += found
            summary = rounds.Summary.of(case, found, errors[case], OURS)
            words = [f"{name} {rate / 1e9:.1f} GFLOP/s" for name, rate in summary.rate.items()]
            words += ["ratio {:.2f} ({:.2f}–{:.2f})".format(*ratio) for ratio in summary.ratio.values()]
            print(f"{case}: {', '.join(words)}; peak {summary.peak / 1e9:.0f}", flush=True)
        for worker in (ours, *peers, machine):
            worker.close()
    report.summaries = [rounds.Summary.of(case, measured[case], errors[case], OURS) for case in chosen]


def measure_memory(report, options):
    from saccade_bench import artifact, memory, workers

    for case in memory.MEMORY_CASES:
        library = artifact.Artifact(case.kind, options.build, options.out / "artifacts", options.target).library
        with workers.Remote("memory", memory.MemoryWorker) as fresh:
            report.memory.append((case, fresh.call("measure", library, case, options.threads)))


def measure_compile_time(report, options):
    from saccade_bench import artifact, cases, compile_time

    kind = cases.Kind("f32", 64, "causal")
    program = artifact.Artifact(kind, options.build, options.out / "artifacts", options.target).program
    report.compile_time = compile_time.measure(options.build, program, options.compiles)
    report.compile_count = options.compiles


def versions(options):
    names = ["numpy"] if options.no_peers else ["torch", "numpy"]
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in names)


def write(report, options):
    folder = ROOT / "benchmarks" / "results" if options.save else options.out
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / f"{datetime.date.today().isoformat()}-{options.device}"
    stem.with_suffix(".md").write_text(report.markdown())
    if report.summaries:
        stem.with_suffix(".csv").write_text(report.csv())
        report.plot(stem.with_suffix(".png"))
    print(f"\nThe results: {os.path.relpath(stem)}.md, .csv, .png" if report.summaries else
          f"\nThe results: {os.path.relpath(stem)}.md")


def main():
    options = parse_arguments()
    options.build, options.out = options.build.resolve(), options.out.resolve()
    if not options.no_peers and importlib.util.find_spec("torch") is None:
        print("bench: PyTorch is missing; `./dev bench` installs it, --no-peers goes without", file=sys.stderr)
        return 2
    from saccade_bench import artifact, report, rounds, workers

    found = report.Report(OURS, versions(options), options.threads, options.processes)
    parts = options.part or PARTS
    try:
        chosen = choose_cases(options)
        if "speed" in parts:
            measure_speed(found, chosen, options)
        if "memory" in parts:
            measure_memory(found, options)
        if "compile" in parts:
            measure_compile_time(found, options)
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except rounds.Disagreement as error:
        print(f"bench: {error}", file=sys.stderr)
        return 5
    except (artifact.BuildFailed, workers.WorkerFailed, RuntimeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print("\n" + found.markdown(), end="")
    write(found, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
