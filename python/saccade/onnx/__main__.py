"""Writes an ONNX model as a program: python -m saccade.onnx MODEL.onnx -o MODEL.mlir

Weights are written to MODEL.<name>.npy. Exit codes: 0 success; 1 the model is rejected; 2 usage; 3 a file cannot be
read or written.
"""

from __future__ import annotations

import sys

from saccade._command import write_program
from saccade.onnx import ModelError, read

if __name__ == "__main__":
    sys.exit(write_program("saccade.onnx", "an ONNX model (.onnx)", read, ModelError))
