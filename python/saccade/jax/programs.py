"""Calls of compiled programs in functions of JAX, with their derivatives.

A call becomes an XLA custom call on a function of a program that is compiled at trace time, in TVM-FFI's convention. It
can be traced by `jit`, and `vmap` makes one call after another. Tangents are those of the compiled program, and linear:
JAX transposes them for gradients, which are those of the compiled program too.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from typing import Any, NamedTuple, NoReturn

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from saccade import _program
from saccade.jax.kernels import handler
from saccade.jax.linear_primitive import define, once
from saccade.module import compile

_registered: set[str] = set()
_lock = threading.Lock()


class Call(NamedTuple):
    """A call apart from its operands."""

    name: str
    """The function of the program, and of saccade.jax."""
    program: str
    results: tuple[tuple[tuple[int, ...], Any], ...]
    """Shapes and element types."""
    gradient: str | None = None
    """The program with its gradient function, which returns the gradients of all operands with float elements. None:
    the compiler makes one for the gradients that are needed."""
    tangent: str | None = None
    """The program with its function of tangents, for tangents of all operands with float elements. None: the compiler
    makes one, unless the program has a gradient of its own, which has no forward mode then."""


class Shaped:
    """The shape and element type of an array that may be traced, for the checks of arguments."""

    def __init__(self, x: Any):
        self.shape, self.ndim, self.dtype = x.shape, x.ndim, np.dtype(x.dtype)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def run(call: Call, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The results of the program for arrays in the order of its arguments."""
    return _kernel(call, call.program, "", call.results, operands)


# --- derivatives ------------------------------------------------------------------------------------------------------


def _raise_second(call: Call, *constants: Any, **parameters: Any) -> NoReturn:
    raise NotImplementedError(f"saccade.jax.{call.name}: second derivatives are not supported")


def _rule(call: Call, primals: Any, given: Any) -> Any:
    """The results and their tangents."""
    (operands,), (tangents,) = primals, given
    needed = tuple([not isinstance(tangent, SymbolicZero) and is_float(x) for tangent, x in zip(tangents, operands)])
    results = _once(call, call.program, "", call.results, operands)
    if not any(needed):
        return results, tuple([jnp.zeros(x.shape, x.dtype) for x in results])
    pushed = [tangent for tangent, is_needed in zip(tangents, needed) if is_needed]
    return results, tuple(_push.bind(*operands, *results, *pushed, call=call, needed=needed))


run.defjvp(_rule, symbolic_zeros=True)


def is_float(x: Any) -> bool:
    """Whether an array has float elements, so that it has gradients."""
    return bool(jnp.issubdtype(x.dtype, jnp.floating))


# --- the linear function ----------------------------------------------------------------------------------------------

_push = jax.extend.core.Primitive("saccade_program_jvp")
"""The tangents of the results, from the operands, the results, and the tangents of the needed operands."""


def _compute(*arguments: Any, call: Call, needed: tuple[bool, ...]) -> list[Any]:
    if call.gradient is not None and call.tangent is None:
        raise NotImplementedError(f"saccade.jax.{call.name}: forward mode (jax.jvp) is not supported; jax.grad and "
                                  "jax.vjp are")
    operands, pushed = arguments[: len(needed)], list(arguments[len(needed) + len(call.results):])
    program = call.tangent
    if program is None:
        program = _program.differentiated(call.program, needed, "attn.jvp")
    else:
        given = iter(pushed)
        pushed = [next(given) if is_needed else jnp.zeros(x.shape, x.dtype)
                  for x, is_needed in zip(operands, needed) if is_float(x)]
    found = _kernel(call, program, "_jvp", call.results * 2, (*operands, *pushed))
    return list(found[len(call.results):])


def _abstract(*arguments: Any, call: Call, needed: tuple[bool, ...]) -> list[Any]:
    return [jax.core.ShapedArray(shape, dtype) for shape, dtype in call.results]


def _transpose(given: Any, *arguments: Any, call: Call, needed: tuple[bool, ...]) -> list[Any]:
    count = len(needed) + len(call.results)
    operands = arguments[: len(needed)]
    gradients = [jnp.zeros(shape, dtype) if isinstance(gradient, ad.Zero) else gradient
                 for gradient, (shape, dtype) in zip(given, call.results)]
    program, has_gradient = call.gradient, [is_float(x) for x in operands]
    if program is None:
        program, has_gradient = _program.differentiated(call.program, needed), list(needed)
    shapes = tuple([(x.shape, x.dtype) for x, has_own in zip(operands, has_gradient) if has_own])
    found = iter(_once(call, program, "_gradient", shapes, (*arguments[:count], *gradients)))
    made = [next(found) if has_own else None for has_own in has_gradient]
    return [None] * count + [gradient for gradient, is_needed in zip(made, needed) if is_needed]


def _batch(arguments: Any, dims: Any, *, call: Call, needed: tuple[bool, ...]) -> Any:
    moved = [x if dim is None else jnp.moveaxis(x, dim, 0) for x, dim in zip(arguments, dims)]
    size = next(x.shape[0] for x, dim in zip(moved, dims) if dim is not None)

    def one(i: Any) -> Any:
        return _push.bind(*[x if dim is None else x[i] for x, dim in zip(moved, dims)], call=call, needed=needed)

    return jax.lax.map(one, jnp.arange(size)), [0] * len(call.results)


define(_push, _compute, _abstract, _transpose, _batch,
       lambda call, needed: len(needed) + len(call.results), _raise_second)


# --- kernels ----------------------------------------------------------------------------------------------------------


def _kernel(call: Call, program: str, suffix: str, results: tuple[Any, ...], operands: Any) -> tuple[Any, ...]:
    """Calls a function of a program."""
    structs = tuple([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results])
    found: tuple[Any, ...] = tuple(jax.ffi.ffi_call(_target(call.name, program) + suffix, structs,
                                                    vmap_method="sequential")(*operands))
    return found


_once = once(_kernel, 4, _raise_second)


def _target(name: str, program: str) -> str:
    """The name of the custom call of a program, which is compiled and registered unless it is known."""
    target = f"saccade_{name}_{hashlib.sha256(program.encode()).hexdigest()[:24]}"
    with _lock:
        if target not in _registered:
            for function in compile(program).functions.values():
                handler()(target + function.name.removeprefix(name), function.tvm_ffi, ["args", "rets"], platform="cpu")
            _registered.add(target)
    return target
