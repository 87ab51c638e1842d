"""Compiles PyTorch modules through torch.export.

`compile` takes a module or an exported program and returns a callable on torch tensors. `read` returns only the
program: one op `torch.aten.*` in generic form per node of the exported graph. Nothing is computed here; the compiler
implements the operators (docs/guides/torch.md).
"""

from saccade.torch.compiled import Compiled, compile
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Weight
from saccade.torch.reader import load, read

__all__ = ["Compiled", "ExportError", "Program", "Weight", "compile", "load", "read"]
