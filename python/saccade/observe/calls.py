"""Calls of attention functions as calls of `saccade.attention`."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from saccade import _calls
from saccade.attention import NAME as ATTENTION
from saccade.torch import flex, sdpa
from saccade.torch.fallback import Refused, check_visible, readable

INTERFACES = {name: f'attn_implementation="{name}"' for name in ("eager", "flex_attention", "sdpa")}
"""The functions of Transformers that this module reads, by their names in its attention interface."""


class Unobserved(Exception):
    """A call without statistics, with the reason as its message."""


@dataclass
class Call:
    """A call of attention on tensors of four dimensions."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    options: dict[str, Any]
    """Of `saccade.attention`."""
    visible: dict[str, Any]
    """The options that say which keys a query sees, without scores."""
    output: torch.Tensor
    """[batch, heads, queries, head_dim_v]"""
    bias: torch.Tensor | None = None
    """Numbers that are added to scores, broadcastable to [batch, heads, queries, keys]."""
    table: torch.Tensor | None = None
    """Which keys a query sees, if this is a tensor, broadcastable likewise."""

    def is_causal(self) -> bool:
        """Whether a query sees no key after its own, as far as it is known without a trace of mask functions."""
        if self.options.get("causal") is not None:
            return True
        shape = () if self.table is None else self.table.shape[-2:]
        return len(shape) == 2 and min(shape) > 1 and not bool(self.table.triu(1).any())  # type: ignore[union-attr]


def call_of(function: str, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Call:
    """A call of one of the functions that `_served.observe` names. Raises Unobserved."""
    try:
        return _READERS[function](result, *args, **kwargs)
    except Refused as refused:
        raise Unobserved(refused.reason) from None


def _tensors(query: Any, key: Any, value: Any) -> list[torch.Tensor]:
    """Tensors that compiled code can read."""
    check_visible(query, key, value)
    found = []
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor) or torch._C._functorch.is_functorch_wrapped_tensor(x):
            raise Unobserved(f"{name} is no tensor of PyTorch, or a transform of torch.func is active")
        if not x.numel():
            raise Unobserved(f"{name} has no elements")
        found.append(readable(name, x.detach()))
    return found


def _four(x: torch.Tensor) -> torch.Tensor:
    """x with the dimensions before the heads as one."""
    return x.reshape(-1, *x.shape[-3:]) if x.dim() > 4 else x[(None,) * (4 - x.dim())]


