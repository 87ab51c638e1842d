"""`saccade.jax.dot_product_attention`: `jax.nn.dot_product_attention`, computed by Saccade.

The call becomes an XLA custom call on a kernel that is compiled at trace time (kernels.py). It can be traced by `jit`,
and `vmap` makes its axis a part of the batch (batching.py). Whatever the kernels do not cover is left to JAX: mistakes,
so that the exceptions are JAX's own, element types without kernels, and empty arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from saccade import _normalizers
from saccade._operands import ELEMENTS
from saccade.jax import gradients, overwriting
from saccade.jax.functions import trace
from saccade.jax.kernels import NOTHING_HIDDEN, Form, array_kind, remember
from saccade.jax.operands import Operands
from saccade.regions import Region

_INT32 = np.iinfo(np.int32)
_of_jax = jax.nn.dot_product_attention  # a program may replace it by ours


def dot_product_attention(
    query: Any,
    key: Any,
    value: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    scale: Any = None,
    is_causal: bool = False,
    query_seq_lengths: Any = None,
    key_value_seq_lengths: Any = None,
    local_window_size: int | tuple[int, int] | None = None,
    implementation: str | None = None,
    return_residual: bool = False,
    score: Callable[..., Any] | None = None,
    normalizer: str | Callable[..., Any] | None = None,
) -> Any:
    """softmax(mask(scale * q kᵀ + bias)) v, as `jax.nn.dot_product_attention` of JAX 0.10, on a CPU. A normalizer may
    replace the softmax.

    Works in `jit`, `vmap`, `scan` and outside of them. Nothing of the size queries × keys is allocated, and masked
    parts are skipped, in the backward pass, too. One kernel serves all lengths, batches and head counts.

    Args:
        query: queries [batch, queries, heads, head size], or without batch; float64, float32, float16 or bfloat16.
        key: keys [batch, keys, KV heads, head size]; heads is a multiple of KV heads.
        value: values of the shape of key.
        bias: added to the scaled scores, of any type, broadcastable to [batch, heads, queries, keys]. Axes of extent 1
            are never expanded in memory.
        mask: booleans, likewise broadcastable: whether a query attends to a key. Or a function (b, h, i, j), as the
            mask of `saccade.attention`.
        scale: the factor of q kᵀ, a number or an array without dimensions; None uses 1/√(head size).
        is_causal: query i attends to keys up to key i.
        query_seq_lengths: int32 [batch]; queries beyond return 0.
        key_value_seq_lengths: int32 [batch]; keys beyond are not attended to.
        local_window_size: (left, right), or an int for both: query i attends to keys i - left ... i + right.
        implementation: None or "saccade"; "xla" and "cudnn" compute the call by JAX.
        return_residual: also returns the log-sum-exp [batch, queries, heads], of the element type of key.
        score: a function (s, b, h, i, j) of the scaled score, as that of `saccade.attention`; it may be from
            saccade.scores. The bias is added to what it returns.
        normalizer: that of `saccade.attention`: "sigmoid", "silu", "relu_squared" or a function (s, b, h, i, j), by
            which the weight of a key is a function of its score alone. A query without keys returns 0 then.

    The functions score, mask and normalizer are traced with jax.numpy's functions on scalars, and may read elements of
    arrays, including those traced by `jit`: `table[h, i - j]`.

    Returns:
        The output, of the shape and type of query, or with return_residual a tuple. As in JAX, a query without keys
        returns the mean of all values, and its log-sum-exp is -0.7 times the largest float32 of any type that has it.

    Raises:
        ValueError, TypeError, AssertionError: for arguments that `jax.nn.dot_product_attention` refuses, the exception
            that it raises.
        ValueError: return_residual with a normalizer, or an unknown one.
        NotImplementedError: the normalizer "stick_breaking".
        saccade.TraceError: a TypeError: score, mask or normalizer cannot be traced.
        saccade.CompileError: the call is differentiated, and a function has an operation without a derivative.

    Both modes of differentiation work (jax.grad, jax.jvp), once: a second derivative is a NotImplementedError.

    Example:
        >>> attend = jax.jit(functools.partial(saccade.jax.dot_product_attention, is_causal=True))
        >>> out = attend(q, k, v)
    """
    mask_function = mask if callable(mask) else None
    mask = None if mask_function is not None else mask
    weigh = None if normalizer is None else _normalizers.function_of(normalizer)
    if weigh == _normalizers.STICK_BREAKING:
        raise NotImplementedError("normalizer is 'stick_breaking', which saccade.jax does not have")
    if weigh is not None and return_residual:
        raise ValueError("return_residual is True, expected False: it belongs to the softmax, and a normalizer is "
                         "given")
    functions = {"score": score, "mask": mask_function, "normalizer": weigh}
    has_functions = any(function is not None for function in functions.values())
    by_jax = functools.partial(
        _of_jax, query, key, value, bias, mask, scale=scale, is_causal=is_causal,
        query_seq_lengths=query_seq_lengths, key_value_seq_lengths=key_value_seq_lengths,
        local_window_size=local_window_size, return_residual=return_residual)
    if implementation not in (None, "saccade") and not has_functions:
        return by_jax(implementation=implementation)
    arrays = [_four_dimensions(x) for x in (query, key, value)]
    arrays += [None if x is None else _four_dimensions(x) for x in (bias, mask)]
    lengths = [None if x is None else jnp.asarray(x) for x in (query_seq_lengths, key_value_seq_lengths)]
    if not _is_covered(arrays, lengths, scale):
        result = by_jax(implementation="xla")  # raises JAX's exceptions
        if has_functions:
            q, k = arrays[:2]
            role = "score" if score is not None else "a normalizer" if weigh is not None else "a function as mask"
            raise TypeError(f"a call with {role} has query of "
                            f"{q.dtype}{q.shape} and key of {k.dtype}{k.shape}, expected arrays with elements, of "
                            f"{', '.join(ELEMENTS)}")
        return result
    if has_functions and implementation not in (None, "saccade"):
        raise ValueError(f"Unsupported implementation option: {implementation} has no score and mask functions, and no "
                         "normalizer")
    operands, form = _operands(arrays, lengths, scale, bool(is_causal), local_window_size, return_residual, functions)
    out, residual = _attend(form, operands)
    shape = jnp.shape(query)
    out = out.reshape(shape)
    return (out, residual.reshape(shape[:-1])) if return_residual else out


def _four_dimensions(x: Any) -> Any:
    """x as an array with leading axes of extent 1."""
    x = jnp.asarray(x)
    return x.reshape((1,) * (4 - x.ndim) + x.shape) if x.ndim < 4 else x


def _is_covered(arrays: list[Any], lengths: list[Any], scale: Any) -> bool:
    """Whether the arguments are valid and have a kernel."""
    q, k, v, bias, mask = arrays
    if not (q.ndim == k.ndim == 4 and k.shape == v.shape and q.dtype == k.dtype == v.dtype):
        return False
    batch, queries, heads, head_dim = q.shape
    keys, kv_heads = k.shape[1:3]
    if q.size == 0 or k.size == 0 or k.shape[0] != batch or k.shape[3] != head_dim or heads % kv_heads:
        return False
    if q.dtype.name not in ELEMENTS or jnp.ndim(0.0 if scale is None else scale) != 0:
        return False
    full = (batch, heads, queries, keys)
    if bias is not None and (not _broadcasts(bias, full) or not jnp.can_cast(bias.dtype, jnp.float64)):
        return False
    if mask is not None and (not _broadcasts(mask, full) or mask.dtype != jnp.bool_):
        return False
    return all(x is None or x.shape == (batch,) and x.dtype == jnp.int32 for x in lengths)


def _broadcasts(x: Any, full: tuple[int, ...]) -> bool:
    return x.ndim == 4 and all(found in (1, extent) for found, extent in zip(x.shape, full))


def _operands(arrays: list[Any], lengths: list[Any], scale: Any, is_causal: bool, window: Any, return_residual: bool,
              functions: dict[str, Callable[..., Any] | None]) -> tuple[Operands, Form]:
    """The operands of the kernel and its form. `functions` are those of the call by their roles."""
    q, k, v, bias, mask_array = arrays
    precision = "f64" if q.dtype == jnp.float64 else "f32"
    number = jnp.float64 if precision == "f64" else jnp.float32
    if bias is not None and bias.dtype.name not in ELEMENTS:
        bias = bias.astype(number)
    regions: dict[str, Region] = {}
    captured: dict[str, Any] = {}
    for role, function in functions.items():
        if function is not None:
            regions[role], captured[f"{role}_captures"] = trace(function, role, precision)
        else:
            captured[f"{role}_captures"] = ()
    # A window leaves queries without keys if there are more queries than keys; the kernel is the same for all lengths.
    may_be_empty = any(x is not None for x in (mask_array, functions["mask"], lengths[1], window))
    sides = None
    if window is not None:
        left, right = (window, window) if isinstance(window, int) else window
        sides = _side(left), _side(right)
    has_hidden = may_be_empty or is_causal or lengths[0] is not None
    # Scores of -inf come from biases and from functions; overflows of q kᵀ are not followed.
    may_be_empty |= bias is not None or functions["score"] is not None
    lowered = None
    if bias is not None and not regions:
        lowered = overwriting.lowered(overwriting.Hiding(
            precision, array_kind(bias), array_kind(mask_array), is_causal, window is not None, lengths[1] is not None,
            lengths[0] is not None)) if has_hidden else NOTHING_HIDDEN
    form = Form(is_causal, tuple([(role, remember(role, region)) for role, region in regions.items()]),
                bool(return_residual), may_be_empty and functions["normalizer"] is None, lowered)
    if scale is None:
        scale = 1.0 / np.sqrt(q.shape[3])
    return Operands(
        q=q, k=k, v=v, bias=bias, mask=mask_array, query_lengths=lengths[0],
        key_lengths=None if lengths[1] is None else jnp.clip(lengths[1], 0, k.shape[1]),
        scale=jnp.asarray(scale, number), window=sides, **captured), form


def _side(side: Any) -> Any:
    return jnp.asarray(max(_INT32.min, min(_INT32.max, side)) if isinstance(side, int) else side, jnp.int32)


@functools.partial(jax.jit, static_argnums=0)
def _attend(form: Form, operands: Operands) -> tuple[Any, Any]:
    """The output and the residual; None without one."""
    return gradients.attend(form, operands)
