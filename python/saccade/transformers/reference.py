"""Attention in PyTorch's operators, for calls that torch.export records, and those with dropout that torch.compile
traces."""

from __future__ import annotations

import torch
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward

from saccade.transformers.weights import weights


def attention(module: torch.nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
              mask: torch.Tensor | None, *, dropout: float, scaling: float | None, is_causal: bool,
              position_bias: torch.Tensor | None, softcap: float | None, s_aux: torch.Tensor | None) -> torch.Tensor:
    """Attention [batch, queries, heads, head_dim_v] with the arguments of Transformers' attention functions. `mask`:
    boolean or additive, [batch, 1 or heads, queries, keys]."""
    if not softcap and s_aux is None:  # a cap of 0 is none
        return sdpa_attention_forward(module, query, key, value, mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, position_bias=position_bias)[0]
    made = weights(query, key, mask, scaling=scaling, is_causal=is_causal, position_bias=position_bias, softcap=softcap,
                   s_aux=s_aux)
    made = torch.nn.functional.dropout(made, dropout)
    return (made @ repeat_kv(value, query.shape[1] // value.shape[1])).transpose(1, 2).contiguous()
