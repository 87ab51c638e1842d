# REQUIRES: numpy
# RUN: %python %s %S/Inputs/outer-product.mlir %t.so
"""Running out of memory in a call through TVM-FFI is a MemoryError, after which calls succeed."""

import subprocess
import sys

import numpy as np
import tvm_ffi

program, library = sys.argv[1:3]
subprocess.run(["saccade-compile", program, "--emit=so", "-o", library], check=True)
entry = tvm_ffi.load_module(library).main


def outer_product(size):
    """Sums the rows of a size × size matrix of ones, which is materialised."""
    column, row = np.ones((size, 1), np.float32), np.ones((1, size), np.float32)
    result = np.zeros((size, 1), np.float32)
    entry(column, row, column, result)
    return result


try:
    outer_product(1_000_000)
    sys.exit("4 TB were had")
except MemoryError as error:
    assert str(error) == "main: out of memory", error
assert (outer_product(7) == 7).all()
