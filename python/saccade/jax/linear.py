"""`saccade.jax.linear_attention`: `saccade.linear_attention` in functions of JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from saccade import _linear
from saccade.jax.programs import Call, Shaped, run


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

    Works in `jit`, `vmap` and `scan`, on CPUs. Both modes of differentiation work (jax.grad, jax.jvp), once: a second
    derivative is a NotImplementedError. Values of gates are not checked.

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
    shaped = {name: x if x is None else Shaped(x) for name, x in given.items()}
    form = _linear.form_of(Shaped(q), Shaped(k), Shaped(v), shaped,
                           (feature_map, causal, normalize, scale, return_state, l2norm, layout))
    operands = (q, k, v, *[given[name] for name, _, _ in form.operands])
    shapes = _linear.result_shapes(form.layout, q.shape, v.shape, form.state_columns, given["cu_seqlens"])
    dtypes = q.dtype, jnp.dtype(jnp.float64 if form.precision == "f64" else jnp.float32)
    results = tuple(zip(shapes, dtypes))[: 1 + form.return_state]
    found = run(Call(_linear.NAME, _linear.program(form), results), operands)
    return tuple(found) if return_state else found[0]