def _from_sdpa(result: Any, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
               is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False) -> Call:
    query, key, value = _tensors(query, key, value)
    causal = "top_left" if is_causal else None
    if type(attn_mask).__name__ == "CausalBias":
        causal = "top_left" if attn_mask.variant.name == "UPPER_LEFT" else "bottom_right"
        attn_mask = None
    lead = result.shape[:-2]
    if enable_gqa:
        heads = max(key.shape[-3], value.shape[-3])
        key, value = [x.repeat_interleave(heads // x.shape[-3], -3) for x in (key, value)]
        key, value = [x.expand(*lead[:-1], *x.shape[-3:]) for x in (key, value)]
    else:
        key, value = [x.expand(*lead, *x.shape[-2:]) for x in (key, value)]
    query, output = query.expand(*lead, *query.shape[-2:]), result.detach()
    query, key, value, output = [_four(x) for x in (query, key, value, output)]
    options = _without_none(causal=causal, scale=None if scale is None else float(scale))
    visible = _without_none(causal=causal)
    if attn_mask is None:
        return Call(query, key, value, options, visible, output)
    mask = attn_mask.detach()
    if len(lead) != 2:
        mask = _four(mask.expand(*lead, query.shape[2], key.shape[2]))
    bias = None if mask.dtype == torch.bool else mask
    seen = mask if bias is None else is_kept(bias)
    extents = *query.shape[:3], key.shape[2]
    options, visible = [given | _mask_function(x, extents) for given, x in ((options, mask), (visible, seen))]
    return Call(query, key, value, options, visible, output, bias, seen)


def _mask_function(mask: torch.Tensor, extents: tuple[int, ...]) -> dict[str, Any]:
    """The option of a boolean or additive mask."""
    view = sdpa.mask_view(mask, extents)
    if view is None:
        raise Unobserved(f"the mask has shape {tuple(mask.shape)}, expected one that broadcasts to {extents}")
    return sdpa.mask_functions(*view)


def is_kept(bias: torch.Tensor) -> torch.Tensor:
    """Whether an additive mask keeps a key: libraries hide keys by -inf or by about the lowest number."""
    return bias > torch.finfo(bias.dtype).min / 4


def _from_flex(result: Any, query: Any, key: Any, value: Any, score_mod: Any = None, block_mask: Any = None,
               scale: float | None = None, enable_gqa: bool = False, *unused: Any, **more: Any) -> Call:
    output = (result[0] if isinstance(result, tuple) else result).detach()
    query, key, value = _tensors(query, key, value)
    key, value = [x.expand(query.shape[0], *x.shape[1:]) for x in (key, value)]
    visible = {} if block_mask is None else _without_none(mask=flex._mask(block_mask, query, key))
    options = _without_none(score=score_mod, scale=None if scale is None else float(scale))
    return Call(query, key, value, options | visible, visible, output)


_UNOBSERVED = {"cu_seqlens_q": "a ragged batch", "page_table": "a paged cache", "k_scale": "quantized keys"}


def _from_attention(result: Any, query: Any, key: Any, value: Any, **given: Any) -> Call:
    for name, what in _UNOBSERVED.items():
        if given[name] is not None:
            raise Unobserved(f"{what} ({name})")
    query, key, value = _tensors(query, key, value)
    output = (result[0] if isinstance(result, tuple) else result).detach()
    layout = given["layout"] or "bhsd"
    missing = [axis for axis in "bh" if axis not in layout]
    order = [("".join(missing) + layout).index(axis) for axis in "bhsd"]
    query, key, value, output = [x[(None,) * len(missing)].permute(order) for x in (query, key, value, output)]
    options = _without_none(**{name: given[name] for name in ("score", "mask", "scale", "causal", "window", "kv_len",
                                                              "sink")})  # fmt: skip
    visible = {name: x for name, x in options.items() if name in ("mask", "causal", "window", "kv_len")}
    return Call(query, key, value, options, visible, output)


def _from_transformers(result: Any, module: Any, query: Any, key: Any, value: Any, attention_mask: Any,
                       dropout: float = 0.0, scaling: float | None = None, is_causal: bool | None = None,
                       position_bias: Any = None, softcap: float | None = None, s_aux: Any = None,
                       sliding_window: int | None = None, cache: Any = None, indices: Any = None,
                       sinks: Any = None, **kwargs: Any) -> Call:
    from saccade.transformers import interface

    if cache is not None or sinks is not None or kwargs.get("block_indices") is not None:
        raise Unobserved("continuous batching, sinks of each query or block indices")
    query, key, value = _tensors(query, key, value)
    if is_causal is None:
        is_causal = interface.is_causal_module(module)
    attention_mask, position_bias, s_aux, indices = [
        x.detach() if isinstance(x, torch.Tensor) else x for x in (attention_mask, position_bias, s_aux, indices)]

    def read(mask: Any, bias: Any, cap: Any, sink: Any, factor: Any) -> Any:
        return interface.call_of(query, key, value, mask, factor, is_causal, bias, cap, sink, sliding_window, indices,
                                 False)

    query, key, value, options = read(attention_mask, position_bias, softcap, s_aux, scaling)
    is_additive = isinstance(attention_mask, torch.Tensor) and attention_mask.dtype != torch.bool
    seen = is_kept(attention_mask) if is_additive else attention_mask
    visible = read(seen, None, None, None, None)[3]
    output = result[0].detach().transpose(1, 2)
    return Call(query, key, value, options, visible, output, attention_mask if is_additive else position_bias,
                seen if isinstance(seen, torch.Tensor) else None)


def _from_interface(result: Any, module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *args: Any,
                    **kwargs: Any) -> Call:
    """Functions whose mask is complete: without one, all keys are visible."""
    if args:  # their order is that of each function
        raise Unobserved("scaling or dropout is passed by position")
    named = kwargs | {"is_causal": False, "sliding_window": None, "cache": None}
    if not hasattr(attention_mask, "mask_mod"):
        return _from_transformers(result, module, query, key, value, attention_mask, **named)
    call = _from_transformers(result, module, query, key, value, None, **named)
    mask = _without_none(mask=flex._mask(attention_mask, call.query, call.key))
    return dataclasses.replace(call, options=call.options | mask, visible=mask)


_READERS: dict[str, Callable[..., Call]] = {
    sdpa.NAME: _from_sdpa, flex.NAME: _from_flex, ATTENTION: _from_attention,
    'attn_implementation="saccade"': _from_transformers, **dict.fromkeys(INTERFACES.values(), _from_interface),
    INTERFACES["sdpa"]: _from_transformers,
}  # fmt: skip


def _without_none(**options: Any) -> dict[str, Any]:
    return {name: x for name, x in options.items() if x is not None}


def log_visible(call: Call) -> torch.Tensor:
    """The logarithm of the number of keys that each query sees, float64, broadcastable to [batch, heads, queries]."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    if not call.visible:
        return torch.tensor(math.log(keys), dtype=torch.float64)
    if call.visible == {"causal": "top_left"}:
        return (torch.arange(queries) + 1).clamp(max=keys).double().log()
    seen: torch.Tensor = _calls.log_of_keys_seen(call.query, call.key, "bhsd", call.visible)
    return seen.cpu().double()
