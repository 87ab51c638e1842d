#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""The usual first example of self-attention in NumPy: 4 tokens, d_k = d_v = 8, seed 0, in f64."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import run

np.random.seed(0)
Q, K, V = np.random.rand(4, 8), np.random.rand(4, 8), np.random.rand(4, 8)
scores = np.dot(Q, K.T) / np.sqrt(8)
exponentials = np.exp(scores - np.max(scores, axis=1, keepdims=True))
weights = exponentials / exponentials.sum(axis=1, keepdims=True)
expected = np.dot(weights, V)

found = run("scaled-dot-product.mlir", "numpy_example", Q, K, V)
np.testing.assert_allclose(found, expected, rtol=1e-13)
# What NumPy prints for it, so that a change of its generator would be noticed too.
np.testing.assert_allclose(expected[0, :4], [0.49233402, 0.55411178, 0.52243496, 0.33936411], rtol=0, atol=5e-9)
