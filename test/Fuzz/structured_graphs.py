#!/usr/bin/env python3
# RUN: %python %s --first-seed 0 --count 12
"""Random graphs of structured ops, without attention, against the float64 reference.

Usage: structured_graphs.py [--first-seed N] [--count N] [--keep FOLDER]
Matmuls, reductions, elementwise ops and transposes feed one another in any order, and any of them may also be a result,
so that every graph has other fusions. A failing program is kept, and its seed reproduces it.
"""

import argparse
import pathlib
import random
import subprocess
import sys
import tempfile

UNARY = ["math.tanh", "math.erf", "math.absf", "math.cos"]
BINARY = ["arith.addf", "arith.subf", "arith.mulf", "arith.maximumf"]
MAPS = {"all": "(m, n) -> (m, n)", "row": "(m, n) -> (m)", "column": "(m, n) -> (n)", "turned": "(m, n) -> (n, m)"}


class Graph:
    """A function over matrices (m×n and n×m), rows (m) and columns (n); n is known at compile time or not."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rows = self.random.choice([1, 3, 17, 64, 130, 250])
        self.columns = self.random.choice([1, 5, 16, 40, 130])
        self.static = self.random.random() < 0.7
        n = self.columns if self.static else "?"
        self.types = {"matrix": f"tensor<?x{n}xf32>", "turned": f"tensor<{n}x?xf32>", "row": "tensor<?xf32>",
                      "column": f"tensor<{n}xf32>", "square": f"tensor<{n}x{n}xf32>"}  # fmt: skip
        self.values = {"matrix": ["%x"], "turned": [], "row": [], "column": ["%b"], "square": ["%w"]}
        self.lines = []
        for i in range(self.random.randint(2, 9)):
            self.random.choice([self.elementwise, self.elementwise, self.product, self.reduction, self.scaled, self.turn])(i)

    def pick(self, kind):
        # The latest values most often, so that chains come about.
        values = self.values[kind]
        return values[-1] if self.random.random() < 0.6 else self.random.choice(values)

    def emit(self, i, kind, text):
        self.lines.append(f"  %v{i} = {text}")
        self.values[kind].append(f"%v{i}")

    def empty(self, kind):
        n = [] if self.static else ["%n"]
        sizes = {"matrix": ["%m"] + n, "turned": n + ["%m"], "row": ["%m"], "column": n}[kind]
        name = f"%e{len(self.lines)}"
        self.lines.append(f"  {name} = tensor.empty({', '.join(sizes)}) : {self.types[kind]}")
        return name

    def filled(self, kind, value):
        name, empty = f"%f{len(self.lines)}", self.empty(kind)
        self.lines.append(f"  {name} = linalg.fill ins({value} : f32) outs({empty} : {self.types[kind]}) -> {self.types[kind]}")
        return name

    def generic(self, inputs, output, kind, iterators, body):
        maps = ", ".join(f"affine_map<{MAPS[name]}>" for _, _, name in inputs + [output])
        values = ", ".join(value for value, _, _ in inputs)
        types = ", ".join(self.types[of] for _, of, _ in inputs)
        arguments = ", ".join(f"%a{j}: f32" for j in range(len(inputs)))
        return (f"linalg.generic {{indexing_maps = [{maps}], iterator_types = [{iterators}]}} ins({values} : {types}) "
                f"outs({output[0]} : {self.types[kind]}) {{\n    ^bb0({arguments}, %o: f32):\n{body}    }} -> {self.types[kind]}")  # fmt: skip

    def elementwise(self, i):
        kind = self.random.choice(["matrix", "matrix", "row", "turned"])
        if not self.values[kind]:
            kind = "matrix"
        shape = {"matrix": "matrix", "row": "row", "turned": "turned"}[kind]
        unary, binary = self.random.choice(UNARY), self.random.choice(BINARY)
        a, b, empty = self.pick(kind), self.pick(kind), self.empty(shape)
        self.emit(i, kind, f"linalg.map ins({a}, {b} : {self.types[kind]}, {self.types[kind]}) outs({empty} : {self.types[kind]})\n"
                           f"    (%p: f32, %q: f32, %o: f32) {{\n      %s = {binary} %p, %q : f32\n      %t = {unary} %s : f32\n"
                           f"      linalg.yield %t : f32\n    }}")  # fmt: skip

    def product(self, i):
        kind = self.types["matrix"]
        init = self.random.choice([lambda: self.filled("matrix", "%zero"), lambda: self.pick("matrix")])()
        self.emit(i, "matrix", f"linalg.matmul ins({self.pick('matrix')}, %w : {kind}, {self.types['square']}) "
                               f"outs({init} : {kind}) -> {kind}")  # fmt: skip

    def reduction(self, i):
        along, iterators = self.random.choice([("row", '"parallel", "reduction"'), ("column", '"reduction", "parallel"')])
        op, start = self.random.choice([("arith.addf", "%zero"), ("arith.maximumf", "%least")])
        init = self.filled(along, start)
        body = f"      %s = math.sin %a0 : f32\n      %r = {op} %s, %o : f32\n      linalg.yield %r : f32\n"
        self.emit(i, along, self.generic([(self.pick("matrix"), "matrix", "all")], (init, along, along), along, iterators, body))

    def scaled(self, i):
        along = self.random.choice([kind for kind in ("row", "column") if self.values[kind]])
        body = f"      %s = {self.random.choice(BINARY)} %a0, %a1 : f32\n      %t = math.tanh %s : f32\n      linalg.yield %t : f32\n"
        inputs = [(self.pick("matrix"), "matrix", "all"), (self.pick(along), along, along)]
        self.emit(i, "matrix", self.generic(inputs, (self.empty("matrix"), "matrix", "all"), "matrix", '"parallel", "parallel"', body))

    def turn(self, i):
        source, target = self.random.choice([("matrix", "turned"), ("turned", "matrix")])
        if not self.values[source]:
            source, target = "matrix", "turned"
        self.emit(i, target, f"linalg.transpose ins({self.pick(source)} : {self.types[source]}) "
                             f"outs({self.empty(target)} : {self.types[target]}) permutation = [1, 0]")  # fmt: skip

    def text(self):
        made = [(value, kind) for kind, values in self.values.items() for value in values if value.startswith("%v")]
        last = max(made, key=lambda result: int(result[0][2:]))
        others = [result for result in made if result != last]
        results = [last] + self.random.sample(others, min(len(others), self.random.randint(0, 2)))
        types = ", ".join(self.types[kind] for _, kind in results)
        names = ", ".join(value for value, _ in results)
        n = self.types["matrix"]
        return (f"func.func @graph(%x: {n}, %w: {self.types['square']}, %b: {self.types['column']}) -> ({types}) {{\n"
                f"  %c0 = arith.constant 0 : index\n  %c1 = arith.constant 1 : index\n  %zero = arith.constant 0.0 : f32\n"
                f"  %least = arith.constant 0xFF800000 : f32\n  %m = tensor.dim %x, %c0 : {n}\n  %n = tensor.dim %x, %c1 : {n}\n"
                + "\n".join(self.lines) + f"\n  return {names} : {types}\n}}\n")  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=12)
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()))
    options = parser.parse_args()
    failures = 0
    for seed in range(options.first_seed, options.first_seed + options.count):
        graph = Graph(seed)
        module = options.keep / f"structured-{seed}.mlir"
        module.write_text(graph.text())
        shapes = [f"{graph.rows}x{graph.columns}", f"{graph.columns}x{graph.columns}", f"{graph.columns}"]
        target = graph.random.choice(["host", "v4-expanded", "v3", "portable"])
        command = ["saccade-run", str(module), *(f"--arg={shape}:f32" for shape in shapes), f"--target={target}", "--check"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode == 0:
            module.unlink()
            continue
        failures += 1
        print(f"seed {seed}: exit {run.returncode}: {' '.join(command)}\n{run.stdout[-600:]}{run.stderr[:600]}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
