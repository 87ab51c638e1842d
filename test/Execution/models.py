#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Whole encoders in the form that importers produce (transposed heads, 3-D matmuls, constant weights) agree with the
reference in f32 and bf16, with pre-norm and post-norm."""

import dataclasses
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "benchmarks"))
from saccade_bench.model_text import Encoder, program

BEHIND = Encoder("behind", layers=1, width=32, heads=2, inner=64, is_pre_norm=False, epsilon=1e-5, batch=3, sequence=67)
FRONT = dataclasses.replace(BEHIND, name="front", layers=2, is_pre_norm=True)


def check(model, type, folder):
    """Runs the model on random inputs; --check compares with float64."""
    module = folder / f"{model.name}-{type}.mlir"
    module.write_text(program(model, type))
    shapes = [(model.batch, model.sequence, model.width), *(shape for _, shape in model.parameters())]
    arguments = [f"--arg={'x'.join(map(str, shape))}:{type}:{seed}" for seed, shape in enumerate(shapes)]
    subprocess.run(["saccade-run", module, *arguments, "--check"], check=True)


def test_layers_with_the_norm_behind(folder):
    check(BEHIND, "f32", folder)
    check(BEHIND, "bf16", folder)


def test_layers_with_the_norm_in_front(folder):
    check(FRONT, "f32", folder)
    check(FRONT, "bf16", folder)


def test_heads_and_rows_are_only_addressed(folder):
    """After the transforms there are no transposes, and all matmuls are 2-D."""
    module = folder / "front.mlir"
    module.write_text(program(FRONT, "f32"))
    done = subprocess.run(["saccade-compile", module, "--emit=mlir", "--stop-after=transforms", "-o", "-"], check=True,
                          capture_output=True, text=True)  # fmt: skip
    body = done.stdout[: done.stdout.index("main.shapes")]
    assert "linalg.transpose" not in body
    products = [line for line in body.splitlines() if "linalg.generic" in line and '"reduction"' in line]
    assert products and not any('"parallel", "parallel", "parallel"' in line for line in products), products
    assert "[b,s,h,d]" in body


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        for test in (test_layers_with_the_norm_behind, test_layers_with_the_norm_in_front,
                     test_heads_and_rows_are_only_addressed):
            test(pathlib.Path(name))
