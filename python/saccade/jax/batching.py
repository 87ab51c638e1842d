"""Kernels under `vmap`: the mapped axis becomes a part of the batch."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp

from saccade.jax import overwriting
from saccade.jax.calls import call_kernel
from saccade.jax.kernels import Form, Kind, array_kind, target_name
from saccade.jax.operands import Operands, operands_of

_BATCHED = ("q", "k", "v", "bias", "mask", "query_lengths", "key_lengths")  # those with an axis of the batch


@functools.cache
def forward(form: Form, needed: tuple[bool, ...] | None = None) -> Any:
    """The kernel of a form, with its rule for `vmap`: a function of Operands that returns the output [batch, queries,
    heads, head size] and the log-sum-exp [batch, heads, queries], or None without one. `needed` is that of
    `kernels.target_name`; with it, the log-sum-exp is returned as the pair of it and its low part."""
    function = jax.custom_batching.custom_vmap(functools.partial(_run, form, needed))

    def rule(size: int, is_mapped: tuple[Operands], operands: Operands) -> tuple[Any, Any]:
        (mapped,) = is_mapped
        if _is_joinable(form, mapped):
            joined = _join(size, mapped, operands)
            out, lse = function(joined)
            out = out.reshape(size, -1, *out.shape[1:])
            lse = jax.tree_util.tree_map(lambda rows: rows.reshape(size, -1, *rows.shape[1:]), lse)
        else:  # operands without an axis of the batch differ: one call after another
            out, lse = _one_by_one(function, size, mapped, operands)
        return (out, lse), (True, jax.tree_util.tree_map(lambda rows: True, lse))

    function.def_vmap(rule)
    return function


@functools.cache
def backward(form: Form, needed: tuple[bool, ...]) -> Any:
    """The gradient function of a kernel, with its rule for `vmap`: a function of (operands, output, log-sum-exp, its
    low part, and the gradients of the first two) that returns the needed gradients."""
    function = jax.custom_batching.custom_vmap(functools.partial(_run_gradient, form, needed))

    def rule(size: int, is_mapped: Any, *arguments: Any) -> Any:
        # Gradients of operands without an axis of the batch are sums over a batch.
        gradients = _one_by_one(function, size, is_mapped, *arguments)
        return gradients, [True] * len(gradients)

    function.def_vmap(rule)
    return function


def join_tangents(function: Any, form: Form, size: int, mapped: Any, x: Operands, out: Any, lse: Any,
                  tangents: list[Any], have_batch: list[bool], are_joinable: bool) -> list[Any]:
    """The rule for `vmap` of a function of (operands, output, log-sum-exp, list of tangents) that returns the tangents
    of output and log-sum-exp. The mapped axes are the first ones. `have_batch` says which tangents have an axis of the
    batch, `are_joinable` whether the others are not mapped."""
    if not are_joinable or not _is_joinable(form, mapped[0]):
        found: list[Any] = _one_by_one(function, size, mapped, x, out, lse, tangents)
        return found
    batch = (x.q.shape[1:] if mapped[0].q else x.q.shape)[0]

    def join(array: Any, is_mapped: bool) -> Any:
        array = array if is_mapped else jnp.broadcast_to(array[None], (size, *array.shape))
        return array.reshape(size * batch, *array.shape[2:])

    pushed = [join(tangent, is_mapped) if has_batch else tangent
              for tangent, is_mapped, has_batch in zip(tangents, mapped[3], have_batch)]
    results = function(_join(size, mapped[0], x), join(out, mapped[1]), jax.tree_util.tree_map(join, lse, mapped[2]),
                       pushed)
    return [each.reshape(size, -1, *each.shape[1:]) for each in results]


def _one_by_one(function: Any, size: int, mapped: Any, *arguments: Any) -> Any:
    leaves, tree = jax.tree_util.tree_flatten(arguments)
    flags = jax.tree_util.tree_leaves(mapped)

    def one(i: Any) -> Any:
        chosen = [leaf[i] if is_mapped else leaf for leaf, is_mapped in zip(leaves, flags)]
        return function(*jax.tree_util.tree_unflatten(tree, chosen))

    return jax.lax.map(one, jnp.arange(size))


def _is_joinable(form: Form, mapped: Operands) -> bool:
    """Whether the mapped axis can be joined with the batch: no other operand is mapped, and no function of the user
    reads the index of the batch, which would count over both."""
    others = (mapped.scale, mapped.window, mapped.score_captures, mapped.mask_captures, mapped.normalizer_captures)
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


def _run(form: Form, needed: tuple[bool, ...] | None, x: Operands) -> tuple[Any, Any]:
    out, lse = _forward(form, needed, x)
    return (out, lse) if form.lowered is None else overwriting.corrected(_forward, form, x, out, lse)


def _forward(form: Form, needed: tuple[bool, ...] | None, x: Operands) -> tuple[Any, Any]:
    batch, queries, heads, _ = x.q.shape
    form = form if needed is None else dataclasses.replace(form, has_residual=True)
    results = [jax.ShapeDtypeStruct(x.q.shape, x.q.dtype)]
    if form.returns_lse:
        precision = jnp.float64 if x.q.dtype == jnp.float64 else jnp.float32
        results.append(jax.ShapeDtypeStruct((batch, heads, queries), precision))
    if needed is not None and form.returns_lse:
        results.append(results[1])
    out, *lse = call_kernel(target_name(_kind(form, x), needed), results, operands_of(x))
    return out, None if not lse else lse[0] if needed is None else tuple(lse)


def _run_gradient(form: Form, needed: tuple[bool, ...], x: Operands, *others: Any) -> list[Any]:
    if form.lowered is None:
        return _gradient(form, needed, x, *others)
    return overwriting.corrected_gradient(_forward, _gradient, form, needed, x, *others)


def _gradient(form: Form, needed: tuple[bool, ...], x: Operands, *others: Any) -> list[Any]:
    form = dataclasses.replace(form, has_residual=True)
    operands = operands_of(x)
    results = [jax.ShapeDtypeStruct(array.shape, array.dtype)
               for array, is_needed in zip(operands, needed) if is_needed]
    name = target_name(_kind(form, x), needed) + "_gradient"
    return call_kernel(name, results, [*operands, *others])


def run_tangents(form: Form, needed: tuple[bool, ...], x: Operands, lse: Any, tangents: list[Any]) -> list[Any]:
    """The tangents of the output and of the log-sum-exp, if there is one, from those of the needed operands."""
    if form.lowered is None:
        return _tangents(form, needed, x, tangents)
    return overwriting.corrected_tangents(_tangents, form, needed, x, lse, tangents)


def _tangents(form: Form, needed: tuple[bool, ...], x: Operands, tangents: list[Any]) -> list[Any]:
    form = dataclasses.replace(form, has_residual=True)
    batch, queries, heads, _ = x.q.shape
    precision = jnp.float64 if x.q.dtype == jnp.float64 else jnp.float32
    results = [jax.ShapeDtypeStruct(x.q.shape, x.q.dtype), jax.ShapeDtypeStruct((batch, heads, queries), precision)]
    results = results[: 1 + form.returns_lse]
    name = target_name(_kind(form, x), needed, "attn.jvp") + "_jvp"
    found = call_kernel(name, results * 2, [*operands_of(x), *tangents])
    return list(found[len(results):])


def _kind(form: Form, x: Operands) -> Kind:
    """The kernel of a call."""
    return Kind(form, x.q.dtype.name, x.q.shape[3], x.window is not None, x.key_lengths is not None, array_kind(x.bias),
                array_kind(x.mask))
