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

from saccade_bench import (
    artifact,
    cases,
    compile_time,
    cpuid,
    handwritten,
    memory,
    peaks,
    peers,
    plot,
    report,
    rounds,
    rows,
    workers,
)
from saccade_bench.progress import progress

ROOT = pathlib.Path(__file__).resolve().parent.parent
TABLE = pathlib.Path(__file__).with_name("cpu.toml")
OURS, BEFORE, PARTS = workers.SaccadeWorker.name, "before", ("speed", "memory", "compile")
GROUPS = ("prefill", "layout", "decode", "gemm")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("device", nargs="?", default="cpu", choices=["cpu"])
    parser.add_argument("--quick", action="store_true", help="ten rows, main peers, five rounds: under two minutes")
    parser.add_argument("--case", action="append", metavar="TEXT",
                        help="run this case instead of the table: '1x32(8)x2048x128 causal bf16', '2x8x64x77x40 bias "
                             "bshd', '1x8x8192x64 window512', '6272x768x3072 gemm'; the type defaults to f32")
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
    parser.add_argument("--peer", action="append", choices=list(peers.PEERS), help="only this peer; can be repeated")
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
    options.artifacts = options.out / "artifacts"
    options.rounds = options.rounds or (5 if options.quick else 15)
    options.seed = time.time_ns() % 10**6 if options.seed is None else options.seed
    if not 1 <= options.threads <= len(os.sched_getaffinity(0)):
        parser.error(f"--threads is {options.threads}, expected 1 to {len(os.sched_getaffinity(0))}")
    if options.target.startswith(("sm_", "aarch64")):
        parser.error(f"--target is {options.target}, expected a CPU target of this machine")
    if min(options.rounds, options.processes) < 1:
        parser.error("--rounds and --processes must be at least 1")
    return options


def choose_rows(table, options):
    if options.case:
        parsed = [cases.parse(text) for text in options.case]
        chosen = [table.row(cases.with_type(case, options.type) if options.type else case) for case in parsed]
    else:
        chosen = [row for row in table.rows
                  if (row.is_quick or not options.quick) and row.group in (options.group or GROUPS)
                  and row.case.type in (options.type or row.case.type)]
        if not chosen:
            raise cases.BadCase(f"no row of the table matches for --target {options.target}; use --case")
    return chosen + rows.draw(chosen, options.random, options.seed)


def chosen_peers(options):
    names = options.peer or (peers.QUICK if options.quick else list(peers.PEERS))
    return [] if options.no_peers else [peers.PEERS[name] for name in names]


def versions(options):
    """Versions of NumPy and the chosen peers; raises PackageNotFoundError if one is missing."""
    packages = dict.fromkeys([peer.package for peer in chosen_peers(options)] + ["numpy"])
    if "onnxruntime" in packages:
        importlib.metadata.version("onnx")
    return ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)


def compile_kinds(found, chosen, options):
    """Compiles each kind of the rows once, with --before also by that build; ({kind: shared library} of each build)."""
    kinds = list(dict.fromkeys(case.kind for row in chosen for case in (row.case, row.base) if case))
    libraries, before = {}, {}
    with progress(len(kinds), "compiling") as tick:
        for kind in kinds:
            made = artifact.Artifact(kind, options.build, options.artifacts, options.target)
            libraries[kind] = made.library
            found.compilations.append((kind, made.seconds))
            if options.before:
                before[kind] = artifact.Artifact(kind, options.before, options.artifacts / BEFORE, options.target).library
            tick()
    print(f"{len(kinds)} compilations ({', '.join(map(str, kinds))}) for {len(chosen)} rows", flush=True)
    return libraries, before


