# Every attention pattern is raised to one op, and so is its twin with other names and commuted operands. The compiled
# op agrees with the reference result of the graph.
# REQUIRES: numpy
# RUN: %python %s %S/Inputs %t.mlir

import subprocess
import sys

import numpy

sys.path.insert(0, sys.argv[1])
from graphs import Graph, function
from patterns import PATTERNS, M, N


def run(*command, stdin=None):
    done = subprocess.run(command, input=stdin, capture_output=True, text=True)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"
    return done.stdout


def build(name, commuted):
    arguments, _, _, _, make = PATTERNS[name]
    g = Graph(name, arguments, commuted)
    return g.text(make(g))


def main():
    path = sys.argv[2]
    names = sys.argv[3:] or list(PATTERNS)
    texts = {commuted: "module {\n" + "".join(build(name, commuted) for name in names) + "}\n"
             for commuted in (False, True)}
    pipeline = "builtin.module(func.func(attn-raise-attention{remarks=true}),canonicalize,cse)"
    raised = {c: run("saccade-opt", f"--pass-pipeline={pipeline}", stdin=text) for c, text in texts.items()}
    failures = []
    for name in names:
        arguments, expects, forbids, sizes, _ = PATTERNS[name]
        for commuted, module in raised.items():
            text = function(module, name)
            if text.count("attn.attention") != 1 or "math.exp" in text or "linalg.softmax" in text:
                failures.append(f"{name}{' (twin)' if commuted else ''}: not one attention:\n{text}")
            for expected in expects:
                if expected not in text:
                    failures.append(f"{name}{' (twin)' if commuted else ''}: no '{expected}' in\n{text}")
            for forbidden in forbids:
                if forbidden in text:
                    failures.append(f"{name}{' (twin)' if commuted else ''}: '{forbidden}' in\n{text}")
    assert not failures, "\n".join(failures)
    for name in names:
        arguments, _, _, sizes, _ = PATTERNS[name]
        random = numpy.random.default_rng(7)
        files = []
        for i, (shape, element) in enumerate(arguments):
            square = name in ("batches_and_heads_as_one",)
            extents = [extent or (N if i == 0 or square else M) for extent in shape]
            data = (sizes[i](random) if i in sizes
                    else random.standard_normal(extents).astype(element.replace("f", "float")))
            if i in sizes and data.ndim >= 1 and data.dtype.kind in "bi":
                data[..., 0] = 1  # every row has a visible key
            if i in sizes and name.startswith("padding"):
                data[..., 0] = 1
            numpy.save(f"{path}.{i}.npy", data)
            files.append(f"--arg={path}.{i}.npy:{element}")
        # One function at a time, to avoid compiling the whole module for each. The reference evaluates the graph before
        # raising.
        with open(path, "w") as file:
            file.write("module {\n" + function(texts[False], name) + "}\n")
        run("saccade-run", path, f"--entry={name}", *files, "--check")


main()
