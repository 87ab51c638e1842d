"""Writes an exported function of JAX as a program: python -m saccade.jax FILE -o PROGRAM.mlir

FILE has the bytes of `jax.export.Exported.serialize()`. Constants go into files PROGRAM.constant_<i>.npy beside it.
Exit codes: 0 done; 1 the file was refused; 2 usage; 3 a file could not be read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.jax import LoweringError, read_file

if __name__ == "__main__":
    sys.exit(write_program("saccade.jax", "what jax.export.Exported.serialize() gives, a file,", read_file,
                           LoweringError))
