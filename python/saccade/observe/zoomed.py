"""The exact weights of chosen tiles of a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saccade import attention_weights
from saccade.observe.calls import Call

SIZE = 128
"""The queries and keys of a tile."""

Tile = tuple[int, int, Any]
"""The first query, the first key, and the weights [heads, rows, columns] as float32."""


def tiles_at(call: Call, places: Iterable[tuple[int, int]]) -> list[Tile]:
    """The tiles that have these pairs of query and key, each once, of batch 0, by keys, then by queries. Pairs that the
    call does not have give none."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    firsts = {(query - query % SIZE, key - key % SIZE) for query, key in places if query < queries and key < keys}
    found = []
    for first_query in sorted({first_query for first_query, _ in firsts}):
        rows = attention_weights(call.query, call.key, batches=0, queries=slice(first_query, first_query + SIZE),
                                 **call.options)
        for first_key in sorted(key for query, key in firsts if query == first_query):
            tile = rows[:, :, first_key : first_key + SIZE]
            found.append((first_query, first_key, tile.cpu().float().numpy()))
    return sorted(found, key=lambda tile: (tile[1], tile[0]))
