# REQUIRES: numpy, ml_dtypes
# RUN: %python %s
# RUN: %python %s %{v4-bf16}
# RUN: %python %s %{v4-amx}
"""A row of a bf16 matmul with a bias has the same bits in every number of rows and with packed weights. The reduced
dimension ends within a step of tile registers, or is longer than a part of the sums."""

import sys

import numpy as np
from Inputs.bf16_matmuls import check, operands, program

import saccade

target = sys.argv[1] if len(sys.argv) > 1 else "host"
random = np.random.default_rng(1)
for depth, columns in ((64, 70), (37, 33), (1100, 40), (2048, 300)):
    x, w, b = operands(random, 401, depth, columns)
    plain = saccade.compile(program(depth, columns), target=target).f
    constant = program(depth, columns, constant=True)
    packed = saccade.compile(constant, target=target, prepack=True).f.bind(w=w)
    expected = plain(x, w, b)
    check(expected, x, w, b)
    for rows in (1, 5, 31, 40, 192, 193, 401):
        np.testing.assert_array_equal(plain(x[:rows], w, b), expected[:rows])
        np.testing.assert_array_equal(packed(x=x[:rows], b=b), expected[:rows])
