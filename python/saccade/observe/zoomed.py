"""The exact weights of chosen tiles of a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from saccade import attention
from saccade.observe.calls import Call

SIZE = 128
"""The queries and keys of a tile."""

Tile = tuple[int, int, Any]
"""The first query, the first key, and the weights [heads, rows, columns] as float32."""


def tiles_at(call: Call, places: Iterable[tuple[int, int]]) -> list[Tile]:
    """The tiles that have these pairs of query and key, each once, of batch 0. Others than those of the call have none.

    One attention for each column of tiles: the value of a key of the column is its number, one-hot, so that the output
    is the weights of these keys.
    """
    queries, keys = call.query.shape[2], call.key.shape[2]
    firsts = {(query - query % SIZE, key - key % SIZE) for query, key in places if query < queries and key < keys}
    found = []
    for first_key in sorted({first_key for _, first_key in firsts}):
        weights = _columns(call, first_key)
        for first_query in sorted(query for query, key in firsts if key == first_key):
            rows = weights[:, first_query : first_query + SIZE, : keys - first_key]
            found.append((first_query, first_key, rows.cpu().float().numpy()))
    return found


def _columns(call: Call, first: int) -> torch.Tensor:
    """The weights of SIZE keys from `first` on, of batch 0: [heads, queries, SIZE]."""
    batch, heads, keys, _ = call.key.shape
    value = call.key.new_zeros((keys, SIZE))
    last = min(first + SIZE, keys)
    value[first:last] = torch.eye(SIZE, dtype=value.dtype, device=value.device)[: last - first]
    output = attention(call.query, call.key, value.expand(batch, heads, keys, SIZE).contiguous(), **call.options)
    return output[0]
