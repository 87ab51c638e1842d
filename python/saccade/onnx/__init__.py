"""Models of ONNX as programs.

`read` makes of a model file the program that the compiler takes: its nodes one by one, as ops `onnx.*` in generic
form, and its
weights as arrays beside it. Nothing is computed here; what the operators mean, the compiler knows (docs/guides/onnx.md).
It needs the package onnx, for its protocol buffers.
"""

from saccade._graph import Program, Value
from saccade.onnx.errors import ModelError
from saccade.onnx.reader import read, read_model

__all__ = ["ModelError", "Program", "Value", "read", "read_model"]
