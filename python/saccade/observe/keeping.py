"""What a record keeps of observed steps, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from saccade.observe.measures import Measured
from saccade.observe.record import STATISTICS, Event, Map, MaskTiles, Received, Record, Tile

_MAX_EVENTS = 10_000


class Keeper:
    """Adds steps to a record."""

    def __init__(self, record: Record, most: int):
        self.record, self._most = record, most
        self._indices: dict[tuple[str, int], int] = {}

    def add(self, step: int, measured: Sequence[Measured], missed: dict[str, str]) -> list[Measured | None]:
        """Adds a step. Returns what was measured of each layer of the record, None if it was not called."""
        record = self.record
        record.missed |= missed
        if len(record.steps) >= self._most:
            del record.steps[1::2]
            for series in record.statistics.values():
                del series[1::2]
        for each in measured:
            index = self._indices.setdefault((each.layer.name, each.layer.call), len(record.layers))
            record.layers[index : index + 1] = [each.layer]
        layers: list[Measured | None] = [None] * len(record.layers)
        for each in measured:
            layers[self._indices[each.layer.name, each.layer.call]] = each
        for name in STATISTICS:
            for earlier in record.statistics[name]:
                earlier += [_unknown(layer.heads) for layer in record.layers[len(earlier) :]]
            record.statistics[name].append([
                _unknown(layer.heads) if each is None else each.numbers[name].astype(numpy.float32)
                for layer, each in zip(record.layers, layers)])
        record.steps.append(step)
        self._add_grids(layers)
        return layers

    def add_events(self, events: Iterable[Event]) -> None:
        """Adds events. If there are too many, the oldest half is dropped, except for NaN and Inf."""
        found = self.record.events
        found += events
        if len(found) > _MAX_EVENTS:
            half = len(found) // 2
            found[:half] = [each for each in found[:half] if each.kind in ("nan", "inf")][: half // 2]

    def _add_grids(self, layers: Sequence[Measured | None]) -> None:
        record = self.record
        record.maps, record.received, record.tiles = [], [], []
        record.mask_tiles = [MaskTiles(index, *each.mask) for index, each in enumerate(layers)
                             if each is not None and each.mask is not None] or None
        for index, each in enumerate(layers):
            for head in range(each.layer.heads if each is not None else 0):
                assert each is not None
                if each.grids:
                    scale, values = _bytes(each.grids["map"][head])
                    record.maps.append(Map(scale, values, index, head, *each.block))
                    record.received.append(Received(*_bytes(each.grids["received"][head]), index, head))
                for first_query, first_key, weights in each.tiles:
                    record.tiles.append(Tile(*_bytes(weights[head]), index, head, 0, first_query, first_key))


def _unknown(heads: int) -> Any:
    return numpy.full(heads, numpy.nan, numpy.float32)


def _bytes(numbers: Any) -> tuple[float, Any]:
    """The scale and the bytes of non-negative numbers; those that are not finite are 0."""
    numbers = numpy.nan_to_num(numbers, nan=0.0, posinf=0.0)
    scale = float(numbers.max()) or 1.0
    return scale, numpy.rint(numbers * (255 / scale)).astype(numpy.uint8)
