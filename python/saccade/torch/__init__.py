"""Modules of PyTorch, exported and compiled.

`compile` makes of a module, or of what `torch.export` gives, a callable that takes and returns torch tensors. `read`
makes only the program: the nodes of the exported graph one by one, as ops `torch.aten.*` in generic form. Nothing is
computed here; what the operators mean, the compiler knows (docs/guides/torch.md).
"""

from saccade.torch.compiled import Compiled, compile
from saccade.torch.errors import ExportError
from saccade.torch.program import Program, Weight
from saccade.torch.reader import load, read

__all__ = ["Compiled", "ExportError", "Program", "Weight", "compile", "load", "read"]
