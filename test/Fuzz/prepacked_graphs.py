#!/usr/bin/env python3
# REQUIRES: numpy
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 20
"""Random graphs of structured ops with constant arguments: prepacking gives bit-identical results.

Usage: prepacked_graphs.py [--first-seed N] [--count N] [--keep FOLDER]
The graphs are those of structured_graphs.py, most with known sizes, so that expressions of constants are prepacked,
in chains and in any order with the rest. A failing program is kept, and its seed reproduces it.
"""

import argparse
import pathlib
import random
import re
import sys
import tempfile

import numpy as np
from structured_graphs import Graph

import saccade


def program(graph, chosen):
    """The text, with marks, and how many rows it has at compile time (None: any number)."""
    text = graph.text()
    is_known = graph.static and chosen.random() < 0.8
    if is_known:
        text = re.sub(r"tensor\.empty\(.*?\)", "tensor.empty()", text).replace("?", str(graph.rows))
    constants = chosen.choice(["w", "wb", "wb", "xw", "xwb"])
    for name in constants:
        text = re.sub(rf"(\(|, )(%{name}: tensor<\S+>)", r"\1\2 {attn.constant}", text, count=1)
    return text, constants


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    options = parser.parse_args()
    failures = prepacked = 0
    for seed in range(options.first_seed, options.first_seed + options.count):
        graph, chosen, numbers = Graph(seed), random.Random(seed), np.random.default_rng(seed)
        text, constants = program(graph, chosen)
        shapes = {"x": (graph.rows, graph.columns), "w": (graph.columns, graph.columns), "b": (graph.columns,)}
        arrays = {name: numbers.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
        plain, module = saccade.compile(text).graph, saccade.compile(text, prepack=True)
        bound = module.graph.bind(**{name: arrays[name] for name in constants})
        prepacked += "graph__prepack" in module
        rest = {name: array for name, array in arrays.items() if name not in constants}
        expected = plain(**arrays)
        expected = expected if isinstance(expected, tuple) else (expected,)
        for _ in range(2):
            out = tuple(np.empty_like(each) for each in expected)
            found = bound(**rest, out=out)
            if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(found, expected)):
                failures += 1
                kept = options.keep / f"prepacked-{seed}.mlir"
                kept.write_text(text)
                print(f"seed {seed}: results differ: {kept}, constant are {', '.join(constants)}")
                break
    print(f"{options.count} graphs, {prepacked} with something to prepack")
    return 1 if failures or (options.count >= 20 and not prepacked) else 0


if __name__ == "__main__":
    sys.exit(main())
