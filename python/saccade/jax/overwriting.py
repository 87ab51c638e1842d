"""Queries whose keys are all hidden or at the lowest scores, as `jax.nn.dot_product_attention` has them.

JAX does not remove the keys that masks hide. It writes LOWEST over their scores, so they get weight where all other
scores are lower still: where a bias is -inf or the lowest float on all keys that the masks leave. Such queries ("low"
ones) are found by their log-sum-exp. If there are any, the call is computed by a second kernel, in which a low query
attends to the keys that the masks hide, too, with the score 0, and the scores of the other keys are relative to LOWEST.
A query with the score -inf on all keys and no hidden key has NaN.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saccade.jax.kernels import NOTHING_HIDDEN, Form, Lowered, remember
from saccade.jax.operands import Operands, Role, named_operands, roles_of
from saccade.regions import trace

LOWEST = float(np.float32(-0.7) * np.finfo(np.float32).max)
"""What JAX writes over scores: a product in float32, of all element types."""
_LIMIT = -2.3e38
"""Above LOWEST, so that rounding does not hide a low query."""


def low_rows(x: Operands, lse: Any) -> Any:
    """Which queries are low, [batch, heads, queries]. Those beyond their length have hidden keys only."""
    is_low = lse <= _LIMIT
    if x.query_lengths is None:
        return is_low
    is_out = jnp.arange(x.q.shape[1])[None] >= x.query_lengths[:, None]
    return is_low | (jnp.isnan(lse) & is_out[:, None])


def lowered_form(form: Form) -> Form:
    """The form of the second kernel."""
    assert form.lowered is not None
    return Form(False, form.lowered.functions, True, True)


def lowered_operands(form: Form, x: Operands, is_low: Any) -> Operands:
    """The operands of the second kernel."""
    assert form.lowered is not None
    arrays = {**dict(named_operands(x)), "low": is_low, "query_lengths": x.query_lengths}
    score, mask = (tuple([arrays[role] for role in roles]) for roles in (form.lowered.score, form.lowered.mask))
    return dataclasses.replace(x, bias=None, mask=None, query_lengths=None, key_lengths=None, window=None,
                               score_captures=score, mask_captures=mask)


def lowered_roles(form: Form) -> list[Role]:
    """The roles that the operands of the second kernel have in the call."""
    assert form.lowered is not None
    return ["q", "k", "v", *form.lowered.score, *form.lowered.mask, "scale"]


# --- results ----------------------------------------------------------------------------------------------------------


def corrected(forward: Callable[..., Any], form: Form, x: Operands, out: Any, lse: Any) -> tuple[Any, Any]:
    """The output and the log-sum-exp of a call, given those of its first kernel: about LOWEST for low queries, -inf for
    those whose output is NaN. `forward` runs a kernel. A call that is differentiated has a pair, of which the low part
    does not change: gradients compute the log-sum-exp of low queries again."""
    high = lse[0] if isinstance(lse, tuple) else lse
    is_low = low_rows(x, high)

    def correct() -> tuple[Any, Any]:
        if form.lowered is NOTHING_HIDDEN:
            return _with_nan(out, high), lse
        second, of_second = forward(lowered_form(form), None, lowered_operands(form, x, is_low))
        found = jnp.where(is_low, of_second + LOWEST, high)
        return _with_nan(second, of_second), (found, lse[1]) if isinstance(lse, tuple) else found

    return jax.lax.cond(jnp.any(is_low), correct, lambda: (out, lse))  # type: ignore[no-any-return]


def corrected_gradient(forward: Callable[..., Any], gradient: Callable[..., Any], form: Form, needed: tuple[bool, ...],
                       x: Operands, out: Any, lse: Any, low: Any, *others: Any) -> list[Any]:
    """The gradients of the needed operands. `gradient` runs the kernel of a gradient; `low` is the low part of the
    log-sum-exp."""
    is_low = low_rows(x, lse)

    def correct() -> list[Any]:
        if form.lowered is NOTHING_HIDDEN:
            return gradient(form, needed, x, out, _nan_for(lse), low, *others)  # type: ignore[no-any-return]
        of_second, places = _needed(form, needed, x)
        y = lowered_operands(form, x, is_low)
        second, (of_rows, low_of_rows) = forward(lowered_form(form), of_second, y)
        found = gradient(lowered_form(form), of_second, y, second, _nan_for(of_rows), low_of_rows, *others)
        return [found[place] for place in places]

    return jax.lax.cond(jnp.any(is_low), correct, lambda: gradient(form, needed, x, out, lse, low, *others))  # type: ignore[no-any-return]


def corrected_tangents(push: Callable[..., Any], form: Form, needed: tuple[bool, ...], x: Operands, lse: Any,
                       tangents: list[Any]) -> list[Any]:
    """The tangents of the output and of the log-sum-exp. `push` runs the kernel of tangents; `lse` is the pair of the
    log-sum-exp and its low part."""
    lse, _ = lse
    is_low = low_rows(x, lse)

    def correct() -> list[Any]:
        if form.lowered is NOTHING_HIDDEN:
            out, of_lse = push(form, needed, x, tangents)
            return [_with_nan(out, lse), of_lse]
        of_second, places = _needed(form, needed, x)
        ordered = [tangents[places.index(i)] for i in range(len(places))]
        out, of_lse = push(lowered_form(form), of_second, lowered_operands(form, x, is_low), ordered)
        return [_with_nan(out, lse), of_lse]

    return jax.lax.cond(jnp.any(is_low), correct, lambda: push(form, needed, x, tangents))  # type: ignore[no-any-return]


def _needed(form: Form, needed: tuple[bool, ...], x: Operands) -> tuple[tuple[bool, ...], list[int]]:
    """Which operands of the second kernel are needed, and for each needed operand of the first its place among these.
    """
    requested = [role for role, is_needed in zip(roles_of(x), needed, strict=True) if is_needed]
    roles = lowered_roles(form)
    chosen = tuple([role in requested for role in roles])
    order = [role for role, is_chosen in zip(roles, chosen) if is_chosen]
    return chosen, [order.index(role) for role in requested]


def _with_nan(out: Any, lse: Any) -> Any:
    """The output with NaN for queries whose scores are all -inf."""
    return jnp.where(jnp.swapaxes(jnp.isneginf(lse), 1, 2)[..., None], jnp.asarray(jnp.nan, out.dtype), out)


def _nan_for(lse: Any) -> Any:
    """A log-sum-exp with which gradients of queries whose scores are all -inf are NaN."""
    return jnp.where(jnp.isneginf(lse), jnp.nan, lse)


# --- the functions of the second kernel -------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Hiding:
    """What the functions of the second kernel follow from."""

    precision: str
    bias: tuple[str, tuple[bool, ...]] | None  # as in `kernels.Kind`
    mask: tuple[str, tuple[bool, ...]] | None
    is_causal: bool
    has_window: bool
    has_key_lengths: bool
    has_query_lengths: bool


@functools.cache
def lowered(hiding: Hiding) -> Lowered:
    """The functions of the second kernel. Arrays that are traced have no elements here, so others stand for them."""
    places: dict[int, Role] = {}
    arrays = []

    def stand_in(role: Role, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
        arrays.append(np.zeros(shape, jnp.dtype(dtype)))
        places[id(arrays[-1])] = role
        return arrays[-1]

    low = stand_in("low", "bool", (9, 9, 9))
    is_visible = _visibility(hiding, stand_in)
    bias = None if hiding.bias is None else stand_in("bias", hiding.bias[0], _shape(hiding.bias[1]))

    def relative(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        found = s if bias is None else s + bias[_at(hiding.bias, b, h, i, j)].astype(s.dtype)
        return np.where(low[b, h, i], np.where(is_visible(b, h, i, j), found - LOWEST, 0.0), found)

    def attends(b: Any, h: Any, i: Any, j: Any) -> Any:
        return low[b, h, i] | is_visible(b, h, i, j)

    functions, roles = [], []
    for name, function in (("score", relative), ("mask", attends)):
        region = trace(function, name, hiding.precision, bakes_numbers=True, prefers_torch=False)
        functions.append((name, remember(name, region)))
        roles.append(tuple([places[id(array)] for array in region.captures]))
    return Lowered(tuple(functions), roles[0], roles[1])


def _visibility(hiding: Hiding, stand_in: Callable[..., Any]) -> Callable[..., Any]:
    """Whether no mask of the call hides a key."""
    array = None if hiding.mask is None else stand_in("mask", "bool", _shape(hiding.mask[1]))
    sides = [stand_in(side, "int32", ()) for side in ("left", "right")] if hiding.has_window else None
    key_lengths = stand_in("key_lengths", "int32", (9,)) if hiding.has_key_lengths else None
    query_lengths = stand_in("query_lengths", "int32", (9,)) if hiding.has_query_lengths else None

    def is_visible(b: Any, h: Any, i: Any, j: Any) -> Any:
        found = j <= i if hiding.is_causal else j >= 0
        if array is not None:
            found = found & array[_at(hiding.mask, b, h, i, j)]
        if sides is not None:
            found = found & (i - j <= sides[0]) & (j - i <= sides[1])
        if key_lengths is not None:
            found = found & (j < key_lengths[b])
        if query_lengths is not None:
            found = found & (i < query_lengths[b])
        return found

    return is_visible


def _shape(axes: tuple[bool, ...]) -> tuple[int, ...]:
    return tuple([1 if is_one else 9 for is_one in axes])


def _at(kind: Any, *indices: Any) -> tuple[Any, ...]:
    """The indices of an element of a bias or mask: 0 along axes of extent 1."""
    return tuple([0 if is_one else index for is_one, index in zip(kind[1], indices)])
