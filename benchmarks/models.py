"""Whole encoder models against ONNX Runtime, OpenVINO and PyTorch: time of a call in paired rounds and fraction of the peak.

Programs have the form that importers produce (`saccade_bench/model_text.py`), with random weights, and are compiled once
for all sizes. All contenders may prepack the weights before the first call. Writes a table and a plot. A peer that cannot
run a model has a row with the reason.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAUSE_SECONDS = 0.05  # thread pools spin for a moment after a call
# Minimum speedup over the best peer, also of CPU targets for which peers are limited to the instructions of the target.
THRESHOLDS = {"minilm": {"f32": 1.7, "bf16": 1.4}, "vit-base": {"f32": 1.35, "bf16": 1.25}}
TARGET_THRESHOLDS = {"v3": {name: {"f32": 1.15, "bf16": 1.15} for name in THRESHOLDS}}
PEERS = ["onnxruntime", "openvino", "torch", "torch.compile"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--model", action="append", choices=list(THRESHOLDS), help="only this one; can be repeated")
    parser.add_argument("--type", action="append", choices=["f32", "bf16"], help="only this one; can be repeated")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; can be repeated")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--target", default="host", help="CPU target of the code and of the peak")
    parser.add_argument("--base", type=pathlib.Path, help="also measure the code of this other saccade-compile")
    parser.add_argument("--no-prepack", action="store_true", help="also measure without prepacked weights")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree")
    options = parser.parse_args()
    options.rounds = 3 if options.quick else options.rounds
    options.peer = [] if options.no_peers else options.peer or PEERS
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def compile_model(name, type, tool, target, folder, prepack):
    """Compiles a model; (shared library, seconds)."""
    from saccade_bench.artifact import run
    from saccade_bench.model_text import MODELS, program

    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / f"{name}-{type}.mlir", folder / f"{name}-{type}.so"
    source.write_text(program(MODELS[name], type))
    start = time.perf_counter()
    run([tool, source, f"--target={target}", "--emit=so", "-o", library, *(["--prepack"] if prepack else [])])
    return library, time.perf_counter() - start


def start_contenders(options, libraries, type):
    """({contender: worker}, {peer that cannot start: reason})."""
    from saccade_bench import model_workers as workers
    from saccade_bench.workers import STEADY_ALLOCATOR, WorkerFailed, WorkerProcess

    def own(package=None):
        return STEADY_ALLOCATOR | options.limits.variables(package)

    known = {"onnxruntime": (workers.OnnxRuntime, ()), "openvino": (workers.OpenVINO, ()), "torch": (workers.Torch, (False,)),
             "torch.compile": (workers.Torch, (True,))}  # fmt: skip
    started = {name: WorkerProcess(name, workers.Ours, options.threads, library, options.threads, variables=own())
               for name, library in libraries.items()}  # fmt: skip
    failures = {}
    for name in options.peer:
        factory, arguments = known[name]
        if type == "f32" or name != "onnxruntime":
            try:
                started[name] = WorkerProcess(name, factory, options.threads, *arguments, options.threads, variables=own(name.split(".")[0]))
            except WorkerFailed as failure:
                failures[name] = failure.reason
    return started, failures


def measure(options, machine, name, type, libraries):
    """({contender: seconds by round}, FLOP/s peak by round, {contender: relative difference to Saccade's result},
    {peer without a result: reason})."""
    import numpy as np

    from saccade_bench.workers import WorkerFailed

    contenders, failures = start_contenders(options, libraries, type)
    peaks, errors, outputs = [], {}, {}
    for label, each in list(contenders.items()):
        try:
            each.call("prepack", name, type)
        except WorkerFailed as failure:
            if label in libraries:
                raise
            failures[label] = failure.reason
            contenders.pop(label).close()
            continue
        outputs[label] = each.call("output")
        errors[label] = np.linalg.norm(outputs[label] - outputs["saccade"]) / np.linalg.norm(outputs["saccade"])
    seconds = {label: [] for label in contenders}
    for number in range(options.rounds):
        labels = list(contenders)
        first = number % len(labels)
        peaks.append(machine.call("timed_run", type))
        for label in labels[first:] + labels[:first]:
            time.sleep(PAUSE_SECONDS)
            seconds[label].append(contenders[label].call("timed_run"))
    for each in contenders.values():
        each.close()
    return seconds, peaks, errors, failures


def rows_of(options, machine, name, type):
    from saccade_bench.model_text import MODELS

    folder = options.out / "models"
    libraries = {}
    ours = options.build / "bin" / "saccade-compile"
    libraries["saccade"], compiling = compile_model(name, type, ours, options.target, folder, prepack=True)
    if options.no_prepack:
        libraries["no prepack"], _ = compile_model(name, type, ours, options.target, folder / "no-prepack", prepack=False)
    if options.base:
        libraries["base"], _ = compile_model(name, type, options.base.resolve(), options.target, folder / "base", prepack=False)
    seconds, peaks, errors, failures = measure(options, machine, name, type, libraries)
    model, rows = MODELS[name], []
    ratios = {label: statistics.median(b / a for a, b in zip(seconds["saccade"], values))
              for label, values in seconds.items()}  # fmt: skip
    best = min((label for label in ratios if label in PEERS), key=ratios.get, default=None)
    for label, values in seconds.items():
        share = statistics.median(model.flops / value / peak for value, peak in zip(values, peaks))
        rows.append([name, type, label, f"{statistics.median(values) * 1e3:.0f}", f"{share:.2f}", "",
                     f"{errors[label]:.1e}" if label != "saccade" else f"compiled in {compiling:.1f} s"])  # fmt: skip
        if label != "saccade":
            threshold = TARGET_THRESHOLDS.get(options.target, THRESHOLDS)[name][type]
            verdict = f" ({'met' if ratios[label] >= threshold else 'MISSED'}: {threshold:g})" if label == best else ""
            rows[-1][5] = f"{ratios[label]:.2f}×{verdict}"
        print(" | ".join(rows[-1]), flush=True)
    for label, reason in failures.items():
        rows.append([name, type, label, "", "", "", f"failed: {reason}"])
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks")]
    os.environ["PYTHONPATH"] = sys.path[0]  # for the workers
    from saccade_bench import cpuid, model_workers
    from saccade_bench.peaks import compile_peaks
    from saccade_bench.plot import plot_shares
    from saccade_bench.report import processor, publish, result_stem, table
    from saccade_bench.workers import WorkerProcess

    library = compile_peaks(options.build, options.out / "models", options.target)
    options.limits = cpuid.limits(options.build, options.out / "models", options.target)
    machine = WorkerProcess("peak", model_workers.PeakWorker, options.threads, library, options.threads)
    rows = []
    for name in options.model or THRESHOLDS:
        for type in options.type or ["f32", "bf16"]:
            rows += rows_of(options, machine, name, type)
    machine.close()
    name = "models" if options.target == "host" else f"models-{options.target}"
    header = ["model", "type", "contender", "ms", "of peak", "speedup of saccade", "difference to saccade"]
    code = "" if options.target == "host" else f" Code and peak are for the CPU target {options.target}."
    code += options.limits.describe(list(dict.fromkeys(name.split(".")[0] for name in options.peer)))
    text = f"{processor()}; {options.threads} threads.{code} Medians of {options.rounds} rounds.\n\n{table(header, rows)}"
    publish(text, name, options)
    shares = [(f"{name} {type}", by, float(share), f"{ms} ms") for name, type, by, ms, share, *_ in rows if ms]
    plot_shares(shares, f"fraction of the peak, {options.threads} threads",
                result_stem(name, options).with_suffix(".png"))  # fmt: skip


if __name__ == "__main__":
    main()
