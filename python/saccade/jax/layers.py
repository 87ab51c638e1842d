"""`saccade.jax.causal_conv1d` and `saccade.jax.gated_rms_norm`: what surrounds linear attention in its layers, in
functions of JAX."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from saccade import _conv, conv, norms
from saccade.jax.programs import Call, Shaped, run


def causal_conv1d(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: str | None = None,
    state: Any = None,
    return_state: bool = False,
    cu_seqlens: Any = None,
    kv_len: Any = None,
    layout: str | None = None,
) -> Any:
    """`saccade.causal_conv1d` of JAX's arrays, with its parameters: x is [batch, dim, length] unless `layout` says
    otherwise, weight [dim, width], bias [dim], and the result is the output, or (output, state) with `return_state`.

    Works in `jit`, `vmap` and `scan`, on CPUs. Gradients are those of x, weight, bias and state (jax.grad, jax.vjp).
    Values of offsets and lengths are not checked; positions are those within x.

    Raises:
        ValueError: mismatched arguments, an unknown activation or layout.
        TypeError: an element type or a number of dimensions that `saccade.causal_conv1d` refuses.
        NotImplementedError: a second derivative, or forward mode (jax.jvp).
        ImportError: the package jax-tvm-ffi is missing.
    """
    x, weight, bias, state, cu_seqlens, kv_len = (
        None if each is None else jnp.asarray(each) for each in (x, weight, bias, state, cu_seqlens, kv_len))
    of_x, of_weight, of_bias, of_state, of_offsets, of_lengths = (
        None if each is None else Shaped(each) for each in (x, weight, bias, state, cu_seqlens, kv_len))
    form = conv.form_of(of_x, of_weight, of_bias, activation, of_state, return_state, of_offsets, of_lengths, layout)
    lengths = cu_seqlens if form.is_ragged else kv_len
    if state is None and return_state:
        state = jnp.zeros(conv.state_shape(form, x, lengths), x.dtype)
    if x.size == 0:
        return (x, state) if return_state else x
    # A state without elements stays as it is.
    read = None if state is None or state.size == 0 else state
    form = form._replace(has_state=read is not None, returns_state=bool(return_state) and read is not None)
    operands = tuple([each for each in (x, weight, bias, read, lengths) if each is not None])
    results = ((x.shape, x.dtype),) + (((read.shape, read.dtype),) if form.returns_state and read is not None else ())
    gradient = _conv.program(form._replace(has_gradient=True))
    output, *last = run(Call(_conv.NAME, _conv.program(form), results, gradient), operands)
    return (output, last[0] if last else state) if return_state else output


def gated_rms_norm(
    x: Any,
    gate: Any,
    weight: Any,
    *,
    eps: float = 1e-6,
    activation: str = "silu",
    norm_before_gate: bool = True,
    group_size: int | None = None,
) -> Any:
    """`saccade.gated_rms_norm` of JAX's arrays, with its parameters: x and gate are [..., dim], weight [dim], and the
    result has the shape and element type of x.

    Works in `jit`, `vmap` and `scan`, on CPUs. Both modes of differentiation work (jax.grad, jax.jvp).

    Raises:
        ValueError: mismatched shapes, an unknown activation.
        TypeError: an element type that `saccade.gated_rms_norm` refuses.
        NotImplementedError: a second derivative.
        ImportError: the package jax-tvm-ffi is missing.
    """
    x, gate, weight = (jnp.asarray(each) for each in (x, gate, weight))
    form = norms.form_of(Shaped(x), Shaped(gate), Shaped(weight), eps, activation, norm_before_gate, group_size)
    if x.size == 0:
        return x
    shape = (-1, x.shape[-1] // form.size, form.size)
    operands = x.reshape(shape), gate.reshape(shape), weight.reshape(shape[1:])
    gradient = norms.program(form._replace(has_gradient=True))
    call = Call(norms.NAME, norms.program(form), ((operands[0].shape, x.dtype),), gradient,
                gradient.replace("{attn.gradient}", "{attn.jvp}"))
    return run(call, operands)[0].reshape(x.shape)
