"""Custom calls of kernels in functions of JAX."""

from __future__ import annotations

from typing import Any

import jax
import jax.extend
from jax.interpreters import mlir


def call_kernel(name: str, results: list[Any], operands: list[Any]) -> list[Any]:
    """The results of a registered custom call."""
    first, *others = operands
    found: list[Any] = jax.ffi.ffi_call(name, results)(_checked.bind(first), *others)
    return found


_checked = jax.extend.core.Primitive("saccade_kernel")
"""The identity; its lowering refuses an export."""


def _lower(context: Any, x: Any) -> list[Any]:
    if context.module_context.lowering_parameters.for_export:
        raise NotImplementedError(
            "saccade.jax.dot_product_attention is in a function that jax.export exports: its kernel is in this process "
            'only. Pass implementation="xla" for the export: the program then has JAX\'s own attention, which '
            "saccade.jax.compile and saccade.jax.read raise to a kernel")
    return [x]


_checked.def_impl(lambda x: x)
_checked.def_abstract_eval(lambda x: x)
mlir.register_lowering(_checked, _lower)
