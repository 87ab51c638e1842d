"""Attention in JAX functions, and compilation of JAX functions through StableHLO.

`dot_product_attention` is `jax.nn.dot_product_attention`; `linear_attention`, `causal_conv1d` and `gated_rms_norm` are
the functions of `saccade`, for use in functions of JAX. `compile` lowers a whole function and compiles its ops
`stablehlo.*`; the result takes and returns JAX arrays. `read` returns only the program. Nothing is computed when a
function is lowered; the compiler implements the ops (docs/guides/jax.md). Requires the package jax, and the functions
also jax-tvm-ffi.
"""

from saccade.jax.attention import dot_product_attention
from saccade.jax.compiled import Compiled, compile
from saccade.jax.errors import LoweringError
from saccade.jax.layers import causal_conv1d, gated_rms_norm
from saccade.jax.linear import linear_attention
from saccade.jax.program import Program, Value
from saccade.jax.reader import read, read_file

__all__ = [
    "Compiled",
    "LoweringError",
    "Program",
    "Value",
    "causal_conv1d",
    "compile",
    "dot_product_attention",
    "gated_rms_norm",
    "linear_attention",
    "read",
    "read_file",
]
