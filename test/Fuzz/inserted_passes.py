#!/usr/bin/env python3
# REQUIRES: numpy
# UNSUPPORTED: asan, tsan
# RUN: %python %s --build %build --first-seed 0 --count 12
"""Passes that only clean up, inserted anywhere, change no bit of a result.

Usage: inserted_passes.py --build DIR [--first-seed N] [--count N] [--seed N] [--run "saccade-run ..."] [--keep FOLDER]
A seed is a random program of attention or of structured ops, and several insertions: a canonicalizing pass, or one of a
plugin that changes nothing, before or after a random stage or step. The results of the program with and without them are
compared bit by bit. A program that fails is kept, and its command is printed.
"""

import argparse
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from attention_graph import Graph
from random_graphs import write
from structured_graphs import Graph as StructuredGraph

PASSES = ["canonicalize", "cse", "canonicalize,cse,canonicalize", "sccp,canonicalize", "symbol-dce", "control-flow-sink",
          "loop-invariant-code-motion", "topological-sort", "inline", "test-do-nothing",
          "func.func(test-do-nothing,canonicalize)", "attn-verify-facts,attn-verify-ir"]  # fmt: skip
POINTS = ["import", "transforms", "transforms.inline", "transforms.raise", "transforms.derive", "transforms.shapes",
          "transforms.fuse", "schedule", "tiling", "tiling.attention", "tiling.linalg", "bufferize", "bufferize.buffers",
          "bufferize.tasks", "codegen", "codegen.vectors", "codegen.llvm", "target"]  # fmt: skip
KERNEL_POINTS = ["codegen.kernels", "codegen.ptx"]


def program(seed, folder):
    """Writes a program and its arguments; returns the arguments of saccade-run, and the number of results."""
    if seed % 3:
        graph = Graph(seed, split_kv=seed % 3 == 2)
        line = write(graph, folder)
        return line, graph.text.split("->")[1].split("{")[0].count("tensor<")
    graph = StructuredGraph(seed)
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "graph.mlir"
    module.write_text(graph.text())
    shapes = [(graph.rows, graph.columns), (graph.columns, graph.columns), (graph.columns,)]
    arguments = [f"--arg={'x'.join(map(str, shape))}:f32:{seed + i}" for i, shape in enumerate(shapes)]
    return [str(module), *arguments], graph.text().split("->")[1].split("{")[0].count("tensor<")


def passes_at(point):
    """The passes that keep the invariants of a point (docs/guides/passes.md). MLIR 22's sccp takes results of scf.forall
    for values that are never computed, and loop-invariant code motion takes structured ops out of parallel loops."""
    has_loops = point.startswith(("tiling", "bufferize"))
    return [each for each in PASSES if not (has_loops and ("sccp" in each or "code-motion" in each))]


def insertions(seed, is_for_gpu):
    """Options that insert passes at two to five places, all of them different."""
    chosen = random.Random(seed)
    places = [(way, point) for way in ("after", "before") for point in POINTS + KERNEL_POINTS * is_for_gpu]
    return [f"--insert-{way}={point}:{chosen.choice(passes_at(point))}"
            for way, point in chosen.sample(places, chosen.randint(2, 5))]


def results(command, folder, count):
    """Runs a command; the bytes of its results, or the text of its error."""
    files = [folder / f"out-{i}.npy" for i in range(count)]
    done = subprocess.run([*command, *(f"--out={file}" for file in files)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[:500]}"
    return [np.load(file).tobytes() for file in files]


def run(seed, options, folder):
    """Compares the results of one seed; returns the number of insertions and the text of a failure, or None."""
    command = shlex.split(options.run)
    line, count = program(seed, folder)
    inserted = insertions(seed, "ptxsim" in options.run)
    plugin = f"--load-pass-plugin={options.build / 'test' / 'Tools' / 'SaccadeTestPlugin.so'}"
    expected = results([*command, *line], folder, count)
    if isinstance(expected, str):  # a limit of the target
        return 0, None
    found = results([*command, *line, plugin, *inserted], folder, count)
    if found == expected:
        return len(inserted), None
    kept, _ = program(seed, options.keep / f"inserted-{seed}")
    what = found if isinstance(found, str) else "the results differ"
    return len(inserted), f"FAIL test/Fuzz/inserted_passes.py --seed {seed}: {what}\n    {shlex.join([*command, *kept, plugin, *inserted])}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree whose tools are tested")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--seed", type=int, help="run only this seed")
    parser.add_argument("--run", default="saccade-run --threads=2")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-inserted")
    options = parser.parse_args()
    seeds = [options.seed] if options.seed is not None else range(options.first_seed, options.first_seed + options.count)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as workers:
        done = list(workers.map(lambda seed: run(seed, options, pathlib.Path(folder) / str(seed)), seeds))
    failures = [failure for _, failure in done if failure]
    print(*failures, sep="\n")
    total = sum(count for count, _ in done)
    print(f"{len(done)} programs, {total} insertions, {len(failures)} failures")
    return 1 if failures or not total else 0


if __name__ == "__main__":
    sys.exit(main())
