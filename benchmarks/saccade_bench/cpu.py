"""The measurements of the CPU benchmark (benchmarks/bench.py): contenders in processes, and the files of results."""

import importlib.metadata
import os
import pathlib

from . import (
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
from .progress import progress

TABLE = pathlib.Path(__file__).resolve().parent.parent / "cpu.toml"
OURS, BEFORE = workers.SaccadeWorker.name, "before"


def choose_rows(table, options):
    if options.case:
        parsed = [cases.parse(text) for text in options.case]
        chosen = [table.row(cases.with_type(case, options.type) if options.type else case) for case in parsed]
    else:
        chosen = [row for row in table.rows
                  if (row.is_quick or not options.quick) and (not options.group or row.group in options.group)
                  and row.case.type in (options.type or row.case.type)]
        if not chosen:
            raise cases.BadCase(f"no row of the table matches for --target {options.target}; use --case")
    return chosen + rows.draw(chosen, options.random, options.seed)


def chosen_peers(options):
    names = options.peer or (peers.QUICK if options.quick else peers.NAMES)
    return [] if options.no_peers else [peers.load()[name] for name in names]


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


def contenders(libraries, before, limits, options):
    """All contenders, Saccade first. A process is started when a row first needs it."""

    def started(name, factory, *arguments, package=None):
        def start(variables=workers.STEADY_ALLOCATOR):
            # FlexAttention's compilation cache is kept in the output folder.
            own = {"TORCHINDUCTOR_CACHE_DIR": str(options.out / "inductor"), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
            return workers.WorkerProcess(name, factory, options.threads, *arguments, variables=variables | own | limits.variables(package))
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
        made.append(rounds.Contender(peer.name, started(peer.name, peer, options.threads, package=peer.package),
                                     case_if_supported(peer)))
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
    limits = cpuid.limits(options.build, options.artifacts, options.target)
    found.limits = limits.describe(list(dict.fromkeys(peer.package for peer in chosen_peers(options))))
    if found.limits:
        print(found.limits.strip(), flush=True)
    for process in range(options.processes):
        working = contenders(libraries, before, limits, options)
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
    chosen = choose_rows(table, options)
    if options.random:
        print(f"random shapes with seed {options.seed}")
    if "speed" in options.part:
        measure_speed(found, chosen, options)
    if "memory" in options.part:
        measure_memory(found, options)
    if "compile" in options.part:
        measure_compile_time(found, options)
    print("\n" + found.markdown(), end="")
    stem = write(found, options)
    print(f"\nresults: {os.path.relpath(stem)}.md" + (", .csv, .png" if found.summaries else ""))
