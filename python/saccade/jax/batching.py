"""Kernels under `vmap`: the mapped axis becomes a part of the batch.

Also what JAX defines around the kernel: queries without keys, and queries beyond their length.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from saccade.jax.kernels import Form, Kind, array_kind, target_name


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Operands:
    """The arrays of one call; None for those that its form does not have."""

    q: Any  # [batch, queries, heads, head size]
    k: Any  # [batch, keys, KV heads, head size]
    v: Any
    bias: Any  # [batch, heads, queries, keys], each extent possibly 1
    mask: Any
    query_lengths: Any  # [batch]
    key_lengths: Any
    scale: Any  # without dimensions
    window: Any  # a pair of arrays without dimensions
    score_captures: tuple[Any, ...]
    mask_captures: tuple[Any, ...]


_BATCHED = ("q", "k", "v", "bias", "mask", "query_lengths", "key_lengths")  # those with an axis of the batch


def call(form: Form, operands: Operands) -> tuple[Any, Any]:
    """The output [batch, queries, heads, head size] and the residual [batch, queries, heads]."""
    results: tuple[Any, Any] = _mapped(form)(operands)
    return results


@functools.cache
def _mapped(form: Form) -> Any:
    """The kernel of a form with its rule for `vmap`."""
    function = jax.custom_batching.custom_vmap(functools.partial(_run, form))

    def rule(size: int, is_mapped: tuple[Operands], operands: Operands) -> tuple[Any, Any]:
        (mapped,) = is_mapped
        if _is_joinable(form, mapped):
            joined = _join(size, mapped, operands)
            out, residual = function(joined)
            out = out.reshape(size, -1, *out.shape[1:])
            residual = None if residual is None else residual.reshape(size, -1, *residual.shape[1:])
        else:  # operands without an axis of the batch differ: one call after another
            leaves, tree = jax.tree_util.tree_flatten(operands)
            flags = jax.tree_util.tree_leaves(mapped)

            def one(i: Any) -> Any:
                chosen = [leaf[i] if is_mapped else leaf for leaf, is_mapped in zip(leaves, flags)]
                return function(jax.tree_util.tree_unflatten(tree, chosen))

            out, residual = jax.lax.map(one, jnp.arange(size))
        return (out, residual), (True, None if residual is None else True)

    function.def_vmap(rule)
    return function


def _is_joinable(form: Form, mapped: Operands) -> bool:
    """Whether the mapped axis can be joined with the batch: no other operand is mapped, and no function of the user
    reads the index of the batch, which would count over both."""
    others = (mapped.scale, mapped.window, mapped.score_captures, mapped.mask_captures)
    return not any(jax.tree_util.tree_leaves(others)) and not form.reads_batch


def _join(size: int, mapped: Operands, x: Operands) -> Operands:
    batch = (x.q.shape[1:] if mapped.q else x.q.shape)[0]
    joined = {}
    for name in _BATCHED:
        array, is_mapped = getattr(x, name), getattr(mapped, name)
        if array is None:
            continue
        extent = array.shape[1] if is_mapped else array.shape[0]
        if name in ("bias", "mask") and extent == 1 and (not is_mapped or batch == 1):
            joined[name] = array.reshape(-1, *array.shape[-3:])  # stays one for all batches, or has one for each
            continue
        array = array if is_mapped else jnp.broadcast_to(array[None], (size, *array.shape))
        whole = jnp.broadcast_to(array, (size, batch, *array.shape[2:]))
        joined[name] = whole.reshape(size * batch, *array.shape[2:])
    return dataclasses.replace(x, **joined)


def _run(form: Form, x: Operands) -> tuple[Any, Any]:
    """Calls the kernel. A query without keys has the mean of all values in JAX, which masks by a large finite number.
    """
    batch, queries, heads, _ = x.q.shape
    results = [jax.ShapeDtypeStruct(x.q.shape, x.q.dtype)]
    precision = jnp.float64 if x.q.dtype == jnp.float64 else jnp.float32
    if form.returns_lse:
        results.append(jax.ShapeDtypeStruct((batch, heads, queries), precision))
    operands = [x.q, x.k, x.v, *x.score_captures]
    operands += [array for array in (x.bias, *x.mask_captures, x.mask, x.scale) if array is not None]
    operands += [*(x.window or ())] + ([x.key_lengths] if x.key_lengths is not None else [])
    out, *more = jax.ffi.ffi_call(target_name(_kind(form, x)), results)(*operands)
    lse: Any = jnp.swapaxes(more[0], 1, 2) if more else None
    if form.may_be_empty:
        out = jax.lax.cond(jnp.any(jnp.isneginf(lse)), _with_means, lambda out, lse, v: out, out, lse, x.v)
    is_in = None
    if x.query_lengths is not None:
        is_in = (jnp.arange(queries) < x.query_lengths[:, None])[:, :, None]
        out = jnp.where(is_in[..., None], out, 0)
    if not form.has_residual:
        return out, None
    lowest = jnp.asarray(-0.7 * jnp.finfo(jnp.float32).max, lse.dtype)
    lse = jnp.maximum(lse, lowest) if is_in is None else jnp.where(is_in, jnp.maximum(lse, lowest), lowest)
    return out, lse.astype(x.k.dtype)


def _kind(form: Form, x: Operands) -> Kind:
    """The kernel of a call."""
    return Kind(form, x.q.dtype.name, x.q.shape[3], x.window is not None, x.key_lengths is not None, array_kind(x.bias),
                array_kind(x.mask))


def _with_means(out: Any, lse: Any, v: Any) -> Any:
    """The output with the mean of all values for queries without keys."""
    heads, kv_heads = out.shape[2], v.shape[2]
    means = jnp.mean(v, axis=1, dtype=lse.dtype).astype(out.dtype)
    means = jnp.repeat(means, heads // kv_heads, axis=1)[:, None]
    return jnp.where(jnp.isneginf(lse)[..., None], means, out)
