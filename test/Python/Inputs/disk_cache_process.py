"""Compiles in a fresh process, for test_disk_cache.py: prints cache_info() and a checksum of the results as JSON.

Arguments: what to compile, "attention", "compile", "lint" or "bind".
"""

import json
import sys
import warnings

import numpy as np
import programs

import saccade

WRONG_SCALE = """func.func @attend(%x: tensor<8x?x64xf32>) -> tensor<8x?x64xf32> {
  %o = attn.attention %x[h,s,d], %x[h,s,d], %x[h,s,d] scale(0.0442)
    : (tensor<8x?x64xf32>, tensor<8x?x64xf32>, tensor<8x?x64xf32>) -> tensor<8x?x64xf32>
  return %o : tensor<8x?x64xf32>
}"""
LINEAR = """func.func @f(%x: tensor<?x16xf32>, %w: tensor<16x16xf32> {attn.constant}) -> tensor<?x16xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x16xf32>
  %empty = tensor.empty(%n) : tensor<?x16xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x16xf32>) -> tensor<?x16xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x16xf32>, tensor<16x16xf32>) outs(%init : tensor<?x16xf32>)
    -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}"""
q, k, v = np.random.default_rng(1).standard_normal((3, 1, 2, 9, 16)).astype(np.float32)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    if sys.argv[1] == "bind":
        f = saccade.compile(LINEAR).f
        result = f.bind(w=np.eye(16, dtype=np.float32))(q[0, 0])
    elif sys.argv[1] == "attention":
        slopes = np.array([0.5, 0.25], np.float32)
        result = saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i), causal="bottom_right")
    elif sys.argv[1] == "compile":
        result = saccade.compile(programs.attention()).attend(q, k, v)
    elif sys.argv[1] == "lint":
        result = saccade.compile(WRONG_SCALE, lint=True).attend(np.ones((8, 3, 64), np.float32))
    else:
        raise ValueError(sys.argv[1])
print(json.dumps({"info": saccade.cache_info()._asdict(), "sum": float(result.astype(np.float64).sum()),
                  "warnings": [str(each.message) for each in caught], "directory": saccade.disk_cache()}))  # fmt: skip
