"""Calls of `scaled_dot_product_attention` whose gradients PyTorch records, and the gradients of its fused operator."""

from __future__ import annotations

from typing import Any

import torch

from saccade.attention import attention
from saccade.torch import tracing
from saccade.torch.differentiated import differentiated
from saccade.torch.sdpa import flash_view, mask_functions
from saccade.torch.traced_drop_ins import mask_dimensions

_LARGEST_EXACT_LSE = 64
"""The size of a log-sum-exp whose rounding changes probabilities by less than 2^-18."""


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: str | None,
           scale: float | None, enable_gqa: bool, lead: tuple[int, ...], kv_heads: int,
           dropout: tuple[float, int] | None = None) -> torch.Tensor:
    """The output of a valid call, by differentiable operators.

    Args:
        causal: the alignment of a causal mask.
        lead: the dimensions of the output before the queries.
        kv_heads: the number of key and value heads.
        dropout: the probability and the seed.
    """
    if enable_gqa:
        key, value = [x if x.shape[-3] == kv_heads else x.repeat_interleave(kv_heads // x.shape[-3], -3)
                      for x in (key, value)]
    full = (1,) * (2 - len(lead)) + lead
    query, key, value = [
        x.expand(*full[:-1], heads, *x.shape[-2:]).reshape(-1, heads, *x.shape[-2:])
        for x, heads in ((query, full[-1]), (key, kv_heads), (value, kv_heads))]
    functions: dict[str, Any] = {}
    if mask is not None:
        table = _joined(mask, full)
        found = mask_dimensions(table, (*query.shape[:3], key.shape[2]))
        assert found is not None
        names, single = found
        functions = mask_functions(names, table.squeeze(single))
    if dropout is not None:
        functions |= {"dropout_p": dropout[0], "seed": dropout[1]}
    output = attention(query, key, value, causal=causal, scale=scale, **functions)
    return output.reshape(*lead, *output.shape[-2:])  # type: ignore[union-attr]


def _joined(mask: torch.Tensor, lead: tuple[int, ...]) -> torch.Tensor:
    """The mask with all dimensions before the heads as one, which has extent 1 if the mask does not vary along them."""
    if mask.dim() <= 3:
        return mask
    if all(extent == 1 for extent in mask.shape[:-3]):
        return mask.reshape(mask.shape[-3:])
    return mask.expand(*lead[:-1], *mask.shape[-3:]).reshape(-1, *mask.shape[-3:])


def flash_gradients(output_gradient: torch.Tensor, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                    output: torch.Tensor, lse: torch.Tensor, dropout_p: float, is_causal: bool, *,
                    attn_mask: torch.Tensor | None = None,
                    scale: float | None = None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A kernel of `aten::_scaled_dot_product_flash_attention_for_cpu_backward`: the gradients of query, key and value.
    """
    from saccade.regions import trace

    captures: list[torch.Tensor] = []
    regions: dict[str, Any] = {"score": None, "mask": None}
    precision = "f64" if query.dtype == torch.float64 else "f32"
    if attn_mask is not None:
        view = flash_view(query, key, attn_mask)
        captures = [view[1]]
        for role, function in mask_functions(*view).items():
            regions[role] = trace(function, role, precision)
    program = tracing.make_program(query.dtype, query.shape[3], value.shape[3], "bhsd", regions["score"],
                                   regions["mask"], causal="top_left" if is_causal else None,
                                   scale=scale is not None)
    program = differentiated(program, (True, True, True, *(False for _ in captures)), "attn.gradient")
    options = [query, key, value, *captures], program, None, [] if scale is None else [scale]
    # PyTorch passes one number a row, which determines probabilities if it is not far from 0.
    if not lse.numel() or torch.where(lse.isfinite(), lse, 0).abs().amax() <= _LARGEST_EXACT_LSE:
        lse_low = torch.zeros_like(lse)
    else:
        _, lse, lse_low = torch.ops.saccade.attention_forward.lse_low(*options)
    return tuple(torch.ops.saccade.attention_backward(output_gradient, None, output, lse, lse_low, *options))
