"""Writes an exported JAX function as a program: python -m saccade.jax FILE -o PROGRAM.mlir

FILE contains the bytes of `jax.export.Exported.serialize()`. Constants are written to PROGRAM.constant_<i>.npy. Exit
codes: 0 success; 1 the file is rejected; 2 usage; 3 a file cannot be read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.jax import LoweringError, read_file

if __name__ == "__main__":
    sys.exit(write_program("saccade.jax", "a serialized jax.export.Exported", read_file,
                           LoweringError))
