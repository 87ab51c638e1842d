"""Writes a model of ONNX as a program: python -m saccade.onnx MODEL.onnx -o MODEL.mlir

Weights go into files MODEL.<name>.npy beside it. Exit codes: 0 done; 1 the model was refused; 2 usage; 3 a file could
not be read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.onnx import ModelError, read

if __name__ == "__main__":
    sys.exit(write_program("saccade.onnx", "a model of ONNX, a .onnx file,", read, ModelError))
