"""The kernel with its derivatives, and what JAX defines around it: queries without keys, and those beyond their length.
"""

from __future__ import annotations

import functools
from typing import Any, NoReturn

import jax
import jax.extend
import jax.numpy as jnp
from jax.custom_derivatives import SymbolicZero
from jax.interpreters import ad

from saccade.jax import batching, overwriting
from saccade.jax.kernels import Form
from saccade.jax.linear_primitive import define, once
from saccade.jax.operands import Operands, operands_of


def attend(form: Form, x: Operands) -> tuple[Any, Any]:
    """The output [batch, queries, heads, head size] and the residual [batch, queries, heads]; None without one. A query
    without keys has the mean of all values in JAX, which masks by a large finite number."""
    out, rows = _kernel(form, x)
    lse: Any = None if rows is None else jnp.swapaxes(rows, 1, 2)
    if form.may_be_empty and form.lowered is None:
        out = jax.lax.cond(jnp.any(jnp.isneginf(lse)), _with_means, lambda out, lse, v: out, out,
                           jax.lax.stop_gradient(lse), x.v)
    is_in = None
    if x.query_lengths is not None:
        is_in = (jnp.arange(x.q.shape[1])[None] < x.query_lengths[:, None])[:, :, None]
        out = jnp.where(is_in[..., None], out, 0)
    if not form.has_residual:
        return out, None
    assert lse is not None
    lowest = jnp.asarray(overwriting.LOWEST, lse.dtype)
    if form.lowered is None:  # otherwise -inf is that of a query with NaN
        lse = jnp.maximum(lse, lowest)
    lse = lse if is_in is None else jnp.where(is_in, lse, lowest)
    return out, jax.lax.stop_gradient(lse.astype(x.k.dtype))  # as JAX


def _with_means(out: Any, lse: Any, v: Any) -> Any:
    """The output with the mean of all values for queries without keys."""
    heads, kv_heads = out.shape[2], v.shape[2]
    means = jnp.mean(v, axis=1, dtype=lse.dtype).astype(out.dtype)
    means = jnp.repeat(means, heads // kv_heads, axis=1)[:, None]
    return jnp.where(jnp.isneginf(lse)[..., None], means, out)


# --- derivatives ------------------------------------------------------------------------------------------------------


def _raise_second(*constants: Any, **parameters: Any) -> NoReturn:
    raise NotImplementedError("saccade.jax.dot_product_attention: second derivatives are not supported: use "
                              "jax.nn.dot_product_attention")


def _differentiated(make: Any, form: Form, needed: tuple[bool, ...], *arguments: Any) -> Any:
    """A function of batching of these arguments."""
    return make(form, needed)(*arguments)


_differentiated_once = once(_differentiated, 3, _raise_second)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0,))
def _kernel(form: Form, x: Operands) -> tuple[Any, Any]:
    """The output and the log-sum-exp [batch, heads, queries]; None without one."""
    results: tuple[Any, Any] = batching.forward(form)(x)
    return results


def _rule(form: Form, primals: tuple[Operands], given: tuple[Any]) -> Any:
    """The results and their tangents. These are linear in those of the operands: JAX transposes `_push` for gradients.
    """
    (x,), (tangents,) = primals, given
    needed = _wanted(x, tangents)
    out, lse = _differentiated_once(batching.forward, form, _of_gradients(x, needed), x)
    pushed = [tangent for tangent, is_needed in zip(operands_of(tangents), needed) if is_needed]
    out_tangent, *lse_tangent = _bind(form, needed, x, out, lse, pushed)
    return (out, lse[0] if form.returns_lse else None), (out_tangent, lse_tangent[0] if form.returns_lse else None)


_kernel.defjvp(_rule, symbolic_zeros=True)


def _wanted(x: Operands, tangents: Any) -> tuple[bool, ...]:
    """Which operands of the kernel have tangents."""
    return tuple([not isinstance(tangent, SymbolicZero) and jnp.issubdtype(array.dtype, jnp.floating)
                  for tangent, array in zip(operands_of(tangents), operands_of(x), strict=True)])


