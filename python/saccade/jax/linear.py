"""`saccade.jax.linear_attention`: `saccade.linear_attention` in functions of JAX.

The call becomes an XLA custom call on a program that is compiled at trace time, in TVM-FFI's convention. It can be
traced by `jit`, `vmap` makes one call after another, and gradients are those of the compiled program.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saccade import _linear, _program
from saccade.jax.kernels import handler
from saccade.module import compile

_registered: set[str] = set()
_lock = threading.Lock()


def linear_attention(
    q: Any,
    k: Any,
    v: Any,
    *,
    feature_map: str = "identity",
    causal: bool | str | int | None = False,
    normalize: bool = False,
    scale: float | None = None,
    l2norm: float | None = None,
    decay: Any = None,
    beta: Any = None,
    erase: Any = None,
    state: Any = None,
    return_state: bool = False,
    cu_seqlens: Any = None,
    kv_len: Any = None,
    layout: str | None = None,
) -> Any:
    """`saccade.linear_attention` of JAX's arrays, with its parameters: q, k and v are [batch, heads, length, d] unless
    `layout` says otherwise, and the result is the output, or (output, state) with `return_state`.

    Works in `jit`, `vmap` and `scan`, on CPUs. Reverse mode works once: a second derivative and forward mode are a
    NotImplementedError or a TypeError of JAX. Values of gates are not checked.

    Raises:
        ValueError: mismatched arguments or an unknown feature map.
        TypeError: an element type other than float64, float32, float16 or bfloat16, or another number of dimensions.
        saccade.CompileError: the call is differentiated, and it has no gradient.
        ImportError: the package jax-tvm-ffi is missing.
    """
    q, k, v = (jnp.asarray(x) for x in (q, k, v))
    given = {name: None if x is None else jnp.asarray(x)
             for name, x in (("decay", decay), ("beta", beta), ("erase", erase), ("state", state),
                             ("cu_seqlens", cu_seqlens), ("kv_len", kv_len))}
    shaped = {name: x if x is None else _Shaped(x) for name, x in given.items()}
    form = _linear.form_of(_Shaped(q), _Shaped(k), _Shaped(v), shaped,
                           (feature_map, causal, normalize, scale, return_state, l2norm, layout))
    found = _call(form, (q, k, v, *[given[name] for name, _, _ in form.operands]))
    return tuple(found) if return_state else found[0]


class _Shaped:
    """The shape and element type of an array that may be traced, for the checks of arguments."""

    def __init__(self, x: Any):
        self.shape, self.ndim, self.dtype = x.shape, x.ndim, np.dtype(x.dtype)


# --- the call and its gradient ----------------------------------------------------------------------------------------


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _call(form: _linear.Form, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The output, and the final state if the form returns it."""
    return _kernel(_linear.program(form), "", _results(form, operands), operands)


def _forward(form: _linear.Form, operands: tuple[Any, ...]) -> Any:
    results = _once(_differentiated(form), "", _results(form, operands), operands)
    return results, (operands, results)


def _backward(form: _linear.Form, saved: Any, gradients: Any) -> Any:
    operands, results = saved
    shapes = tuple([jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands if jnp.issubdtype(x.dtype, jnp.floating)])
    found = iter(_once(_differentiated(form), "_gradient", shapes, (*operands, *results, *gradients)))
    return (tuple([next(found) if jnp.issubdtype(x.dtype, jnp.floating) else np.zeros(x.shape, jax.dtypes.float0)
                   for x in operands]),)


_call.defvjp(_forward, _backward)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _once(program: str, suffix: str, results: tuple[Any, ...], operands: tuple[Any, ...]) -> Any:
    """`_kernel` in a rule that JAX would differentiate for a second derivative."""
    return _kernel(program, suffix, results, operands)


@_once.defjvp  # type: ignore[untyped-decorator]
def _refuse(program: str, suffix: str, results: Any, primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("saccade.jax.linear_attention: second derivatives are not supported")


def _differentiated(form: _linear.Form) -> str:
    return _program.differentiated(_linear.program(form), [True] * (3 + len(form.operands)))


def _offsets(form: _linear.Form, operands: tuple[Any, ...]) -> Any:
    """The offsets of a ragged batch, or None."""
    names = [name for name, _, _ in form.operands]
    return operands[3 + names.index("cu_seqlens")] if "cu_seqlens" in names else None


def _results(form: _linear.Form, operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """The shapes and element types of the results."""
    shapes = _linear.result_shapes(form.layout, operands[0].shape, operands[2].shape, form.state_columns,
                                   _offsets(form, operands))
    dtypes = operands[0].dtype, jnp.float64 if form.precision == "f64" else jnp.float32
    return tuple([jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in zip(shapes, dtypes)][: 1 + form.return_state])


def _kernel(program: str, suffix: str, results: tuple[Any, ...], operands: tuple[Any, ...]) -> tuple[Any, ...]:
    """Calls a function of a program."""
    call = jax.ffi.ffi_call(_target(program) + suffix, results, vmap_method="sequential")
    found: tuple[Any, ...] = tuple(call(*operands))
    return found


def _target(program: str) -> str:
    """The name of the custom call of a program, which is compiled and registered unless it is known."""
    name = f"saccade_linear_{hashlib.sha256(program.encode()).hexdigest()[:24]}"
    with _lock:
        if name not in _registered:
            for function in compile(program).functions.values():
                target = name + function.name.removeprefix(_linear.NAME)
                handler()(target, function.tvm_ffi, ["args", "rets"], platform="cpu")
            _registered.add(name)
    return name
