"""Calls a compiled function on NumPy arrays, first of all into the caller's memory: it imports neither torch nor TVM-FFI."""

import sys

import numpy as np
import programs

import saccade

attend = saccade.compile(programs.attention()).attend
q, k, v = np.random.default_rng(3).standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
first = np.empty_like(q)
attend.into(q, k, v, first)  # before anything else has seen an array
assert np.array_equal(first, attend(q, k, v))
assert "torch" not in sys.modules and "tvm_ffi" not in sys.modules, "NumPy arrays need neither"
