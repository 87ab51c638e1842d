"""Attention in PyTorch's operators, for calls that torch.export records, and those with dropout that torch.compile
traces."""

from __future__ import annotations

from typing import Any

import torch
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward


def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              mask: torch.Tensor | None, *, dropout: float, scaling: float | None, is_causal: bool,
              position_bias: torch.Tensor | None, softcap: float | None, s_aux: torch.Tensor | None) -> torch.Tensor:
    """Attention [batch, queries, heads, head_dim_v] with the arguments of Transformers' attention functions. `mask`:
    boolean or additive, [batch, 1 or heads, queries, keys]."""
    if not softcap and s_aux is None:  # a cap of 0 is none
        return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, position_bias=position_bias)[0]
    key, value = (repeat_kv(x, query.shape[1] // x.shape[1]) for x in (key, value))
    scores = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    if position_bias is not None:
        scores = scores + position_bias
    if mask is None and is_causal and query.shape[2] > 1:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
    if mask is not None:
        mask = mask[..., : scores.shape[-1]]
        lowest = torch.finfo(scores.dtype).min
        scores = torch.where(mask, scores, lowest) if mask.dtype == torch.bool else scores + mask
    if s_aux is not None:  # one more score, without a value
        sinks = s_aux.to(scores.dtype).view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights: Any = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)[..., : key.shape[2]]
    weights = torch.nn.functional.dropout(weights, dropout)
    return (weights @ value).transpose(1, 2).contiguous()
