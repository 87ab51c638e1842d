"""Cost of score functions: attention with a score function against plain attention, in the same rounds of one process.

The cost is the median over rounds of the ratio of the two times. The table also has the maximum allowed cost.
"""

import argparse
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADS, LENGTH, DEPTH = 8, 2048, 64
# Maximum cost in percent over plain attention, f32 and bf16.
THRESHOLDS = {"alibi": (3, 4), "t5_bias": (4, 6), "soft_cap": (10, 14)}


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--length", type=int, default=LENGTH)
    parser.add_argument("--quick", action="store_true", help="five rounds")
    parser.add_argument("--save", action="store_true", help="write into benchmarks/results instead of build/bench")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "build" / "bench", help="output folder")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "dev", help="build tree with the package")
    options = parser.parse_args()
    options.rounds = 5 if options.quick else options.rounds
    options.build, options.out = options.build.resolve(), options.out.resolve()
    return options


def regions(length):
    """{name: score function}; "none" is plain attention."""
    import torch

    from saccade import scores

    return {
        "none": None,
        "alibi": scores.alibi(torch.from_numpy(scores.alibi_slopes(HEADS))),
        "t5_bias": scores.t5_bias(torch.randn(32, HEADS)),
        "soft_cap": scores.soft_cap(20.0),
        "temperature": scores.temperature(torch.full((HEADS,), 1.5)),
        "relative_bias": scores.relative_bias(torch.randn(HEADS, 257)),
        "shaw_bias": scores.shaw_bias(torch.randn(1, HEADS, length, 33), DEPTH**-0.5),
    }


def measure(options, dtype, causal):
    """{name: milliseconds by round}; every round runs every score function."""
    import torch

    import saccade

    q, k, v = (torch.randn(1, HEADS, options.length, DEPTH).to(dtype) for _ in range(3))
    output = torch.empty_like(q)

    def once(score):
        start = time.perf_counter()
        saccade.attention(q, k, v, score=score, causal=causal, out=output)
        return (time.perf_counter() - start) * 1e3

    scores = regions(options.length)
    found = {name: [] for name in scores}
    for number in range(options.rounds + 1):
        for name, score in scores.items():
            # The faster of two calls: disturbances only add time.
            found[name].append(min(once(score), once(score)))
    return {name: times[1:] for name, times in found.items()}


def markdown(options):
    import torch

    import saccade
    from saccade_bench.report import processor, table

    torch.manual_seed(0)
    saccade.set_num_threads(options.threads)
    torch.set_num_threads(options.threads)
    lines = []
    for causal in ("top_left", None):
        for column, dtype in enumerate((torch.float32, torch.bfloat16)):
            times = measure(options, dtype, causal)
            for name, values in times.items():
                cost = statistics.median(own / plain - 1 for own, plain in zip(values, times["none"])) * 100
                maximum = THRESHOLDS.get(name)
                row = [name, str(dtype).removeprefix("torch."), "causal" if causal else "full",
                       f"{statistics.median(values):.2f}", "" if name == "none" else f"{cost:+.1f}",
                       f"{maximum[column]}" if maximum else ""]  # fmt: skip
                lines.append(row)
    title = f"1×{HEADS}×{options.length}×{DEPTH}, {options.threads} threads; medians of {options.rounds} rounds."
    return "\n".join([f"{processor()}; {title}\n", table(["score", "type", "mask", "ms", "cost %", "max %"], lines)])


def main():
    options = parse_arguments()
    sys.path[:0] = [str(ROOT / "benchmarks"), str(options.build / "python")]
    from saccade_bench.report import publish

    publish(markdown(options), "scores", options)


if __name__ == "__main__":
    main()
