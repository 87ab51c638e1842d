"""Reads ONNX models as programs.

`read` writes each node of a model file as an op `onnx.*` in generic form and returns the weights as arrays. Nothing is
computed here; the compiler implements the operators (docs/guides/onnx.md). Requires the package onnx.
"""

from saccade._graph import Program, Value
from saccade.onnx.errors import ModelError
from saccade.onnx.reader import read, read_model

__all__ = ["ModelError", "Program", "Value", "read", "read_model"]
