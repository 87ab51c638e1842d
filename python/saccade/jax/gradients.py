"""The kernel with its gradients, and what JAX defines around it: queries without keys, and queries beyond their length.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero

from saccade.jax import batching
from saccade.jax.batching import Operands
from saccade.jax.kernels import Form


def attend(form: Form, x: Operands) -> tuple[Any, Any]:
    """The output [batch, queries, heads, head size] and the residual [batch, queries, heads]; None without one. A query
    without keys has the mean of all values in JAX, which masks by a large finite number."""
    out, rows = _kernel(form, x)
    lse: Any = None if rows is None else jnp.swapaxes(rows, 1, 2)
    if form.may_be_empty:
        out = jax.lax.cond(jnp.any(jnp.isneginf(lse)), _with_means, lambda out, lse, v: out, out,
                           jax.lax.stop_gradient(lse), x.v)
    is_in = None
    if x.query_lengths is not None:
        is_in = (jnp.arange(x.q.shape[1]) < x.query_lengths[:, None])[:, :, None]
        out = jnp.where(is_in[..., None], out, 0)
    if not form.has_residual:
        return out, None
    assert lse is not None
    lowest = jnp.asarray(-0.7 * jnp.finfo(jnp.float32).max, lse.dtype)
    lse = jnp.maximum(lse, lowest) if is_in is None else jnp.where(is_in, jnp.maximum(lse, lowest), lowest)
    return out, jax.lax.stop_gradient(lse.astype(x.k.dtype))  # as JAX


def _with_means(out: Any, lse: Any, v: Any) -> Any:
    """The output with the mean of all values for queries without keys."""
    heads, kv_heads = out.shape[2], v.shape[2]
    means = jnp.mean(v, axis=1, dtype=lse.dtype).astype(out.dtype)
    means = jnp.repeat(means, heads // kv_heads, axis=1)[:, None]
    return jnp.where(jnp.isneginf(lse)[..., None], means, out)


# --- gradients --------------------------------------------------------------------------------------------------------


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _differentiated_once(make: Any, form: Form, needed: tuple[bool, ...], *arguments: Any) -> Any:
    """A function of batching of these arguments, in a rule that JAX would differentiate for a second derivative."""
    return make(form, needed)(*arguments)


@_differentiated_once.defjvp  # type: ignore[untyped-decorator]
def _refuse(make: Any, form: Form, needed: tuple[bool, ...], primals: Any, tangents: Any) -> Any:
    raise NotImplementedError("saccade.jax.dot_product_attention: second derivatives are not supported: use "
                              "jax.nn.dot_product_attention")


@functools.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _kernel(form: Form, x: Operands) -> tuple[Any, Any]:
    """The output and the log-sum-exp [batch, heads, queries]; None without one."""
    results: tuple[Any, Any] = batching.forward(form)(x)
    return results


def _forward(form: Form, x: Any) -> tuple[Any, Any]:
    leaves, tree = jax.tree_util.tree_flatten(x, is_leaf=lambda leaf: hasattr(leaf, "perturbed"))
    values = jax.tree_util.tree_unflatten(tree, [leaf.value for leaf in leaves])
    flags = jax.tree_util.tree_unflatten(tree, [bool(leaf.perturbed) for leaf in leaves])
    needed = _wanted(values, flags)
    out, lse = _differentiated_once(batching.forward, form, needed, values)
    # A residual has arrays only, but its tree may depend on the flags.
    saved = values, out, lse, [() if flag else None for flag in (*needed, flags.scale)]
    return (out, lse if form.returns_lse else None), saved


def _wanted(values: Operands, flags: Operands) -> tuple[bool, ...]:
    """Which operands of the kernel have gradients. That of the scale follows from the gradient of the queries."""
    needs_query = flags.q or flags.scale
    found = [needs_query, flags.k, flags.v, *flags.score_captures]
    found += [flag for flag, array in ((flags.bias, values.bias),) if array is not None]
    found += [False] * (len(batching.operands_of(values)) - len(found))
    return tuple([bool(flag) and jnp.issubdtype(array.dtype, jnp.floating)
                  for flag, array in zip(found, batching.operands_of(values))])


def _backward(form: Form, saved: Any, gradients: Any) -> tuple[Operands]:
    x, out, lse, marks = saved
    *needed, needs_scale = [mark is not None for mark in marks]
    given = [jnp.zeros(array.shape, array.dtype) if gradient is None or isinstance(gradient, SymbolicZero) else gradient
             for gradient, array in zip(gradients, (out, lse))]
    found = iter(_differentiated_once(batching.backward, form, tuple(needed), x, out, lse, *given))
    made = iter([next(found) if is_needed else None for is_needed in needed])
    q: Any = next(made)
    k, v = next(made), next(made)
    captures = tuple([next(made) for _ in x.score_captures])
    bias = None if x.bias is None else next(made)
    scale = None
    if needs_scale:
        assert x.scale is not None and q is not None
        scale = (jnp.sum(x.q.astype(x.scale.dtype) * q.astype(x.scale.dtype)) / x.scale).astype(x.scale.dtype)
    window = None if x.window is None else (None, None)
    return (Operands(q=q, k=k, v=v, bias=bias, mask=None, query_lengths=None, key_lengths=None, scale=scale,
                     window=window, score_captures=captures, mask_captures=(None,) * len(x.mask_captures)),)


_kernel.defvjp(_forward, _backward, symbolic_zeros=True)
