"""Whole models with the fused operators of ONNX Runtime, beside ONNX Runtime itself: time of a call in paired rounds.

The models are those of `saccade_bench/runtime_models.py`, with four layers of width 768. Both sides get the same file and
the same inputs, in a process each, and allocate their outputs. Rounds alternate which side is first; the ratio is the median
over rounds of the runtime's time over Saccade's.
"""

import argparse
import dataclasses
import importlib.metadata
import os
import pathlib
import statistics
import sys
import tempfile
import warnings

ROOT = pathlib.Path(__file__).resolve().parent.parent
# A row: its name, the model, batch, new tokens, and rows of the cache with what is in use of them, if any.
CASES = {
    "bert-128": ("bert", 1, 128, {}), "bert-512": ("bert", 1, 512, {}), "vit": ("vit", 1, 1, {}),
    "gpt2-256": ("gpt2", 1, 256, {}), "gpt2-decode": ("gpt2-cached", 1, 1, {"past": 1023}),
    "t5-encoder": ("t5-encoder", 1, 128, {}), "t5-decoder": ("t5-decoder", 1, 64, {}),
    "whisper-encoder": ("whisper-encoder", 1, 1, {}), "whisper-decoder": ("whisper-decoder", 1, 64, {}),
    "genai-256": ("genai", 1, 256, {"past": 0}), "genai-decode": ("genai", 1, 1, {"past": 1023}),
    "genai-decode-reserved": ("genai", 1, 1, {"past": 1023, "capacity": 1024}),
}  # fmt: skip
TEXTS = {
    "bert-128": "BERT, 128 tokens", "bert-512": "BERT, 512 tokens", "vit": "ViT, 197 patches",
    "gpt2-256": "GPT-2, a prompt of 256", "gpt2-decode": "GPT-2, one token behind 1,023", "t5-encoder": "T5's encoder, 128 tokens",
    "t5-decoder": "T5's decoder, 64 tokens, 128 of the encoder", "whisper-encoder": "Whisper's encoder, 1,500 frames",
    "whisper-decoder": "Whisper's decoder, 64 tokens, 1,500 frames", "genai-256": "GenAI, a prompt of 256",
    "genai-decode": "GenAI, one token, a cache that grows from 1,023", "genai-decode-reserved": "GenAI, one token, a cache of 1,024 rows",
}  # fmt: skip
HEADER = ["model", "threads", "ms", "ONNX Runtime ms", "speedup", "difference"]
MAX_ERROR = 1e-4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--case", action="append", choices=list(CASES), help="only this one; can be repeated")
    parser.add_argument("--threads", action="append", type=int, help="default: 1 and 2")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="two layers of width 64, to try the script")
    parser.add_argument("--models", type=pathlib.Path, help="folder that keeps exported models")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="the build tree")
    options = parser.parse_args()
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def file_of(name, size, folder):
    """The path of a model, which is made if it is not there yet."""
    import onnx

    from saccade_bench.runtime_models import genai, optimized

    path = folder / f"{name}-{size.width}.onnx"
    if not path.exists():
        made = genai(size) if name == "genai" else optimized(name, size, folder)
        onnx.save(made, path)
    return path


def inputs_for(case, size, path):
    """The inputs of a case by name, in the types that the file has."""
    import onnx

    from saccade_bench.runtime_models import genai_inputs, inputs_of

    name, batch, length, cache = CASES[case]
    made = genai_inputs(size, batch, length, **cache) if name == "genai" else inputs_of(name, size, batch=batch, length=length, **cache)
    kinds = {each.name: onnx.helper.tensor_dtype_to_np_dtype(each.type.tensor_type.elem_type) for each in onnx.load(path).graph.input}
    return {name: made[name].astype(kind) for name, kind in kinds.items()}


def measure(case, size, folder, rounds, threads):
    """A row of the table."""
    import numpy as np

    from saccade_bench.runtime_workers import Ours, Runtime
    from saccade_bench.workers import WorkerProcess

    path = file_of(CASES[case][0], size, folder)
    inputs = inputs_for(case, size, path)
    sides = [WorkerProcess(each.__name__, each, threads, str(path), threads) for each in (Ours, Runtime)]
    results = [each.call("start", inputs) for each in sides]
    error = float(np.max([np.abs(x - y).max() / max(1, np.abs(y).max()) for x, y in zip(*results, strict=True)]))
    if not error <= MAX_ERROR:  # NaN as well
        raise SystemExit(f"runtime: {case} differs by {error:.1e} from ONNX Runtime")
    seconds = [[], []]
    for number in range(rounds):
        for side in (0, 1) if number % 2 else (1, 0):
            seconds[side].append(sides[side].call("timed_run"))
    for each in sides:
        each.close()
    ratio = statistics.median(b / a for a, b in zip(*seconds))
    ours, theirs = (f"{statistics.median(each) * 1e3:.2f}" for each in seconds)
    return [TEXTS[case], str(threads), ours, theirs, f"{ratio:.2f}×", f"{error:.0e}"]


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])  # for the workers
    warnings.simplefilter("ignore")
    from saccade_bench.report import processor, publish, table
    from saccade_bench.runtime_models import BASE, TINY

    version = importlib.metadata.version
    # The lengths of the cases are those of both sizes.
    size, rows = dataclasses.replace(TINY, positions=BASE.positions) if options.tiny else BASE, []
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.models or pathlib.Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for case in options.case or CASES:
            for threads in options.threads or (1, 2):
                rows.append(measure(case, size, folder, options.rounds, threads))
                print(" | ".join(rows[-1]), file=sys.stderr, flush=True)
    text = (f"{processor()}; ONNX Runtime {version('onnxruntime')}, transformers {version('transformers')}; "
            f"{size.layers} layers of width {size.width}, {size.heads} heads, f32. Medians of {options.rounds} rounds.\n\n"
            f"{table(HEADER, rows)}")
    publish(text, "onnx-runtime", options)


if __name__ == "__main__":
    main()
