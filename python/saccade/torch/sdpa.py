"""`scaled_dot_product_attention` with PyTorch's signature and semantics.

A call of the common form, four dimensions without broadcasting, goes directly to its compiled function. All others are
brought to this form with views: leading dimensions are added or joined, and masks keep the dimensions that they vary
along. PyTorch gets the calls that Saccade does not compute (fallback.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.compiler import is_compiling

from saccade import _arrays, _served
from saccade._library import on_cache_clear
from saccade.attention import attention, plan_of
from saccade.torch import nested
from saccade.torch.fallback import (
    Kind,
    Refused,
    autocast,
    check_visible,
    dispatch_modes,
    in_forward_mode,
    is_mapped,
    is_tracing,
    readable,
    records_grad,
    resolve,
    suspended,
)

NAME = "scaled_dot_product_attention"
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
_MAX_CALLS = 1024
_Tensor = torch.Tensor
_calls: dict[tuple[Any, ...], Callable[..., None]] = {}
on_cache_clear(_calls.clear)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """`torch.nn.functional.scaled_dot_product_attention`, computed by Saccade.

    Arguments, result (strides included) and exceptions are those of PyTorch. One kernel is compiled for each
    combination of element type, head sizes, mask type and the dimensions that the mask varies along, `is_causal` and
    whether a scale is given; other lengths, batches and head counts reuse it. Masks are read in place: an expanded mask
    is as cheap as the one it was expanded from.

    Args:
        query: [..., L, E], of float64, float32, float16 or bfloat16, on the CPU or an NVIDIA GPU. Also a nested tensor
            with the layout torch.jagged, [B, H, L, E], as are the key and value then.
        key: [..., S, E].
        value: [..., S, Ev].
        attn_mask: broadcastable to [..., L, S]: booleans, where true keeps a pair, or numbers added to the scores; also
            `torch.nn.attention.bias.CausalBias`.
        dropout_p: the probability with which a weight becomes 0. Each call draws its seed from PyTorch's default
            generator of the CPU, so `torch.manual_seed` makes it reproducible. The bits are not those of PyTorch, but
            are the same on all devices (`saccade.dropout.dropout_mask`). PyTorch computes calls with dropout in
            functions that it compiles.
        is_causal: masks out keys j > i for query i.
        scale: the factor of the scores; None uses 1/sqrt(E).
        enable_gqa: query heads (dimension -3) share key and value heads.

    Returns:
        [..., L, Ev]. A query without keys gives 0.

    Raises:
        NotImplementedError: tensors that PyTorch computes with and Saccade does not (subclasses, nested tensors that
            are not jagged, ...).

    All other exceptions are PyTorch's. Gradients are Saccade's.
    """
    if is_compiling():
        from saccade.torch.traced_drop_ins import scaled_dot_product_attention as traced  # which imports this module

        return traced(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if (_served.is_on or _served.profiler._is_profiler_enabled) and _served.is_new_call():
        arguments = (query, key, value, attn_mask, dropout_p, is_causal)
        options: dict[str, Any] = {"scale": scale, "enable_gqa": enable_gqa}
        result: torch.Tensor = _served.observe(NAME, lambda: scaled_dot_product_attention(*arguments, **options),
                                               (query, key, value), arguments=(arguments, options))
        return result
    if not torch.is_autocast_enabled("cpu"):
        output = _direct(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if output is not None:
            return output
    return _call(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _call(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: Any, is_causal: Any, scale: Any,
          enable_gqa: Any) -> torch.Tensor:
    """Any call of `scaled_dot_product_attention`."""
    try:
        q, k, v, mask = autocast(query, key, value, attn_mask)
        return compute(q, k, v, mask, dropout_p, is_causal, scale, enable_gqa)
    except Refused as refused:

        def by_pytorch() -> torch.Tensor:
            with suspended():
                return torch.nn.functional.scaled_dot_product_attention(
                    query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale,
                    enable_gqa=enable_gqa)

        result: torch.Tensor = resolve(NAME, refused, by_pytorch, is_replaced=False)
        return result


def replacement(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A kernel of PyTorch's dispatcher for the operator, which resolves autocast and subclasses before. `original`
    computes refused calls."""

    def kernel(query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
               is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
        output = _direct(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        if output is not None:
            return output

        def by_pytorch() -> torch.Tensor:
            return original(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

        try:
            return compute(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        except Refused as refused:
            result: torch.Tensor = resolve(NAME, refused, by_pytorch, is_replaced=True)
            return result

    return kernel


# --- calls of the common form -----------------------------------------------------------------------------------------


def _direct(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: Any, is_causal: Any, scale: Any,
            enable_gqa: Any) -> torch.Tensor | None:
    """The output of a call with four dimensions, equal batches and a known kernel; None for any other call. The
    compiled code checks element types, devices and lengths."""
    if (
        type(query) is not _Tensor or type(key) is not _Tensor or type(value) is not _Tensor or not query.is_cpu
        or dropout_p != 0.0 or type(enable_gqa) is not bool or query.is_neg() or key.is_neg() or value.is_neg()
        or ((query.requires_grad or key.requires_grad or value.requires_grad) and torch.is_grad_enabled())
        or dispatch_modes() or is_tracing() or in_forward_mode()
    ):  # fmt: skip
        return None
    try:
        batch, heads, length, width = query.shape
        key_batch, kv_heads, keys, key_width = key.shape
        value_batch, value_heads, value_keys, value_width = value.shape
    except (ValueError, RuntimeError):  # another rank, a nested tensor
        return None
    if (
        key_batch != batch or value_batch != batch or key_width != width or value_heads != kv_heads
        or value_keys != keys or not (batch and heads and length and keys and width and value_width and kv_heads)
        or (kv_heads != heads and kv_heads != 1 and (not enable_gqa or heads % kv_heads))
    ):  # fmt: skip
        return None
    captures: tuple[torch.Tensor, ...] = ()
    kind = None
    if attn_mask is not None:
        if type(attn_mask) is not _Tensor or attn_mask.requires_grad or attn_mask.is_neg() or is_causal:
            return None
        view = mask_view(attn_mask, (batch, heads, length, keys))
        if view is None:
            return None
        kind, captures = (view[0], attn_mask.dtype), view[1:]
    # Python compares 1 and True as equal, PyTorch does not.
    call = _calls.get((query.dtype, width, value_width, is_causal, type(is_causal), type(scale), kind))
    if call is None:
        return None
    if (kv_heads == heads or enable_gqa) and _keeps_strides(query, key, value, attn_mask):
        output = torch.empty_like(query)
    else:
        output = query.new_empty((batch, heads, length, value_width))
    try:
        if scale is None:
            call(query, key, value, *captures, output)
        else:
            call(query, key, value, *captures, scale, output)
    except (TypeError, ValueError, RuntimeError):
        return None  # reported by the general form
    return output


def _keeps_strides(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None) -> bool:
    """Whether PyTorch's result has the query's order of strides: its fused kernel computes the call. It is contiguous
    otherwise."""
    return (query.dim() == key.dim() == value.dim() == 4 and query.shape[3] == value.shape[3]
            and query.stride(3) == key.stride(3) == value.stride(3) == 1 and (mask is None or mask.dim() != 3))


def mask_view(mask: torch.Tensor, full: tuple[int, ...]) -> tuple[str, torch.Tensor] | None:
    """The dimensions that a mask varies along, such as "bj" for [B, 1, 1, S], and the mask with only these.

    Args:
        mask: broadcastable to `full`.
        full: [batch, heads, queries, keys].

    Returns:
        None if the mask has another shape.
    """
    shape, strides = mask.shape, mask.stride()
    first = 4 - len(shape)
    if not 0 <= first <= 2:
        return None
    names, kept, steps = "", [], []
    for axis, extent in enumerate(shape):
        if extent != 1:
            if extent != full[first + axis]:
                return None
            if strides[axis]:
                names += "bhij"[first + axis]
                kept.append(extent)
                steps.append(strides[axis])
    if len(kept) < len(shape):
        mask = mask.as_strided(kept, steps, mask.storage_offset())
    return names, mask


def _kernel(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, view: tuple[str, torch.Tensor] | None,
            is_causal: bool, has_scale: bool, has_dropout: bool) -> Callable[..., None]:
    """The compiled function of calls of this kind."""
    kind = None if view is None else (view[0], view[1].dtype)
    scale_type = float if has_scale else type(None)
    known: tuple[Any, ...] = (query.dtype, query.shape[3], value.shape[3], is_causal, bool, scale_type, kind)
    if has_dropout or not query.is_cpu:
        known += (has_dropout, query.get_device())
    call = _calls.get(known)
    if call is None:
        functions = {} if view is None else mask_functions(*view)
        plan = plan_of(query, key, value, causal="top_left" if is_causal else None, has_scale=has_scale,
                       dropout="i64" if has_dropout else None, **functions)
        if len(_calls) >= _MAX_CALLS:
            _calls.clear()
        call = _calls[known] = plan.call
    return call


def mask_functions(names: str, mask: torch.Tensor) -> dict[str, Any]:
    """The mask or the score function of an `attn_mask` that varies along these dimensions."""
    axes = ["bhij".index(name) for name in names]

    def read(*index: Any) -> Any:
        return mask[tuple([index[axis] for axis in axes])]

    if mask.dtype is torch.bool:
        return {"mask": lambda b, h, i, j: read(b, h, i, j)}
    return {"score": lambda s, b, h, i, j: s + read(b, h, i, j)}


# --- all other calls --------------------------------------------------------------------------------------------------


def compute(query: Any, key: Any, value: Any, attn_mask: Any, dropout_p: Any, is_causal: Any, scale: Any,
            enable_gqa: Any) -> torch.Tensor:
    """The output of any call. Raises Refused for one that PyTorch has to compute or to report."""
    bias, attn_mask, causal = _causal_bias(attn_mask, is_causal)
    check_visible(query, key, value, attn_mask)
    if not isinstance(is_causal, bool) or not isinstance(enable_gqa, bool):
        raise Refused(Kind.INPUT, "is_causal or enable_gqa is no bool")
    for name, number in (("dropout_p", dropout_p), ("scale", 0 if scale is None else scale)):
        if not isinstance(number, (int, float)):
            raise Refused(Kind.INPUT, f"{name} is a {type(number).__name__}, expected a number")
    tensors = [query, key, value, *(() if attn_mask is None else (attn_mask,))]
    if not 0 <= dropout_p <= 1:
        raise Refused(Kind.INPUT, f"dropout_p is {dropout_p}, expected 0 to 1")
    if dropout_p and any(map(is_mapped, tensors)):  # the bits that PyTorch's `randomness` asks for are unknown here
        raise Refused(Kind.INPUT, "dropout_p is not 0, and vmap maps a tensor")
    if any(map(nested.is_jagged, tensors)):
        if attn_mask is not None or bias is not None:
            raise Refused(Kind.INPUT, "attn_mask with jagged tensors")
        return nested.compute(query, key, value, causal, None if scale is None else float(scale), enable_gqa,
                              draw_dropout(dropout_p))
    is_recorded = records_grad(*tensors)
    names = ("query", "key", "value", "attn_mask")
    query, key, value, *masks = [readable(name, x) for name, x in zip(names, tensors)]
    mask = masks[0] if masks else None
    lead, kv_heads = _leading(query, key, value, enable_gqa)
    extents = query.shape[-2], key.shape[-2], value.shape[-1]
    _check(query, key, value, mask, (*lead, query.shape[-2], key.shape[-2]), causal is not None and bias is None)
    if not math.prod((*lead, *extents, query.shape[-1])):
        raise Refused(Kind.SILENT, "a tensor is empty")

    if is_recorded:
        from saccade.torch.recorded import attend  # imported late: it imports this module

        result = attend(query, key, value, mask, causal, None if scale is None else float(scale), enable_gqa,
                        lead, kv_heads, draw_dropout(dropout_p))
        return result if _keeps_strides(query, key, value, mask) else result.contiguous()
    shape = (*lead, extents[0], extents[2])
    is_plain = tuple(query.shape[:-2]) == lead and key.dim() == value.dim() == 4 and key.shape[0] == value.shape[0] == (
        query.shape[0])
    are_heads = key.shape[1:2] == value.shape[1:2] and (enable_gqa or key.shape[1:2] == query.shape[1:2])
    if is_plain and are_heads and _keeps_strides(query, key, value, mask):
        output = torch.empty_like(query)
    else:
        output = query.new_empty(shape)
    if enable_gqa:
        # Views cannot repeat heads within groups; different counts of key and value heads are rare.
        key, value = [x if x.shape[-3] == kv_heads else x.repeat_interleave(kv_heads // x.shape[-3], -3)
                      for x in (key, value)]
    lead = (1,) * (2 - len(lead)) + lead
    kv_lead = (*lead[:-1], kv_heads)
    whole = output if output.dim() >= 4 else output.view(*lead, extents[0], extents[2])
    query, key, value = [x if x.shape[:-2] == expected else x.expand(*expected, *x.shape[-2:])
                         for x, expected in ((query, lead), (key, kv_lead), (value, kv_lead))]
    _fill(query, key, value, mask, causal, None if scale is None else float(scale), whole, draw_dropout(dropout_p))
    return output


def draw_dropout(dropout_p: float) -> tuple[float, int] | None:
    """The probability and a seed from PyTorch's default generator; None without dropout."""
    if not dropout_p:
        return None
    return float(dropout_p), int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64, device="cpu"))


def _causal_bias(mask: Any, is_causal: Any) -> tuple[Any, Any, str | None]:
    """A `torch.nn.attention.bias.CausalBias` given as mask; the mask if it is another one; the alignment of a causal
    mask."""
    if isinstance(mask, _Tensor) and type(mask).__name__ == "CausalBias" and hasattr(mask, "variant"):
        if is_causal:
            raise Refused(Kind.INPUT, "is_causal and a causal bias are given")
        return mask, None, "top_left" if mask.variant.name == "UPPER_LEFT" else "bottom_right"
    return None, mask, "top_left" if is_causal is True else None


def _leading(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> tuple[Any, int]:
    """The leading dimensions of the output, and the number of key and value heads of the kernel."""
    least = 3 if enable_gqa else 2
    if min(query.dim(), key.dim(), value.dim()) < least:
        raise Refused(Kind.INPUT, f"query, key and value have less than {least} dimensions")
    shapes = [tuple(x.shape[:-2]) for x in (query, key, value)]
    try:
        if not enable_gqa:
            lead = shapes[0] if shapes[0] == shapes[1] == shapes[2] else tuple(torch.broadcast_shapes(*shapes))
            is_shared = bool(lead) and all(shape[-1:] in ((), (1,)) for shape in shapes[1:])
            return lead, 1 if is_shared or not lead else lead[-1]
        (heads,), *others = [shape[-1:] for shape in shapes]
        if any(not other or heads % other for (other,) in others):
            raise Refused(Kind.INPUT, f"query has {heads} heads, key {others[0][0]} and value {others[1][0]}")
        lead = tuple(torch.broadcast_shapes(*[shape[:-1] for shape in shapes]))
        (key_heads,), (value_heads,) = others
        most, rest = max(key_heads, value_heads), min(key_heads, value_heads)
        return (*lead, heads), most if not most % rest else heads
    except RuntimeError:
        found = ", ".join(str(tuple(x.shape)) for x in (query, key, value))
        raise Refused(Kind.INPUT, f"query, key and value have shapes {found}") from None


def _check(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
           full: tuple[int, ...], is_causal: bool) -> None:
    """Refuses mismatches that PyTorch reports."""
    if query.dtype not in _DTYPES or key.dtype is not query.dtype or value.dtype is not query.dtype:
        raise Refused(Kind.INPUT, f"query, key and value have element types {query.dtype}, {key.dtype}, {value.dtype}")
    if key.device != query.device or value.device != query.device:
        raise Refused(Kind.INPUT, f"query is on {query.device}, key on {key.device} and value on {value.device}")
    if value.shape[-2] != key.shape[-2]:
        raise Refused(Kind.INPUT, f"key has {key.shape[-2]} rows and value {value.shape[-2]}, expected equal numbers "
                                  f"(shapes {tuple(key.shape)} and {tuple(value.shape)})")
    if key.shape[-1] != query.shape[-1]:
        raise Refused(Kind.INPUT, f"query has head size {query.shape[-1]} and key {key.shape[-1]}, expected equal ones "
                                  f"(shapes {tuple(query.shape)} and {tuple(key.shape)})")
    if mask is None:
        return
    if is_causal:
        # PyTorch's documentation calls this an error; not all of its kernels report it.
        raise Refused(Kind.INPUT, "attn_mask should not be set when is_causal=True")
    if mask.dtype not in (torch.bool, torch.float32, query.dtype) or mask.device != query.device:
        raise Refused(Kind.INPUT, f"attn_mask has type {mask.dtype} and is on {mask.device}")
    found = tuple(mask.shape)
    is_shape = 2 <= len(found) <= len(full) and all(
        extent in (1, other) for extent, other in zip(found[::-1], full[::-1]))
    if not is_shape:
        raise Refused(Kind.INPUT, f"attn_mask has shape {found}, expected one that broadcasts to {full}")


def _fill(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: str | None,
          scale: float | None, output: torch.Tensor, dropout: tuple[float, int] | None) -> None:
    """Writes the output of tensors with equal leading dimensions, at least batch and heads."""
    if query.dim() > 4:
        joined = _joined(query, key, value, mask, output)
        if joined is None:
            for n in range(query.shape[0]):
                part = mask
                if mask is not None and mask.dim() == query.dim():
                    part = mask[0 if mask.shape[0] == 1 else n]
                # Positions are those of the part, so each part needs a seed.
                mine = dropout if dropout is None or n == 0 else draw_dropout(dropout[0])
                _fill(query[n], key[n], value[n], part, causal, scale, output[n], mine)
            return
        query, key, value, mask, output = joined
    view = None
    if mask is not None:
        view = mask_view(mask, (*query.shape[:3], key.shape[2]))
        assert view is not None
    numbers = (*(() if scale is None else (scale,)), *(dropout or ()))
    captures = () if view is None else (view[1],)
    try:
        if causal == "bottom_right":
            plan = plan_of(query, key, value, causal=causal, has_scale=scale is not None,
                           dropout=dropout and "i64")
            plan.call(query, key, value, *numbers, output)
        else:
            call = _kernel(query, key, value, view, causal is not None, scale is not None, dropout is not None)
            call(query, key, value, *captures, *numbers, output)
    except RuntimeError:
        for name, x in (("query", query), ("key", key), ("value", value)):
            _arrays.check_torch(name, x, "cpu" if x.is_cpu else "cuda")
        raise


def _joined(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None,
            output: torch.Tensor) -> tuple[Any, Any, Any, Any, Any] | None:
    """The tensors with all dimensions before the heads as one, as views; None if there are no such views."""
    try:
        if mask is not None and mask.dim() > 3:
            if all(extent == 1 for extent in mask.shape[:-3]):
                mask = mask[(0,) * (mask.dim() - 3)]
            else:
                mask = mask.expand(*query.shape[:-3], *mask.shape[-3:])
                mask = mask.view(-1, *mask.shape[-3:])
        query, key, value, output = [x.view(-1, *x.shape[-3:]) for x in (query, key, value, output)]
        return query, key, value, mask, output
    except RuntimeError:  # strides that cannot be joined
        return None


# --- the fused operator of PyTorch ------------------------------------------------------------------------------------


def flash_view(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor) -> tuple[str, torch.Tensor]:
    """`mask_view` for a mask of PyTorch's fused operator."""
    full = (*query.shape[:3], key.shape[2])
    view = mask_view(mask, full)
    if view is None:
        raise RuntimeError(f"attn_mask has shape {tuple(mask.shape)}, expected one that broadcasts to {full}")
    return view


def flash(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout_p: float = 0.0, is_causal: bool = False,
          *, attn_mask: torch.Tensor | None = None,
          scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """A kernel of `aten::_scaled_dot_product_flash_attention_for_cpu`: the output with the query's order of strides,
    and the log-sum-exp [B, H, L] stored as [B, L, H], from which PyTorch computes gradients."""
    if dropout_p:
        raise RuntimeError("_scaled_dot_product_flash_attention_for_cpu: dropout is not supported")
    batch, heads, length, _ = query.shape
    output = torch.empty_like(query)
    rows = torch.float64 if query.dtype == torch.float64 else torch.float32
    lse = query.new_empty((batch, length, heads), dtype=rows).transpose(1, 2)
    functions = {} if attn_mask is None else mask_functions(*flash_view(query, key, attn_mask))
    with torch.no_grad():  # the dispatcher records the gradient before it calls this kernel
        attention(query, key, value, causal="top_left" if is_causal else None, scale=scale, return_lse=True,
                  out=(output, lse), **functions)
    if attn_mask is not None:
        lse.nan_to_num_(nan=torch.nan, neginf=0.0)  # PyTorch's value for a row without keys
    return output, lse
