#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --first-seed 0 --count 10
# RUN: %python %s --first-seed 0 --count 3 --gradients
"""Random linear attention against the float64 reference.

Usage: linear_graphs.py [--first-seed N] [--count N] [--seed N] [--gradients] [--run "saccade-run ..."] [--keep FOLDER]
The seed determines element types, extents, heads that share keys or queries, layouts, static and dynamic shapes, ragged
batches and lengths, causal or not, decay of any shape and strength, the delta rule with and without keys of its own,
feature maps, normed and normalized, initial and final state. A failing program is
kept, and its seed reproduces it. With --gradients, the gradient function is compared with the reference as well, and in
float64 with the difference of the results along a random direction of all arguments.
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

FEATURES = {
    "none": "",
    "elu": "feature(%x: F) {\n    %zero = arith.constant 0.0 : F\n    %one = arith.constant 1.0 : F\n"
           "    %e = math.exp %x : F\n"
           "    %y = arith.addf %x, %one : F\n    %p = arith.cmpf ogt, %x, %zero : F\n"
           "    %r = arith.select %p, %y, %e : F\n    attn.yield %r : F\n  }",
    "relu": "feature(%x: F) {\n    %zero = arith.constant 0.0 : F\n    %r = arith.maximumf %x, %zero : F\n"
            "    attn.yield %r : F\n  }",
}  # fmt: skip


class Graph:
    """One op with its arguments; all of it follows from the seed."""

    elements = ["f32"] * 4 + ["bf16", "f16", "f64"]
    depths = [1, 3, 8, 16, 33, 64]
    batches = [0, 1, 1, 2, 2]
    lengths = [0, 1, 2, 7, 15, 16, 17, 63, 64, 65, 100, 130, 192]

    def __init__(self, seed, gradients=False, element=None):
        self.seed, self.rng, self.numbers = seed, random.Random(seed), np.random.default_rng(seed)
        rng = self.rng
        self.element = rng.choice(self.elements)
        self.element = element or self.element
        self.wide = "f64" if self.element == "f64" else "f32"
        depth, value_depth = (rng.choice(self.depths) for _ in range(2))
        heads, group, batch = rng.choice([1, 2, 3]), rng.choice([1, 1, 2, 3]), rng.choice(self.batches)
        length = rng.choice(self.lengths)
        causal = rng.random() < 0.75
        queries = length if causal else rng.choice([1, 5, 64, 70])
        is_ragged = rng.random() < 0.2
        queries = length if is_ragged else queries
        shared = rng.choice([1, 1, 1, 2, 3])  # heads of values that share a key
        self.sizes = {"b": batch, "h": heads * shared, "s": length, "d": depth}
        self.layout = rng.choice(["bhsd", "bshd", "bhds", "hsbd"])
        if is_ragged or (batch == 1 and rng.random() < 0.5):
            self.layout = "".join(dim for dim in self.layout if dim != "b")
        self.dynamic = {dim for dim in "bhs" if rng.random() < 0.6}
        self.arguments, self.names = [], []

        query_heads = heads if shared > 1 and rng.random() < 0.6 else heads * shared * group
        output_heads = max(query_heads, heads * shared)
        q = self.tensor("q", self.layout, {**self.sizes, "h": query_heads, "s": queries})
        delta = causal and rng.random() < 0.4
        erase = delta and rng.random() < 0.4
        normed = rng.random() < 0.2 and not (gradients and depth == 1)  # one element has norm 1, a sign has no derivative
        size = 0.5 / np.sqrt(depth) if delta else 1.0  # the delta rule requires keys of small norm
        k = self.tensor("k", self.layout, {**self.sizes, "h": heads}, scale=size)
        v = self.tensor("v", self.layout, {**self.sizes, "d": value_depth})
        clauses = ["causal"] if causal else []
        if is_ragged:
            cuts = sorted(rng.randint(0, length) for _ in range(rng.choice([0, 1, 3])))
            ends = np.array([0, *cuts, length if rng.random() < 0.7 else max([*cuts, length // 2])], np.int32)
            self.sizes["b"] = len(ends) - 1
            self.integers("c", ends)
            clauses.append("cu_seqlens(%c : tensor<?xi32>)")
        elif "b" in self.layout and queries == length and rng.random() < 0.15:
            self.integers("n", np.array([rng.randint(0, length) for _ in range(batch)], np.int32))
            clauses.append("kv_len(%n : tensor<?xi32>)")
        if normed:
            clauses.append("l2norm(1.0e-6)")
        if erase:
            own = self.tensor("e", self.layout, {**self.sizes, "h": rng.choice([heads, heads * shared])}, scale=size)
            clauses.append(f"erase({own[0]}[{','.join(self.layout)}] : {own[1]})")
        normalize = not delta and rng.random() < 0.3
        feature = rng.choice(["none", "elu", "relu"]) if not normalize else rng.choice(["elu", "relu"])
        if delta:
            feature = "none"  # long keys would make the state grow without bound
        if gradients and feature == "relu":
            feature = "elu"  # a difference across the kink of the other is no derivative
        if normalize:
            clauses.append("normalize")
        elif rng.random() < 0.5:
            clauses.append("scale(0.25)")
        if causal and rng.random() < 0.55:
            axes = rng.choice(["h", "bsh", "bhs", "bhsd", "bshd", "s", "hd", ""])
            axes = "".join(axis for axis in axes if axis in self.layout)
            strength = rng.choice([0.01, 0.3, 5, 300, np.inf])
            values = -np.abs(self.numbers.standard_normal([self.sizes[axis] for axis in axes]))
            values = np.where(values < -1.5, -np.inf, values * 0.1) if strength == np.inf else values * strength
            name = self.argument("g", axes, self.sizes, values, rng.choice([self.element, self.wide]))
            clauses.append(f"decay({name[0]}[{','.join(axes)}] : {name[1]})")
        if delta and not (erase and rng.random() < 0.3):
            axes = "".join(axis for axis in rng.choice(["bsh", "bhs", "s", "h", "bs"]) if axis in self.layout)
            values = 1 / (1 + np.exp(-self.numbers.standard_normal([self.sizes[axis] for axis in axes])))
            name = self.argument("beta", axes, self.sizes, values, rng.choice([self.element, self.wide]))
            clauses.append(f"beta({name[0]}[{','.join(axes)}] : {name[1]})")
        outer = [dim for dim in "bh" if dim in self.layout or (is_ragged and dim == "b")]
        shape = [self.sizes[dim] for dim in outer] + [depth, value_depth + normalize]
        if rng.random() < 0.5:
            values = np.abs(self.numbers.standard_normal(shape))
            name = self.argument("state", None, None, values, rng.choice([self.element, self.wide]), outer)
            clauses.append(f"state({name[0]} : {name[1]})")
        output = rng.choice([self.layout, self.layout, "".join(rng.sample(self.layout, len(self.layout)))])
        out_sizes = {**self.sizes, "h": output_heads, "s": queries, "d": value_depth}
        if output != self.layout:
            clauses.append(f"out[{','.join(output)}]")
        clauses.append(FEATURES[feature].replace(": F", f": {self.wide}"))
        results = [self.type(output, out_sizes, rng.choice([self.element, self.wide]))]
        if rng.random() < 0.6:
            results.append(self.type(outer, self.sizes, rng.choice([self.element, self.wide]), shape[-2:]))
        names = ", ".join(f"%r{i}" for i in range(len(results)))
        dims = f"[{','.join(self.layout)}]"
        inputs = ", ".join(f"{name}: {type}" for name, type in self.names)
        attribute = " attributes {attn.gradient}" if gradients else ""
        self.results = results
        self.text = (f"func.func @graph({inputs}) -> ({', '.join(results)}){attribute} {{\n"
                     f"  {names} = attn.linear {q[0]}{dims}, {k[0]}{dims}, {v[0]}{dims} {' '.join(clauses)}\n"
                     f"  : ({q[1]}, {k[1]}, {v[1]}) -> ({', '.join(results)})\n"
                     f"  return {names} : {', '.join(results)}\n}}\n")  # fmt: skip

    def type(self, dims, sizes, element, more=()):
        dynamic = set(dims) - {"d"} if self.rng.random() < 0.15 else self.dynamic  # some types say less than others
        extents = ["?" if dim in dynamic else sizes[dim] for dim in dims] + list(more)
        return "tensor<" + "".join(f"{extent}x" for extent in extents) + element + ">"

    def argument(self, name, dims, sizes, values, element, outer=None):
        own = (dims, sizes, element) if outer is None else (outer, self.sizes, element, values.shape[-2:])
        kind = self.type(*own)
        self.arguments.append((values, element))
        self.names.append((f"%{name}", kind))
        return self.names[-1]

    def integers(self, name, values):
        self.arguments.append((values, "i32"))
        self.names.append((f"%{name}", "tensor<?xi32>"))

    def tensor(self, name, dims, sizes, scale=1.0):
        values = self.numbers.standard_normal([sizes[dim] for dim in dims]) * scale
        return self.argument(name, dims, sizes, values, self.element)


def run(graph, command, folder, gradients, difference=True):
    """The failure of a graph, or None. With `gradients`, the gradient function runs as well and, with `difference`, is
    compared with the difference of results in float64."""
    folder.mkdir(parents=True, exist_ok=True)
    module = folder / "graph.mlir"
    module.write_text(graph.text)

    def save(name, values, element):
        file = folder / f"{name}.npy"
        with np.errstate(over="ignore"):
            kinds = {"f64": np.float64, "f16": np.float16, "i32": np.int32}
            np.save(file, values.astype(kinds.get(element, np.float32)))
        return f"--arg={file}:{element}"

    arguments = [save(i, *argument) for i, argument in enumerate(graph.arguments)]
    lines = [["--entry=graph", *arguments]]
    if gradients:
        outputs = [(folder / f"result{i}.npy", type[:-1].rpartition("x")[2]) for i, type in enumerate(graph.results)]
        lines[0] += [f"--out={file}" for file, _ in outputs]
        lines.append(["--entry=graph_gradient", *arguments, *(f"--arg={file}:{element}" for file, element in outputs)])
    for i, more in enumerate(lines):
        line = [*command, str(module), *more]
        if i == 1:
            shapes = [np.load(file, mmap_mode="r").shape for file, _ in outputs]
            line += [save(f"gradient{j}", graph.numbers.standard_normal(shape), element)
                     for j, (shape, (_, element)) in enumerate(zip(shapes, outputs))]
        done = subprocess.run([*line, "--check"], capture_output=True, text=True)
        if done.returncode != 0:
            told = (done.stdout + done.stderr)[:1500]
            return f"seed {graph.seed}: exit code {done.returncode}\n{shlex.join(line)} --check\n{told}"
    if not gradients or not difference:
        return None
    try:
        return compare_with_difference(Graph(graph.seed, gradients, "f64"))
    except Exception as error:
        return f"seed {graph.seed}: {type(error).__name__}: {error}"


def compare_with_difference(graph):
    """The error of the derivative along a random direction, in float64."""
    import saccade

    program = saccade.compile(graph.text)
    tuples = lambda values: values if isinstance(values, tuple) else (values,)
    isfloat = [element != "i32" for _, element in graph.arguments]
    arguments = [np.asarray(values, np.float64 if moves else np.int32)
                 for (values, _), moves in zip(graph.arguments, isfloat)]
    results = tuples(program.graph(*arguments))
    seeds = [graph.numbers.standard_normal(result.shape) for result in results]
    gradients = tuples(program.graph_gradient(*arguments, *results, *seeds))
    directions = [np.asarray(graph.numbers.standard_normal(values.shape)) for values in arguments]
    move = lambda values, step, direction, moves: np.asarray(values + step * direction) if moves else values

    def loss(step):
        moved = [move(values, step, *how) for values, *how in zip(arguments, directions, isfloat)]
        return sum((seed * result).sum() for seed, result in zip(seeds, tuples(program.graph(*moved))))

    step = 2e-5  # a decay of all positions is applied up to 192 times
    expected = (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step)
    terms = [gradient * direction for gradient, direction in zip(gradients, [x for x, moves in zip(directions, isfloat) if moves])]
    found, size = sum(term.sum() for term in terms), sum(np.abs(term).sum() for term in terms)
    if abs(found - expected) <= 1e-8 * size:
        return None
    return f"seed {graph.seed}: derivative {found}, difference {expected}, sum of absolute terms {size}\n{graph.text}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, help="only this one, and show the module")
    parser.add_argument("--gradients", action="store_true", help="check gradient functions")
    parser.add_argument("--run", default="saccade-run --threads=2")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-linear")
    args = parser.parse_args()
    seeds = range(args.first_seed, args.first_seed + args.count) if args.seed is None else [args.seed]
    graphs = [Graph(seed, args.gradients) for seed in seeds]
    if args.seed is not None:
        print(graphs[0].text)
    with ThreadPoolExecutor(2) as workers:
        failures = [failure for failure in workers.map(
            lambda graph: run(graph, shlex.split(args.run), args.keep / str(graph.seed), args.gradients), graphs) if failure]
    print("\n".join(failures) or f"{len(graphs)} graphs, none failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
