"""Which tiles of a mask are empty, partial and full, for the picture of a report."""

from __future__ import annotations

from typing import Any

import numpy
import torch

from saccade import attention
from saccade.observe.calls import Call

MOST = 32
"""The most tiles in either direction."""


def mask_tiles(call: Call) -> tuple[int, Any]:
    """The size of a tile, and for each one [rows, columns] as uint8: 0 if no query attends to a key, 2 if all pairs are
    visible in every batch and head, otherwise 1."""
    queries, keys = call.query.shape[2], call.key.shape[2]
    size = 1
    while size * MOST < max(queries, keys):
        size *= 2
    first_query, first_key = numpy.arange(0, queries, size), numpy.arange(0, keys, size)
    if call.visible in ({}, {"causal": "top_left"}):
        last_query = numpy.minimum(first_query + size, queries) - 1
        last_key = numpy.minimum(first_key + size, keys) - 1
        full, visible = numpy.full((2, len(first_query), len(first_key)), True)
        if call.visible:
            full, visible = last_key <= first_query[:, None], first_key <= last_query[:, None]
    else:
        fewest, most = _counts(call, size)
        full = numpy.minimum.reduceat(fewest, first_query) == numpy.minimum(size, keys - first_key)
        visible = numpy.maximum.reduceat(most, first_query) > 0
    return size, full.astype(numpy.uint8) + visible


def _counts(call: Call, size: int) -> tuple[Any, Any]:
    """The number of keys of each tile that a query sees, [queries, tiles]: the fewest and the most of all heads.

    One attention with equal scores: the value of a key is the number of its tile, one-hot, so that the output is the
    part of the visible keys that is in each tile. The log-sum-exp is that of their number.
    """
    batch, heads, queries, _ = call.query.shape
    keys = call.key.shape[2]
    query = call.query.new_zeros((batch, heads, queries, 1), dtype=torch.float32)
    key = query.new_zeros((batch, 1, keys, 1))
    value = torch.eye(MOST, device=query.device)[torch.arange(keys, device=query.device) // size]
    value = value.expand(batch, 1, keys, MOST).contiguous()
    output, lse = attention(query, key, value, return_lse=True, **call.visible)
    counts = (output * lse.exp()[..., None]).round().cpu().numpy()[..., : -(-keys // size)]
    return counts.min((0, 1)), counts.max((0, 1))
