# REQUIRES: numpy, ml_dtypes
# RUN: %python %s
# RUN: %python %s %{v4-bf16}
# RUN: %python %s %{v4-amx}
"""A row of a bf16 matmul with a bias has the same bits in every number of rows and with packed weights. The reduced
dimension ends within a step of tile registers, or is longer than a part of the sums."""

import sys

import ml_dtypes
import numpy as np

import saccade

PROGRAM = """
func.func @f(%x: tensor<?xKxbf16>, %w: tensor<KxNxbf16>{constant}, %b: tensor<Nxf32>) -> tensor<?xNxf32> {{
  %c0 = arith.constant 0 : index
  %m = tensor.dim %x, %c0 : tensor<?xKxbf16>
  %e = tensor.empty(%m) : tensor<?xNxf32>
  %i = linalg.broadcast ins(%b : tensor<Nxf32>) outs(%e : tensor<?xNxf32>) dimensions = [0]
  %p = linalg.matmul ins(%x, %w : tensor<?xKxbf16>, tensor<KxNxbf16>) outs(%i : tensor<?xNxf32>) -> tensor<?xNxf32>
  return %p : tensor<?xNxf32>
}}"""

target = sys.argv[1] if len(sys.argv) > 1 else "host"
random = np.random.default_rng(1)
for depth, columns in ((64, 70), (37, 33), (1100, 40), (2048, 300)):
    x, w = (random.standard_normal(shape).astype(ml_dtypes.bfloat16) for shape in ((401, depth), (depth, columns)))
    b = random.standard_normal(columns, dtype=np.float32)
    text = PROGRAM.replace("K", str(depth)).replace("N", str(columns))
    plain = saccade.compile(text.format(constant=""), target=target).f
    packed = saccade.compile(text.format(constant=" {attn.constant}"), target=target, prepack=True).f.bind(w=w)
    expected = plain(x, w, b)
    np.testing.assert_allclose(expected, x.astype("f8") @ w.astype("f8") + b, rtol=0, atol=2e-5 * depth**0.5)
    for rows in (1, 5, 31, 40, 192, 193, 401):
        np.testing.assert_array_equal(plain(x[:rows], w, b), expected[:rows])
        np.testing.assert_array_equal(packed(x=x[:rows], b=b), expected[:rows])