def contenders(libraries, before, options):
    """All contenders, Saccade first. A process is started when a row first needs it."""
    hidden = cpuid.variables(options.build, options.artifacts, options.target)

    def started(name, factory, *arguments):
        def start(variables=workers.STEADY_ALLOCATOR):
            # FlexAttention's compilation cache is kept in the output folder.
            own = {"TORCHINDUCTOR_CACHE_DIR": str(options.out / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            return workers.WorkerProcess(name, factory, options.threads, *arguments, variables=variables | own | hidden)
        return start

    def case_if_supported(factory):
        return lambda row: row.case if factory.supports(row.case) else None

    ours = started(OURS, workers.SaccadeWorker, libraries)
    made = [rounds.Contender(OURS, ours, lambda row: row.case, is_peer=False),
            rounds.Contender("base", started("base", workers.SaccadeWorker, libraries), lambda row: row.base,
                             is_peer=False)]
    if before:
        start = started(BEFORE, workers.SaccadeWorker, before)
        made.append(rounds.Contender(BEFORE, start, lambda row: row.case, is_peer=False))
    if options.handwritten:
        start = started("handwritten", handwritten.HandwrittenKernels, options.handwritten.resolve(),
                        options.out / "handwritten", options.threads)
        made.append(rounds.Contender("handwritten", start, case_if_supported(handwritten.HandwrittenKernels)))
    for peer in chosen_peers(options):
        made.append(rounds.Contender(peer.name, started(peer.name, peer, options.threads), case_if_supported(peer)))
    return made


def describe(summary, number, total):
    """The progress line of a row."""
    words = [f"{name} {rate / 1e9:.1f}" for name, rate in summary.rate.items()]
    words += [f"{name} failed" for name in summary.found.failures]
    return (f"[{number}/{total}] {summary.row.case}: {', '.join(words)} {report.unit_of(summary)}; "
            f"peak {summary.peak / 1e9:.0f}, read {summary.bandwidth / 1e9:.0f} GB/s")


def measure_speed(found, chosen, options):
    libraries, before = compile_kinds(found, chosen, options)
    peak_library = peaks.compile_peaks(options.build, options.artifacts, options.target)
    measured = [rounds.Measurement() for _ in chosen]
    references = rounds.References()
    names = [peer.name for peer in chosen_peers(options)]
    for process in range(options.processes):
        working = contenders(libraries, before, options)
        machine = workers.WorkerProcess("peak", workers.PeakWorker, options.threads, peak_library,
                                        options.threads)
        for number, (row, each) in enumerate(zip(chosen, measured), 1):
            before = len(each.rounds)
            with progress(options.rounds, f"[{number}/{len(chosen)}] {row.case}") as tick:
                rounds.measure(row, working, machine, options.rounds, each, references, process, tick)
            now = rounds.Measurement(each.rounds[before:], each.errors, each.notes, each.failures)
            print(describe(rounds.Summary.of(row, now, OURS, names), number, len(chosen)), flush=True)
        for worker in (*working, machine):
            worker.close()
        found.processes = process + 1
        found.summaries = [rounds.Summary.of(row, each, OURS, names) for row, each in zip(chosen, measured)]
        if found.processes < options.processes:
            write(found, options)  # keeps the results if the run is stopped


def measure_memory(found, options):
    for case in memory.MEMORY_CASES:
        library = artifact.Artifact(case.kind, options.build, options.artifacts, options.target).library
        with workers.WorkerProcess("memory", memory.MemoryWorker, options.threads) as fresh:
            found.memory.append((case, fresh.call("measure", library, case)))


def measure_compile_time(found, options):
    kind = cases.Kind("attention", "f32", 64, "causal")
    program = artifact.Artifact(kind, options.build, options.artifacts, options.target).program
    builds = [options.build] + ([options.before] if options.before else [])
    found.compile_time, *before = compile_time.measure(builds, program, options.compiles)
    found.compile_time_before = before[0] if before else {}
    found.compile_count = options.compiles


def write(found, options):
    """Writes the result files; their common path without a suffix."""
    target = "" if options.target == "host" else f"-{options.target}"
    stem = report.result_stem(f"{options.device}{target}", options)
    stem.with_suffix(".md").write_text(found.markdown())
    if found.summaries:
        stem.with_suffix(".csv").write_text(found.csv())
        plot.plot(found.summaries, OURS, options.threads, stem.with_suffix(".png"))
    return stem


def run(options):
    table = rows.load(TABLE, options.target)
    found = report.Report(OURS, versions(options), options.threads, options.target, table)
    parts = options.part or PARTS
    chosen = choose_rows(table, options)
    if options.random:
        print(f"random shapes with seed {options.seed}")
    if "speed" in parts:
        measure_speed(found, chosen, options)
    if "memory" in parts:
        measure_memory(found, options)
    if "compile" in parts:
        measure_compile_time(found, options)
    print("\n" + found.markdown(), end="")
    stem = write(found, options)
    print(f"\nresults: {os.path.relpath(stem)}.md" + (", .csv, .png" if found.summaries else ""))


def main():
    options = parse_arguments()
    failed = lambda error, code: print(f"bench: {error}", file=sys.stderr) or code
    try:
        run(options)
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
