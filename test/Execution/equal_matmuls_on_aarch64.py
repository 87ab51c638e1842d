# REQUIRES: aarch64, numpy, ml_dtypes
# RUN: %python %s %t "%{on-aarch64}"
"""A row of a bf16 matmul has the same bits in every number of rows on AArch64 under an emulator: with panels that are packed
once, and in tasks that pack them. The targets that multiply blocks of bf16 have the bits of each other."""

import pathlib
import shlex
import subprocess
import sys

import ml_dtypes
import numpy as np

PROGRAM = """
func.func @f(%x: tensor<?xKxbf16>, %w: tensor<KxNxbf16>, %b: tensor<Nxf32>) -> tensor<?xNxf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?xKxbf16>
  %e = tensor.empty(%m) : tensor<?xNxf32>
  %i = linalg.broadcast ins(%b : tensor<Nxf32>) outs(%e : tensor<?xNxf32>) dimensions = [0]
  %p = linalg.matmul ins(%x, %w : tensor<?xKxbf16>, tensor<KxNxbf16>) outs(%i : tensor<?xNxf32>) -> tensor<?xNxf32>
  return %p : tensor<?xNxf32>
}"""

folder, (runner,) = pathlib.Path(sys.argv[1]), shlex.split(sys.argv[2])
folder.mkdir(exist_ok=True)
random = np.random.default_rng(1)


def product(target, x, w, b):
    program, out = folder / "program.mlir", folder / "out.npy"
    program.write_text(PROGRAM.replace("K", str(w.shape[0])).replace("N", str(w.shape[1])))
    options = []
    for name, array in (("x", x), ("w", w), ("b", b)):
        np.save(folder / f"{name}.npy", array.astype(np.float32))
        options.append(f"--arg={folder / name}.npy:{'f32' if name == 'b' else 'bf16'}")
    subprocess.run(["saccade-run", program, f"--target={target}", runner, *options, f"--out={out}"], check=True)
    return np.load(out)


for depth, columns in ((64, 70), (37, 33), (1100, 40), (2053, 9)):
    x, w = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((401, depth), (depth, columns)))
    b = random.standard_normal(columns, dtype=np.float32)
    expected = product("aarch64-bf16", x, w, b)
    np.testing.assert_allclose(expected, x.astype("f8") @ w.astype("f8") + b, rtol=0, atol=2e-5 * depth**0.5)
    for rows in (1, 13, 193):
        np.testing.assert_array_equal(product("aarch64-bf16", x[:rows], w, b), expected[:rows])
    np.testing.assert_array_equal(product("aarch64-sve256", x, w, b), expected)
