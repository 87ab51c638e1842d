"""Writes an exported module of PyTorch as a program: python -m saccade.torch EXPORTED.pt2 -o MODEL.mlir

Weights go into files MODEL.<name>.npy beside it. Exit codes: 0 done; 1 the program was refused; 2 usage; 3 a file could
not be read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.torch import ExportError, load, read

if __name__ == "__main__":
    model = "what torch.export.save wrote, a .pt2 file,"
    sys.exit(write_program("saccade.torch", model, lambda path: read(load(path), path), ExportError))
