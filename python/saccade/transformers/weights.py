"""Softmax weights for `output_attentions=True`, which PyTorch's operators compute beside the output."""

from __future__ import annotations

from typing import Any

import torch
from transformers.integrations.sdpa_attention import repeat_kv

try:
    from transformers.utils.output_capturing import _active_collector as _recorder
except ImportError:  # versions of Transformers 5 without it
    _recorder = None

LARGEST = 1 << 26
"""The elements of the largest weights that are returned: 256 MiB of f32."""


def are_recorded() -> bool:
    """Whether a model that is called now records weights. Layers of GPT-2, OPT and GPTBigCode do not pass
    `output_attentions` on."""
    if _recorder is None:
        return False
    # torch.compile cannot trace get().
    recorded = _recorder.global_var if torch.compiler.is_compiling() else _recorder.get()
    return recorded is not None and any("attentions" in name for name in recorded)


def check_size(query: torch.Tensor, key: torch.Tensor) -> None:
    """Refuses weights that are too large."""
    extents = [*query.shape[:3], key.shape[2]]
    count = 1
    for extent in extents:
        count *= int(extent)
    if count > LARGEST:
        raise ValueError(f"output_attentions=True asks for weights {extents}, {count * 4 >> 20} MiB in f32 for each "
                         "layer; saccade.attention_weights computes those of chosen batches, heads and queries")


def weights(query: torch.Tensor, key: torch.Tensor, mask: torch.Tensor | None, *, scaling: float | None,
            is_causal: bool, position_bias: torch.Tensor | None, softcap: float | None,
            s_aux: torch.Tensor | None) -> torch.Tensor:
    """The softmax weights [batch, heads, queries, keys] of Transformers' attention functions in query's element type.
    `mask`: boolean or additive, [batch, 1 or heads, queries, keys]."""
    key = repeat_kv(key, query.shape[1] // key.shape[1])
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
    result: Any = torch.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)[..., : key.shape[2]]
    return result


def visible(weights: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """The weights, 0 in rows of a boolean mask without a visible key, as the output is."""
    if mask is None or mask.dtype != torch.bool:
        return weights
    return weights.masked_fill(~mask[..., : weights.shape[-1]].any(-1, keepdim=True), 0)
