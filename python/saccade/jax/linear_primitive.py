"""What the rules of JAX for compiled tangents share: a linear function of tangents, and the error for second
derivatives."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
from jax.interpreters import ad, batching, mlir


def once(function: Callable[..., Any], constants: int, refuse: Callable[..., Any]) -> Any:
    """`function`, whose first `constants` arguments are not arrays, for a rule that JAX would differentiate for a
    second derivative: `refuse` is called with these arguments then, and raises."""
    made = jax.custom_jvp(function, nondiff_argnums=tuple(range(constants)))
    made.defjvp(lambda *arguments: refuse(*arguments[:constants]))
    return made


def define(primitive: Any, compute: Callable[..., Any], abstract: Callable[..., Any], transpose: Callable[..., Any],
           batch: Callable[..., Any], count: Callable[..., int], refuse: Callable[..., Any]) -> None:
    """Defines a primitive that is linear in its last arguments.

    compute: the results, which XLA compiles too.
    count: the number of the first arguments, in which it is not linear, from the parameters.
    refuse: raises the error for a derivative in these, and is called with the parameters.
    """
    def push(primals: Any, tangents: Any, **parameters: Any) -> Any:
        first = count(**parameters)
        if any(not isinstance(tangent, ad.Zero) for tangent in tangents[:first]):
            refuse(**parameters)
        bind = functools.partial(primitive.bind, **parameters)
        results = bind(*primals)
        if all(isinstance(tangent, ad.Zero) for tangent in tangents):
            return results, [ad.Zero.from_primal_value(each) for each in results]
        return results, bind(*primals[:first], *map(ad.instantiate_zeros, tangents[first:]))

    primitive.multiple_results = True
    primitive.def_impl(compute)
    primitive.def_abstract_eval(abstract)
    ad.primitive_jvps[primitive] = push
    ad.primitive_transposes[primitive] = transpose
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(compute, multiple_results=True))
