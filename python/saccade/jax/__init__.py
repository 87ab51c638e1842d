"""Functions of JAX as programs.

`compile` lowers a function and compiles what JAX writes, ops `stablehlo.*` in generic form; what it gives takes and
returns JAX's arrays. `read` makes only the program. Nothing is computed here; what the ops mean, the compiler knows
(docs/guides/jax.md). It needs the package jax.
"""

from saccade.jax.compiled import Compiled, compile
from saccade.jax.errors import LoweringError
from saccade.jax.program import Program, Value
from saccade.jax.reader import read, read_file

__all__ = ["Compiled", "LoweringError", "Program", "Value", "compile", "read", "read_file"]
