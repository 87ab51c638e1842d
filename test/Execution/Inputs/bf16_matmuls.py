"""Matmuls of bf16 with a bias, in any number of rows."""

import ml_dtypes
import numpy as np

PROGRAM = """
func.func @f(%x: tensor<?xKxbf16>, %w: tensor<KxNxbf16>ATTRIBUTES, %b: tensor<Nxf32>) -> tensor<?xNxf32> {
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?xKxbf16>
  %e = tensor.empty(%m) : tensor<?xNxf32>
  %i = linalg.broadcast ins(%b : tensor<Nxf32>) outs(%e : tensor<?xNxf32>) dimensions = [0]
  %p = linalg.matmul ins(%x, %w : tensor<?xKxbf16>, tensor<KxNxbf16>) outs(%i : tensor<?xNxf32>) -> tensor<?xNxf32>
  return %p : tensor<?xNxf32>
}"""


def program(depth, columns, constant=False):
    attributes = " {attn.constant}" if constant else ""
    return PROGRAM.replace("K", str(depth)).replace("N", str(columns)).replace("ATTRIBUTES", attributes)


def operands(random, rows, depth, columns):
    """(x, w, b): rows, weights and bias."""
    x, w = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((rows, depth), (depth, columns)))
    return x, w, random.standard_normal(columns, dtype=np.float32)


def check(found, x, w, b):
    np.testing.assert_allclose(found, x.astype("f8") @ w.astype("f8") + b, rtol=0, atol=2e-5 * len(w) ** 0.5)
