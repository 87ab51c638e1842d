"""Whole encoder models beside ONNX Runtime and PyTorch: milliseconds of a call in paired rounds, and what of the
machine's limit they reach, as a table and a picture.

Programs are what an importer hands over (`saccade_bench/model_text.py`), weights random, compiled once for all sizes.
Everybody may prepack the weights before the first call.
"""

import argparse
import os
import pathlib
import statistics
import sys
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAUSE_SECONDS = 0.05  # pools spin for a moment after a call
# How many times as fast as the best peer, f32 and bf16.
THRESHOLDS = {"minilm": {"f32": 1.7, "bf16": 1.4}, "vit-base": {"f32": 1.35, "bf16": 1.25}}
PEERS = ["onnxruntime", "torch", "torch.compile"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="three rounds")
    parser.add_argument("--model", action="append", choices=list(THRESHOLDS), help="only this one; repeatable")
    parser.add_argument("--type", action="append", choices=["f32", "bf16"], help="only this one; repeatable")
    parser.add_argument("--peer", action="append", choices=PEERS, help="only this one; repeatable")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--base", type=pathlib.Path, help="also our own code by this other saccade-compile")
    parser.add_argument("--no_prepack", action="store_true", help="also with weights packed by every call")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="folder of the results")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree")
    options = parser.parse_args()
    options.rounds = 3 if options.quick else options.rounds
    options.peer = [] if options.no_peers else options.peer or PEERS
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def compile_model(name, type, tool, folder, prepack):
    """The shared library of a model, and the seconds that it took."""
    from saccade_bench.artifact import run
    from saccade_bench.model_text import MODELS, program

    folder.mkdir(parents=True, exist_ok=True)
    source, library = folder / f"{name}-{type}.mlir", folder / f"{name}-{type}.so"
    source.write_text(program(MODELS[name], type))
    start = time.perf_counter()
    run([tool, source, "--emit=so", "-o", library, *(["--prepack"] if prepack else [])])
    return library, time.perf_counter() - start


def start_contenders(options, libraries, type):
    from saccade_bench import model_workers as workers
    from saccade_bench.workers import Remote

    known = {"onnxruntime": (workers.OnnxRuntime, ()), "torch": (workers.Torch, (False,)),
             "torch.compile": (workers.Torch, (True,))}  # fmt: skip
    started = {name: Remote(name, workers.Ours, options.threads, library, options.threads)
               for name, library in libraries.items()}  # fmt: skip
    for name in options.peer:
        factory, arguments = known[name]
        if type == "f32" or name != "onnxruntime":
            started[name] = Remote(name, factory, options.threads, *arguments, options.threads)
    return started


def measure(options, machine, name, type, libraries):
    """Seconds of each contender and the machine's peak, a number a round; differences to ours relative to its norm."""
    contenders = start_contenders(options, libraries, type)
    seconds, peaks, errors, outputs = {label: [] for label in contenders}, [], {}, {}
    for label, each in contenders.items():
        each.call("prepack", name, type)
        outputs[label] = each.call("output")
        errors[label] = np.linalg.norm(outputs[label] - outputs["saccade"]) / np.linalg.norm(outputs["saccade"])
    for number in range(options.rounds):
        labels = list(contenders)
        first = number % len(labels)
        peaks.append(machine.call("turn", type))
        for label in labels[first:] + labels[:first]:
            time.sleep(PAUSE_SECONDS)
            seconds[label].append(contenders[label].call("turn"))
    for each in contenders.values():
        each.close()
    return seconds, peaks, errors


def rows_of(options, machine, name, type):
    from saccade_bench.model_text import MODELS

    folder = options.out / "models"
    libraries = {}
    ours = options.build / "bin" / "saccade-compile"
    libraries["saccade"], compiling = compile_model(name, type, ours, folder, prepack=True)
    if options.no_prepack:
        libraries["no_prepack"], _ = compile_model(name, type, ours, folder / "no_prepack", prepack=False)
    if options.base:
        libraries["base"], _ = compile_model(name, type, options.base.resolve(), folder / "base", prepack=False)
    seconds, peaks, errors = measure(options, machine, name, type, libraries)
    model, rows = MODELS[name], []
    ratios = {label: statistics.median(b / a for a, b in zip(seconds["saccade"], values))
              for label, values in seconds.items()}  # fmt: skip
    best = min((label for label in ratios if label in PEERS), key=ratios.get, default=None)
    for label, values in seconds.items():
        share = statistics.median(model.flops / value / peak for value, peak in zip(values, peaks))
        rows.append([name, type, label, f"{statistics.median(values) * 1e3:.0f}", f"{share:.2f}", "",
                     f"{errors[label]:.1e}" if label != "saccade" else f"compiled in {compiling:.1f} s"])  # fmt: skip
        if label != "saccade":
            bar = THRESHOLDS[name][type]
            verdict = f" ({'met' if ratios[label] >= bar else 'MISSED'}: {bar:g})" if label == best else ""
            rows[-1][5] = f"{ratios[label]:.2f}×{verdict}"
        print(" | ".join(rows[-1]), flush=True)
    return rows


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks")]
    os.environ["PYTHONPATH"] = sys.path[0]  # for the workers
    from saccade_bench import model_workers
    from saccade_bench.peaks import compile_peaks
    from saccade_bench.plot import plot_shares
    from saccade_bench.report import processor, publish, result_stem, table
    from saccade_bench.workers import Remote

    library = compile_peaks(options.build, options.out / "models")
    machine = Remote("limits", model_workers.Limits, options.threads, library, options.threads)
    rows = []
    for name in options.model or THRESHOLDS:
        for type in options.type or ["f32", "bf16"]:
            rows += rows_of(options, machine, name, type)
    machine.close()
    header = ["model", "type", "by", "ms", "of the limit", "ours is faster", "difference to ours"]
    text = f"{processor()}; {options.threads} threads. Medians of {options.rounds} rounds.\n\n{table(header, rows)}"
    publish(text, "models", options)
    shares = [(f"{name} {type}", by, float(share), f"{ms} ms") for name, type, by, ms, share, *_ in rows]
    plot_shares(shares, f"fraction of the machine's limit, {options.threads} threads",
                result_stem("models", options).with_suffix(".png"))  # fmt: skip


if __name__ == "__main__":
    main()
