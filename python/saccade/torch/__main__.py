"""Writes an exported PyTorch module as a program: python -m saccade.torch EXPORTED.pt2 -o MODEL.mlir

Weights are written to MODEL.<name>.npy. Exit codes: 0 success; 1 the program is rejected; 2 usage; 3 a file cannot be
read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.torch import ExportError, load, read

if __name__ == "__main__":
    model = "an exported PyTorch module (.pt2)"
    sys.exit(write_program("saccade.torch", model, lambda path: read(load(path), path), ExportError))
