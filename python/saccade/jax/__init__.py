"""Compiles JAX functions through StableHLO.

`compile` lowers a function and compiles its ops `stablehlo.*`; the result takes and returns JAX arrays. `read` returns
only the program. Nothing is computed here; the compiler implements the ops (docs/guides/jax.md). Requires the package
jax.
"""

from saccade.jax.compiled import Compiled, compile
from saccade.jax.errors import LoweringError
from saccade.jax.program import Program, Value
from saccade.jax.reader import read, read_file

__all__ = ["Compiled", "LoweringError", "Program", "Value", "compile", "read", "read_file"]
