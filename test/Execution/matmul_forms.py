# REQUIRES: numpy
# RUN: %python %s v3
# RUN: %python %s %{v4}
"""Results of an f32 matmul have the same bits whether it copies its LHS, which it does if rows are a multiple of 4096
bytes apart, or reads it in place. Rows and columns end within a register block; the reduced dimension may be empty."""

import sys

import numpy as np

import saccade

PROGRAM = """
func.func @f(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %b: tensor<?xf32>) -> tensor<?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %m = tensor.dim %x, %c0 : tensor<?x?xf32>
  %n = tensor.dim %w, %c1 : tensor<?x?xf32>
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %i = linalg.broadcast ins(%b : tensor<?xf32>) outs(%e : tensor<?x?xf32>) dimensions = [0]
  %p = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%i : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}"""


def with_stride(x, stride):
    """`x` in memory with rows of `stride` elements."""
    memory = np.zeros((len(x), stride), x.dtype)
    memory[:, : x.shape[1]] = x
    return memory[:, : x.shape[1]]


random = np.random.default_rng(2)
multiply = saccade.compile(PROGRAM, target=sys.argv[1]).f
for rows, depth, columns in ((401, 1000, 45), (205, 1024, 16), (193, 300, 300), (387, 128, 257), (401, 0, 45)):
    x, w = random.standard_normal((rows, depth), dtype="f4"), random.standard_normal((depth, columns), dtype="f4")
    b = random.standard_normal(columns, dtype="f4")
    copied, unpacked = (multiply(with_stride(x, stride), w, b) for stride in (1024, 1040))
    np.testing.assert_array_equal(copied.view("i4"), unpacked.view("i4"))
    np.testing.assert_allclose(copied, x.astype("f8") @ w.astype("f8") + b, rtol=0, atol=1e-5 * (depth + 1) ** 0.5)
