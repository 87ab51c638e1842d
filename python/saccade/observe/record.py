"""The record of observed attention: statistics of layers and heads over steps, pooled maps, and events."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy

from saccade import _files

FORMAT, VERSION = "saccade.record", 1
STATISTICS = ("entropy", "effective_keys", "max", "sink", "diagonal", "uniformity")
"""The statistics of a record, in the order of its tables."""
KINDS = ("nan", "inf", "dead", "sink", "sharp", "uniform", "collapse")
"""The kinds of events."""


@dataclass(frozen=True)
class Layer:
    """A call of attention in each step."""

    name: str
    """The qualified name of the innermost module that runs the call."""
    call: int
    """The number of the call among those of this module in a step, from 0."""
    heads: int
    queries: int
    """The number of queries in the last observed step; so for keys."""
    keys: int
    causal: bool

    def __str__(self) -> str:
        return self.name if not self.call else f"{self.name} (call {self.call})"


@dataclass(frozen=True)
class Event:
    """What happened in a step."""

    step: int
    kind: str
    """One of `KINDS`."""
    layer: int
    """The index in `Record.layers`."""
    head: int | None
    """None if the event is one of the layer. Query and key are None if there is no one place."""
    query: int | None
    key: int | None
    operand: str | None
    """For nan and inf, what brought it: "query", "key", "value", "mask" or "score"."""
    message: str


@dataclass
class _Grid:
    """Non-negative numbers as bytes: number = byte / 255 * scale."""

    scale: float
    values: Any
    """A NumPy array of uint8."""

    def numbers(self) -> Any:
        """The numbers as float32."""
        return self.values.astype(numpy.float32) * (self.scale / 255)


@dataclass
class Map(_Grid):
    """Mean weight mass of a block of keys for the queries of a block, [rows, columns]. A row sums to 1."""

    layer: int
    head: int
    row_size: int
    """The number of queries of a block."""
    column_size: int
    """The number of keys of a block."""


@dataclass
class Received(_Grid):
    """The mass that each key receives from all queries, [keys]."""

    layer: int
    head: int


@dataclass
class Tile(_Grid):
    """Weights of queries and keys, [rows, columns]."""

    layer: int
    head: int
    batch: int
    first_query: int
    first_key: int


@dataclass
class MaskTiles:
    """What a mask keeps of tiles of size × size, [rows, columns]: 0 nothing, 1 some pairs, 2 all pairs."""

    layer: int
    size: int
    values: Any
    """A NumPy array of uint8."""


class ByStatistic(dict[str, Any]):
    """Numbers by the names of statistics."""

    def __missing__(self, name: str) -> Any:
        raise KeyError(f"the statistic is {name!r}, expected one of {', '.join(STATISTICS)}")


@dataclass
class Record:
    """What `saccade.observe` found."""

    model: str
    """The class of the model."""
    layers: list[Layer] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """The observed steps that are kept."""
    statistics: dict[str, list[list[Any]]] = field(default_factory=lambda: {name: [] for name in STATISTICS})
    """By name, step and layer: an array [heads] of float32. Means over batches and queries that see a key; of `max`,
    the maximum. NaN where a layer was not called."""
    maps: list[Map] = field(default_factory=list)
    """Of the last observed step; so for `received`, `tiles` and `mask_tiles`."""
    received: list[Received] = field(default_factory=list)
    tiles: list[Tile] = field(default_factory=list)
    mask_tiles: list[MaskTiles] | None = None
    events: list[Event] = field(default_factory=list)
    tokens: list[list[str]] | None = None
    """The tokens of each batch."""
    missed: dict[str, str] = field(default_factory=dict)
    """The reasons why modules were not observed, by their names."""

    def __post_init__(self) -> None:
        self.statistics = ByStatistic(self.statistics)

    def series(self, statistic: str, layer: int, head: int | None = None) -> list[float]:
        """A statistic of one head over `steps`; without a head, the mean of the layer's heads, of `max` the maximum."""
        steps = self.statistics[statistic]
        check_index("layer", layer, len(self.layers))
        if head is None:
            return [of_layer(statistic, layers[layer]) for layers in steps]
        check_index("head", head, self.layers[layer].heads)
        return [float(layers[layer][head]) for layers in steps]

    def __str__(self) -> str:
        from saccade.observe import tables  # which imports this module

        return tables.text(self)

    def show(self, layer: int | None = None) -> None:
        """Prints the layers, or the heads of one layer, in the last step, and the newest events."""
        from saccade.observe import tables

        tables.show(self, layer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a JSON file. An error leaves the file of before."""
        _files.write(path, json.dumps(to_json(self), separators=(",", ":"), allow_nan=False))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Reads a file of `save`. Raises ValueError for others."""
        try:
            with open(path, encoding="utf-8") as file:
                found = json.load(file)
        except ValueError as error:  # of JSON, of UTF-8
            raise ValueError(f"{os.fspath(path)} is no record: {error}") from None
        if not isinstance(found, dict) or found.get("format") != FORMAT:
            raise ValueError(f'{os.fspath(path)} is no record: "format" is not "{FORMAT}"')
        if found.get("version") != VERSION:
            raise ValueError(f"{os.fspath(path)} is a record of version {found.get('version')!r}, expected {VERSION}")
        try:
            return _from_json(found)
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise ValueError(f"{os.fspath(path)} is a malformed record: {type(error).__name__}: {error}") from None


def of_layer(statistic: str, heads: Any) -> float:
    """The number of a layer: the mean of its heads, of `max` the maximum."""
    return float((numpy.max if statistic == "max" else numpy.mean)(heads))


def check_index(name: str, x: int, count: int) -> None:
    """Raises ValueError if x is not the index of one of `count`."""
    if not 0 <= x < count:
        raise ValueError(f"{name} is {x}, expected 0 to {count - 1}" if count else f"{name} is {x}, but there is none")


# --- JSON -------------------------------------------------------------------------------------------------------------


def to_number(x: Any) -> float | str:
    """A number of JSON with the precision of float32; NaN and Inf are strings."""
    text = f"{float(x):.7g}"
    return text if text in ("nan", "inf", "-inf") else float(text)


def to_json(record: Record) -> dict[str, Any]:
    """The JSON object of a record."""
    mask_tiles = record.mask_tiles
    return {
        "format": FORMAT, "version": VERSION, "model": record.model, "tokens": record.tokens,
        "layers": [dataclasses.asdict(layer) for layer in record.layers], "steps": record.steps,
        "statistics": {name: [[[to_number(x) for x in heads] for heads in layers] for layers in steps]
                       for name, steps in record.statistics.items()},
        "maps": list(map(_grid_to_json, record.maps)), "received": list(map(_grid_to_json, record.received)),
        "tiles": list(map(_grid_to_json, record.tiles)),
        "mask_tiles": None if mask_tiles is None else list(map(_grid_to_json, mask_tiles)),
        "events": [dataclasses.asdict(event) for event in record.events], "missed": record.missed,
    }  # fmt: skip


def _grid_to_json(grid: Any) -> dict[str, Any]:
    fields = {each.name: getattr(grid, each.name) for each in dataclasses.fields(grid)}
    values = fields.pop("values")
    if values.ndim == 2:
        fields["rows"], fields["columns"] = values.shape
    if "scale" in fields:
        fields["scale"] = float(fields["scale"])
    return {**fields, "values": base64.b64encode(values.tobytes()).decode()}


_Kind = TypeVar("_Kind")


def _read(kind: type[_Kind], found: dict[str, Any]) -> _Kind:
    """A dataclass from the keys that it knows."""
    return kind(**{each.name: found[each.name] for each in dataclasses.fields(kind)})  # type: ignore[arg-type]


def _read_grid(kind: type[_Kind], found: dict[str, Any]) -> _Kind:
    values = numpy.frombuffer(base64.b64decode(found["values"], validate=True), numpy.uint8)
    if kind is not Received:
        values = values.reshape(found["rows"], found["columns"])
    return _read(kind, {**found, "values": values})


def _from_json(found: dict[str, Any]) -> Record:
    record = Record(
        found["model"], [_read(Layer, each) for each in found["layers"]], list(found["steps"]),
        {name: [[numpy.array(heads, numpy.float32) for heads in layers] for layers in found["statistics"][name]]
         for name in STATISTICS},
        [_read_grid(Map, each) for each in found["maps"]],
        [_read_grid(Received, each) for each in found["received"]],
        [_read_grid(Tile, each) for each in found["tiles"]],
        None if found["mask_tiles"] is None else [_read_grid(MaskTiles, each) for each in found["mask_tiles"]],
        [_read(Event, each) for each in found["events"]], found["tokens"], found.get("missed", {}))  # fmt: skip
    layers, steps = len(record.layers), len(record.steps)
    if any(len(each) != steps or any(len(found) != layers for found in each) for each in record.statistics.values()):
        raise ValueError(f"statistics are not those of {steps} steps and {layers} layers")
    for each in (*record.maps, *record.received, *record.tiles, *record.events, *(record.mask_tiles or ())):
        check_index("layer", each.layer, layers)
    return record