def _place_of_scale(x: Operands) -> int:
    return next(i for i, array in enumerate(operands_of(x)) if array is x.scale)


def _of_gradients(x: Operands, needed: tuple[bool, ...]) -> tuple[bool, ...]:
    """Which operands the gradient function returns gradients of: that of the scale follows from that of the queries."""
    place = _place_of_scale(x)
    return (needed[0] or needed[place], *needed[1:place], False, *needed[place + 1:])


# --- the linear function ----------------------------------------------------------------------------------------------

_push = jax.extend.core.Primitive("saccade_attention_jvp")


def _bind(form: Form, needed: tuple[bool, ...], x: Operands, out: Any, lse: Any, tangents: list[Any]) -> list[Any]:
    """The tangents of the output and of the log-sum-exp [batch, heads, queries], from those of the needed operands.
    `lse` is the pair of the log-sum-exp and its low part; None without them."""
    leaves, tree = jax.tree_util.tree_flatten((x, out, lse))
    found: list[Any] = _push.bind(*leaves, *tangents, form=form, needed=needed, tree=tree)
    return found


def _split(arguments: Any, tree: Any) -> tuple[Any, list[Any]]:
    """Operands, output and log-sum-exp; and the tangents."""
    return jax.tree_util.tree_unflatten(tree, arguments[: tree.num_leaves]), list(arguments[tree.num_leaves:])


def _compute(*arguments: Any, form: Form, needed: tuple[bool, ...], tree: Any) -> list[Any]:
    (x, _, lse), tangents = _split(arguments, tree)
    return batching.run_tangents(form, needed, x, lse, tangents)


def _abstract(*arguments: Any, form: Form, needed: tuple[bool, ...], tree: Any) -> list[Any]:
    (_, out, lse), _ = _split(arguments, tree)
    return [jax.core.ShapedArray(each.shape, each.dtype) for each in (out, *(lse or ())[:1])]


def _transpose(given: Any, *arguments: Any, form: Form, needed: tuple[bool, ...], tree: Any) -> list[Any]:
    (x, out, lse), _ = _split(arguments, tree)
    gradients = [jnp.zeros(array.shape, array.dtype) if isinstance(gradient, ad.Zero) else gradient
                 for gradient, array in zip(given, (out, *(lse or ())[:1]))]
    found = iter(_differentiated_once(batching.backward, form, _of_gradients(x, needed), x, out, *(lse or ()),
                                      *gradients))
    made: list[Any] = [next(found) if is_needed else None for is_needed in _of_gradients(x, needed)]
    place = _place_of_scale(x)
    if needed[place]:
        number = x.scale.dtype
        made[place] = (jnp.sum(x.q.astype(number) * made[0].astype(number)) / x.scale).astype(number)
    return [None] * tree.num_leaves + [gradient for gradient, is_needed in zip(made, needed) if is_needed]


def _batch(arguments: Any, dims: Any, *, form: Form, needed: tuple[bool, ...], tree: Any) -> Any:
    is_mapped = [dim is not None for dim in dims]
    size = next(array.shape[dim] for array, dim, flag in zip(arguments, dims, is_mapped) if flag)
    moved = [jnp.moveaxis(array, dim, 0) if flag else array for array, dim, flag in zip(arguments, dims, is_mapped)]
    (x, out, lse), tangents = _split(moved, tree)
    mapped, flags = _split(is_mapped, tree)
    owners = [i for i, is_needed in enumerate(needed) if is_needed]
    bias = next((i for i, array in enumerate(operands_of(x)) if array is x.bias), None)
    are_joinable = bias not in owners and not any(flag and owner > 2 for flag, owner in zip(flags, owners))
    results = batching.join_tangents(functools.partial(_bind, form, needed), form, size, (*mapped, flags), x, out, lse,
                                     tangents, [owner < 3 for owner in owners], are_joinable)
    return results, [0] * len(results)


define(_push, _compute, _abstract, _transpose, _batch, lambda tree, **_: tree.num_leaves, _raise_second)
