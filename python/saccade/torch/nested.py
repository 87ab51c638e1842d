"""`scaled_dot_product_attention` of nested tensors with the layout `torch.jagged`: ragged batches.

A jagged tensor [B, H, L, D], where L differs between the sequences, stores all rows of the batch as one tensor and the
offsets of the sequences, which `saccade.attention` takes as they are.
"""

from __future__ import annotations

from typing import Any

import torch

from saccade.attention import attention
from saccade.torch.fallback import Kind, Refused, check_visible


def is_jagged(x: Any) -> bool:
    """Whether x is a nested tensor with the layout torch.jagged."""
    return isinstance(x, torch.Tensor) and x.is_nested and x.layout is torch.jagged


def compute(query: Any, key: Any, value: Any, causal: str | None, scale: float | None, enable_gqa: bool,
            dropout: tuple[float, int] | None) -> torch.Tensor:
    """The output [B, H, L, Ev] with the sequences of the query.

    Args:
        query: [B, H, L, E].
        key: [B, H, S, E]; S differs between the sequences, too.
        value: [B, H, S, Ev].
        causal: the alignment of a causal mask.
        dropout: the probability and the seed.

    Raises Refused for calls that PyTorch has to compute or to report.
    """
    tensors = {"query": query, "key": key, "value": value}
    for name, x in tensors.items():
        if not is_jagged(x):
            raise Refused(Kind.INPUT, f"{name} is no jagged tensor, but another one is")
        if x.dim() != 4 or x._ragged_idx != 2:  # a private attribute: there is no other way to learn the dimension
            raise Refused(Kind.INPUT, f"{name} is a jagged tensor with dimensions {tuple(x.shape)}, expected [batch, "
                                      "heads, sequence, head size]")
        if x.lengths() is not None:
            raise Refused(Kind.INPUT, f"{name} is a jagged tensor with gaps between its sequences")
        if x.dtype != query.dtype or x.device != query.device:
            raise Refused(Kind.INPUT, f"{name} is a tensor of {x.dtype} on {x.device}, query one of {query.dtype} on "
                                      f"{query.device}")
    if key.shape[2] != value.shape[2] or query.shape[0] != key.shape[0] or query.shape[3] != key.shape[3]:
        raise Refused(Kind.INPUT, "query, key and value are jagged tensors that do not fit together")
    heads, kv_heads = query.shape[1], key.shape[1]
    if value.shape[1] != kv_heads or heads != kv_heads and not (enable_gqa and kv_heads and heads % kv_heads == 0):
        raise Refused(Kind.INPUT, f"query has {heads} heads, key {kv_heads} and value {value.shape[1]}")
    if causal is not None and query.shape[2] != key.shape[2]:
        # PyTorch's kernels differ in the query that sees all keys.
        raise Refused(Kind.INPUT, "is_causal with queries and keys of different lengths")
    # [total, heads, head size]
    q, k, v = [x.values().transpose(0, 1) for x in tensors.values()]
    check_visible(q, k, v)
    if not (q.numel() and k.numel() and v.numel()):
        raise Refused(Kind.SILENT, "a tensor is empty")
    options: dict[str, Any] = {} if dropout is None else {"dropout_p": dropout[0], "seed": dropout[1]}
    output = attention(q, k, v, causal=causal, scale=scale, cu_seqlens_q=query.offsets(), cu_seqlens_k=key.offsets(),
                       **options)
    return torch.nested.nested_tensor_from_jagged(output, query.offsets()).transpose(1, 2)
