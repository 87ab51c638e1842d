"""Attention in JAX functions, and compilation of JAX functions through StableHLO.

`dot_product_attention` is `jax.nn.dot_product_attention`, and `linear_attention` is `saccade.linear_attention`, for use
in functions of JAX. `compile` lowers a whole function and compiles its ops `stablehlo.*`; the result takes and returns
JAX arrays. `read` returns only the program. Nothing is computed when a function is lowered; the compiler implements the
ops (docs/guides/jax.md). Requires the package jax, and the first two also jax-tvm-ffi.
"""

from saccade.jax.attention import dot_product_attention
from saccade.jax.compiled import Compiled, compile
from saccade.jax.errors import LoweringError
from saccade.jax.linear import linear_attention
from saccade.jax.program import Program, Value
from saccade.jax.reader import read, read_file

__all__ = [
    "Compiled",
    "LoweringError",
    "Program",
    "Value",
    "compile",
    "dot_product_attention",
    "linear_attention",
    "read",
    "read_file",
]
