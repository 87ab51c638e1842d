"""Time and memory of linear attention from 1,024 to 65,536 tokens, and the error of Performer by number of features.

Each kind is one program for all lengths, called with batch 1, two heads and head_dim 64; "backward" are the gradients of
queries, keys, values and decay, without the forward pass. Memory is the peak of a call
beyond its inputs and outputs, in a fresh process. The slope is that of log(time) over log(length): 1 is linear, 2 is
quadratic.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS, DEPTH, FEATURES, RANK = 2, 64, 256, 256
LENGTHS = [1024 << i for i in range(7)]
KINDS = ["linear", "linear causal", "gated", "gated delta", "performer", "performer causal", "linformer", "softmax",
         "linear backward", "linear causal backward", "gated backward"]  # fmt: skip
QUADRATIC = "softmax"
MAX_QUADRATIC_LENGTH = 8192  # tokens


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--longest", type=int, default=LENGTHS[-1])
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind; can be repeated")
    parser.add_argument("--quick", action="store_true", help="three rounds, up to 8,192 tokens")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev",
                        help="build tree with the package")  # fmt: skip
    parser.add_argument("--memory", metavar="KIND", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.longest = 3, 8192
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def problem(kind, length):
    """A function without arguments that runs `kind` once on `length` tokens."""
    import numpy as np

    import saccade

    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, HEADS, length, DEPTH), dtype=np.float32) for _ in range(3))
    is_backward, kind = kind.endswith(" backward"), kind.removesuffix(" backward")
    if kind == QUADRATIC:
        return lambda: saccade.attention(q, k, v)
    if kind == "linformer":
        projections = [rng.standard_normal((RANK, length), dtype=np.float32) / length**0.5 for _ in range(2)]
        return lambda: saccade.linformer(q, k, v, key_projection=projections[0], value_projection=projections[1])
    if kind.startswith("performer"):
        projection = saccade.orthogonal_features(FEATURES, DEPTH)
        return lambda: saccade.performer(q, k, v, projection=projection, causal="causal" in kind)
    factors = {}
    if kind.startswith("gated"):
        factors["decay"] = -np.abs(rng.standard_normal((1, HEADS, length), dtype=np.float32)) * 0.05
    if "delta" in kind:
        factors["beta"] = rng.random((1, HEADS, length), dtype=np.float32)
        k /= np.linalg.norm(k, axis=-1, keepdims=True)
    if not factors:
        factors = {"feature_map": "elu+1", "normalize": True}
    if is_backward:
        import torch

        tensors = [torch.from_numpy(x).requires_grad_() for x in (q, k, v)]
        if "decay" in factors:
            factors["decay"] = torch.from_numpy(factors["decay"]).requires_grad_()
            tensors.append(factors["decay"])
        output = saccade.linear_attention(*tensors[:3], causal=kind != "linear", **factors)
        seed = torch.ones_like(output)
        return lambda: torch.autograd.grad(output, tensors, seed, retain_graph=True)
    return lambda: saccade.linear_attention(q, k, v, causal=kind != "linear", **factors)


def times(options, kinds, lengths):
    """{kind: {length: milliseconds}}, medians over rounds; every round runs all kinds."""
    found = {kind: {} for kind in kinds}
    for length in lengths:
        calls = {kind: problem(kind, length) for kind in kinds if kind != QUADRATIC or length <= MAX_QUADRATIC_LENGTH}
        for call in calls.values():
            call()
        rounds = {kind: [] for kind in calls}
        for _ in range(options.rounds):
            for kind, call in calls.items():
                start = time.perf_counter()
                call()
                rounds[kind].append((time.perf_counter() - start) * 1e3)
        for kind in calls:
            found[kind][length] = statistics.median(rounds[kind])
        print(f"{length:6d} tokens: " + ", ".join(f"{kind} {found[kind][length]:.1f} ms" for kind in calls), flush=True)
    return found


def peaks_of(kind, lengths):
    """Peak bytes of one call beyond its inputs and result, for each length."""
    from saccade_bench.memory import status

    problem(kind, 128)()
    found = []
    for length in lengths:
        call = problem(kind, length)
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        before = status("VmHWM")
        result = call()
        results = result if isinstance(result, tuple) else (result,)
        found.append(max(0, status("VmHWM") - before - sum(x.nbytes for x in results)))
        del call, result, results
    return found


def memory(options, kinds, lengths):
    """{kind: {length: bytes}}, each kind in its own process."""
    found = {}
    for kind in kinds:
        mine = [length for length in lengths if kind != QUADRATIC or length <= MAX_QUADRATIC_LENGTH]
        line = [sys.executable, __file__, "--build", str(options.build), "--longest", str(mine[-1]), "--memory", kind]
        done = subprocess.run(line, capture_output=True, text=True, check=True)
        found[kind] = dict(zip(mine, json.loads(done.stdout)))
    return found


def errors():
    """{number of features: relative error of Performer to exact attention}, means over eight draws."""
    import numpy as np

    import saccade

    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, HEADS, 512, DEPTH), dtype=np.float32) for _ in range(3))
    # Scores q·k/√d get standard deviation 1/√d: the variance of the features grows as exp(|q + k|²/√d).
    q, k = q * DEPTH**-0.25, k * DEPTH**-0.25
    exact = saccade.attention(q, k, v)
    found = {}
    for features in (32, 64, 128, 256, 512, 1024):
        projections = [saccade.orthogonal_features(features, DEPTH, seed) for seed in range(8)]
        draws = [saccade.performer(q, k, v, projection=projection) for projection in projections]
        found[features] = float(np.mean([np.linalg.norm(draw - exact) / np.linalg.norm(exact) for draw in draws]))
    return found


def slope(values):
    """The slope of log(value) over log(length), fitted to the upper half of the lengths."""
    import numpy as np

    lengths = sorted(values)[len(values) // 2 :]
    return float(np.polyfit(np.log(lengths), np.log([max(values[length], 1e-9) for length in lengths]), 1)[0])


def plot(time_of, memory_of, error_of, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(16, 4.5))
    series = ((panels[0], time_of, "ms", 1), (panels[1], memory_of, "MiB beyond inputs and output", 2**20))
    for axes, found, label, unit in series:
        for kind, values in found.items():
            style = "--" if kind == QUADRATIC else "-"
            heights = [max(value / unit, 1e-3) for value in values.values()]
            axes.plot(list(values), heights, style, marker="o", markersize=3, label=kind)
        axes.set(xscale="log", yscale="log", xlabel="tokens", ylabel=label)
        lengths = list(next(iter(found.values())))
        axes.set_xticks(lengths, [f"{length // 1024}k" for length in lengths], minor=False)
        axes.minorticks_off()
    panels[2].plot(list(error_of), list(error_of.values()), marker="o", markersize=3)
    panels[2].set(xscale="log", yscale="log", xlabel="features of Performer", ylabel="error to exact attention")
    panels[0].legend(frameon=False, fontsize=8)
    for axes in panels:
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def report(time_of, memory_of, error_of):
    lengths = list(next(iter(time_of.values())))
    lines = ["# Linear attention", "",
             f"Batch 1, {HEADS} heads, head_dim {DEPTH}, f32. Milliseconds of a call; slope on logarithmic axes.", "",
             "| kind | " + " | ".join(f"{length // 1024}k" for length in lengths) + " | slope | MiB at the longest |",
             "|---|" + "---:|" * (len(lengths) + 2)]  # fmt: skip
    for kind, values in time_of.items():
        cells = " | ".join(f"{values[length]:.1f}" if length in values else "" for length in lengths)
        lines.append(f"| {kind} | {cells} | {slope(values):.2f} | {list(memory_of[kind].values())[-1] / 2**20:.1f} |")
    lines += ["", "Relative error of Performer to exact attention (512 tokens, normal inputs, mean of eight draws): "
              + ", ".join(f"{number} features {error:.3f}" for number, error in error_of.items()) + "."]  # fmt: skip
    return "\n".join(lines) + "\n"


def main():
    options = parse_arguments()
    sys.path[:0] = [str(options.build / "python"), str(ROOT / "benchmarks")]
    import saccade

    saccade.set_num_threads(options.threads)
    if options.memory:
        print(peaks_of(options.memory, [length for length in LENGTHS if length <= options.longest]))
        return
    kinds, lengths = options.kind or KINDS, [length for length in LENGTHS if length <= options.longest]
    time_of, memory_of, error_of = times(options, kinds, lengths), memory(options, kinds, lengths), errors()
    folder = ROOT / "benchmarks" / "results" if options.save else options.out
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / (time.strftime("%Y-%m-%d") + "-linear")
    text = report(time_of, memory_of, error_of)
    stem.with_suffix(".md").write_text(text)
    plot(time_of, memory_of, error_of, stem.with_suffix(".png"))
    print(text)
    print(stem.with_suffix(".md"))


if __name__ == "__main__":
    main()
