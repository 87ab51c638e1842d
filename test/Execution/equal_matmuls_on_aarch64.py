# REQUIRES: aarch64, numpy, ml_dtypes
# RUN: %python %s %t "%{on-aarch64}"
"""A row of a bf16 matmul has the same bits in every number of rows on AArch64 under an emulator: with panels that are packed
once, and in tasks that pack them. The targets that multiply blocks of bf16 have the bits of each other."""

import pathlib
import shlex
import subprocess
import sys

import numpy as np
from Inputs.bf16_matmuls import check, operands
from Inputs.bf16_matmuls import program as matmul

folder, (runner,) = pathlib.Path(sys.argv[1]), shlex.split(sys.argv[2])
folder.mkdir(exist_ok=True)
random = np.random.default_rng(1)


def product(target, x, w, b):
    program, out = folder / "program.mlir", folder / "out.npy"
    program.write_text(matmul(*w.shape))
    options = []
    for name, array in (("x", x), ("w", w), ("b", b)):
        np.save(folder / f"{name}.npy", array.astype(np.float32))
        options.append(f"--arg={folder / name}.npy:{'f32' if name == 'b' else 'bf16'}")
    subprocess.run(["saccade-run", program, f"--target={target}", runner, *options, f"--out={out}"], check=True)
    return np.load(out)


for depth, columns in ((64, 70), (37, 33), (1100, 40), (2053, 9)):
    x, w, b = operands(random, 401, depth, columns)
    expected = product("aarch64-bf16", x, w, b)
    check(expected, x, w, b)
    for rows in (1, 13, 193):
        np.testing.assert_array_equal(product("aarch64-bf16", x[:rows], w, b), expected[:rows])
    np.testing.assert_array_equal(product("aarch64-sve256", x, w, b), expected)
