"""Runs the first attention block of MiniLM-L6 on four sentences and plots the attention weights.

Called by `./dev demo`; requires the built package, NumPy and matplotlib.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

import saccade

HERE = pathlib.Path(__file__).parent
# Sentence and head (0-based), and the pattern that the head shows.
SHOWN = [
    (0, 2, "attends to the previous word"),
    (0, 6, "among others, links “it” to “animal”"),
    (2, 4, "links the objects of pouring to the verb"),
    (2, 10, "links the containers and the pouring"),
]


def load(*names):
    return [np.load(HERE / "data" / f"{name}.npy") for name in names]


def median_time(function, *arguments):
    """The median of 20 calls, in seconds."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        function(*arguments)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def indent(text):
    print("".join(f"    {line}\n" for line in text.strip().splitlines()), end="")


def show_as_text(tokens, weights):
    """Prints for every token the two tokens with the largest attention weights."""
    for row, (token, weight) in enumerate(zip(tokens, weights)):
        if row in (0, len(tokens) - 1):
            continue  # [CLS] and [SEP]
        best = np.argsort(-weight)[:2]
        bar = "█" * round(weight[best[0]] * 20)
        words = ", ".join(f"{tokens[key]} {weight[key]:.0%}" for key in best)
        print(f"    {token:>10}  {bar:<20}  {words}")


def draw(tokens, weights, path):
    figure, axes = plt.subplots(2, 2, figsize=(13, 13), layout="constrained")
    for axis, (sentence, head, what) in zip(axes.flat, SHOWN):
        words = tokens[sentence]
        count = len(words)
        axis.imshow(weights[sentence, :count, head, :count], cmap="magma", vmin=0)
        axis.set_xticks(range(count), words, rotation=90)
        axis.set_yticks(range(count), words)
        axis.set_xlabel("attended to")
        axis.set_title(f"head {head} {what}")
    figure.suptitle("MiniLM-L6, first encoder layer: attention weights")
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="folder for the plot and the result")
    folder = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    text = json.loads((HERE / "data" / "tokens.json").read_text())
    graph = HERE / "attention.mlir"

    print("\nThe first attention block of MiniLM-L6 (12 heads of 32, f32) on:")
    indent("\n".join(text["sentences"]))

    print("\nCompiled from examples/minilm/attention.mlir:")
    start = time.perf_counter()
    module = saccade.compile(graph)
    compiled = time.perf_counter() - start
    hidden, expected = load("hidden", "expected")
    block = load("wq", "bq", "wk", "bk", "wv", "bv", "wo", "bo", "gamma", "beta", "lengths")
    result = module.minilm_attention(hidden, *block)
    milliseconds = median_time(module.minilm_attention, hidden, *block) * 1e3
    print(f"    {compiled:.2f} s to compile, {milliseconds:.2f} ms a call")
    np.save(folder / "result.npy", result)
    # Positions after the end of a sentence are padding and their outputs are ignored.
    lengths = block[-1]
    real = np.arange(result.shape[1]) < lengths[:, None]
    difference = np.abs(result - expected)[real].max()
    print(f"    largest difference to the same block in NumPy (float64): {difference:.1e}")
    if not difference < 1e-4:
        sys.exit("demo: the result differs from the NumPy reference")

    weights = module.minilm_weights(hidden, *block[:4], lengths)
    print("\nAttention weights (computed by the same compiler, with the identity as values):")
    for sentence, head, what in SHOWN:
        print(f"\n  head {head} {what}: {text['sentences'][sentence]}")
        count = len(text["tokens"][sentence])
        show_as_text(text["tokens"][sentence], weights[sentence, :count, head, :count])
    draw(text["tokens"], weights, folder / "attention.png")
    print(f"\nPlot: {folder / 'attention.png'}")


if __name__ == "__main__":
    try:
        main()
    except saccade.CompileError as error:
        sys.exit(f"demo: {error}")
