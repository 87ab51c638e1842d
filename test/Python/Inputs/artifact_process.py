"""Loads a library and calls it in a process that loads neither the compiler nor LLVM, torch or TVM-FFI.
Argument: the library.
"""

import pathlib
import sys

import numpy as np

import saccade

attend = saccade.load(sys.argv[1]).attend_bf16
assert not {"torch", "tvm_ffi", "ml_dtypes"} & set(sys.modules), sorted(sys.modules)
exponential = saccade.load(sys.argv[1]).exponential
x = np.linspace(-1, 1, 9)
np.testing.assert_allclose(exponential(x), np.exp(x), rtol=1e-15)
maps = pathlib.Path("/proc/self/maps").read_text()
assert "artifact.so" in maps and "libsaccade" not in maps and "LLVM" not in maps, maps
