"""Statistics of one call of attention, as numbers of its heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

from saccade import attention, stats
from saccade.observe.calls import Call, log_visible
from saccade.observe.mask_tiles import mask_tiles
from saccade.observe.nans import Finding, find
from saccade.observe.record import Layer
from saccade.observe.zoomed import Tile, tiles_at

MAP_SIZE = 64
"""The most blocks of a map in either direction."""
_MEANS = ("entropy", "effective_keys", "sink", "diagonal")


@dataclass
class Measured:
    """The statistics of one call."""

    layer: Layer
    numbers: dict[str, Any]
    """By statistic: a NumPy array [heads] of float64."""
    size: Any
    """The root of the mean square of the output of each head."""
    grids: dict[str, Any] = field(default_factory=dict)
    """Means over batches: "map" [heads, rows, columns] and "received" [heads, keys]."""
    tiles: list[Tile] = field(default_factory=list)
    """Exact weights of batch 0."""
    block: tuple[int, int] = (1, 1)
    """The rows and columns of a block of the map."""
    mask: tuple[int, Any] | None = None
    """Of `mask_tiles`."""
    finding: Finding | None = None


def measure(call: Call, name: str, number: int, sink_keys: int, has_maps: bool, tile: int,
            zoom: Sequence[tuple[int, int]]) -> Measured:
    """The statistics of a call: one more call of `saccade.attention`, and a pass over its operands and its output.

    Args:
        name, number: of the layer.
        sink_keys: the number of first keys whose mass is `sink`.
        has_maps: also makes the map, the mass received and the tiles of the mask.
        tile: calls of at most so many queries and keys have their weights.
        zoom: other calls have those of the tiles with these pairs of query and key.
    """
    (_, heads, queries, _), keys = call.query.shape, call.key.shape[2]
    layer = Layer(name, number, heads, queries, keys, call.is_causal())
    is_small = max(queries, keys) <= tile
    blocks = tile if is_small else MAP_SIZE
    requested: list[Any] = ["entropy", "effective_keys", "max", "diagonal", stats.sink(sink_keys)]
    if has_maps:
        requested += [stats.heatmap(rows=blocks, columns=blocks), "received"]
    *_, found = attention(call.query, call.key, call.value, stats=tuple(requested), **call.options)
    numbers, size = _numbers(call, found), _size(call.output)
    measured = Measured(layer, numbers, size, finding=find(call))
    if has_maps:
        _add_grids(measured, found, is_small)
        measured.mask = mask_tiles(call)
    if not is_small:
        measured.tiles = tiles_at(call, zoom)
    return measured


def _numbers(call: Call, found: Any) -> dict[str, Any]:
    """The statistics of the heads: means over batches and over queries that see a key."""
    shape = call.query.shape[:3]
    visible = log_visible(call).broadcast_to(shape)
    numbers = {name: _mean(getattr(found, name).cpu().double().reshape(shape), visible >= 0) for name in _MEANS}
    uniform = found.entropy.cpu().double() / visible  # of one key: 0 / 0
    numbers["uniformity"] = _mean(uniform, visible > 0)
    numbers["max"] = found.max.amax((0, 2)).cpu().double().numpy()
    return numbers


def _mean(x: torch.Tensor, is_counted: torch.Tensor) -> Any:
    return (x.where(is_counted, 0).sum((0, 2)) / is_counted.sum((0, 2))).numpy()


def _size(output: torch.Tensor) -> Any:
    count = output.numel() // output.shape[1]
    precision = torch.promote_types(output.dtype, torch.float32)
    return torch.linalg.vector_norm(output, dim=(0, 2, 3), dtype=precision).cpu().double().numpy() / count**0.5


def _add_grids(measured: Measured, found: Any, is_small: bool) -> None:
    weights = found.heatmap.mean(0).cpu().float().numpy()
    measured.grids["received"] = found.received.mean(0).cpu().float().numpy()
    measured.block = found.heatmap_row_size, found.heatmap_column_size
    if is_small:
        measured.tiles = [(0, 0, found.heatmap[0].cpu().float().numpy())]
        measured.block = -(-weights.shape[1] // MAP_SIZE), -(-weights.shape[2] // MAP_SIZE)
        weights = _pooled(weights, *measured.block)
    measured.grids["map"] = weights


def _pooled(weights: Any, rows: int, columns: int) -> Any:
    """[heads, queries, keys] to blocks: the sum over the keys of a block, the mean over its queries."""
    starts = [numpy.arange(0, extent, size) for extent, size in zip(weights.shape[1:], (rows, columns))]
    counts = numpy.diff([*starts[0], weights.shape[1]])
    sums = numpy.add.reduceat(numpy.add.reduceat(weights, starts[0], 1), starts[1], 2)
    return sums / counts[:, None]
