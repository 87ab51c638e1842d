"""Records as tables in a terminal: with `rich` if it is installed, otherwise as plain text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saccade.observe.record import STATISTICS, Record, check_index, of_layer

_COLUMNS = {"effective_keys": "keys", "uniformity": "uniform"}
_MOST_EVENTS = 20

Rows = list[list[str]]


def text(record: Record, layer: int | None = None) -> str:
    """The tables as plain text, with at most 20 events, the newest."""
    rows = _rows(record, layer)
    widths = [max(map(len, column)) for column in zip(*rows)]
    lines = [_title(record)]
    for row in rows:
        first, *others = [cell.ljust(width) if n == 0 else cell.rjust(width)
                          for n, (cell, width) in enumerate(zip(row, widths))]
        lines.append("  ".join([first, *others]).rstrip())
    return "\n".join([*lines, *_notes(record)])


def show(record: Record, layer: int | None = None) -> None:
    """Prints the tables: plain text, or colours and lines on a terminal."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print(text(record, layer))
        return
    console = Console()
    if not console.is_terminal:
        print(text(record, layer))
        return
    header, *rows = _rows(record, layer)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for n, name in enumerate(header):
        table.add_column(name, justify="right" if n else "left", no_wrap=n > 0, overflow="fold")
    for row in rows:
        table.add_row(*row)
    console.print(_title(record), markup=False, highlight=False)
    console.print(table)
    for note in _notes(record):
        console.print(note, markup=False, highlight=False)


def _title(record: Record) -> str:
    sizes = list(dict.fromkeys(f"{layer.heads} heads, {layer.queries} × {layer.keys}" for layer in record.layers))
    sizes[3:] = ["..."] * (len(sizes) > 3)
    count = len(record.steps)
    steps = f"{count} observed step{'s' * (count != 1)}"
    steps += f", the last one is {record.steps[-1]}" if record.steps else ""
    return f"{record.model}: {len(record.layers)} layers ({'; '.join(sizes)}), {steps}"


def _rows(record: Record, layer: int | None) -> Rows:
    """The header and the rows of a table: the layers, or the heads of one layer, in the last step."""
    last = {name: steps[-1] if steps else [] for name, steps in record.statistics.items()}
    if layer is None:
        rows = [[str(each), *[_number(of_layer(name, last[name][index])) for name in STATISTICS]]
                for index, each in enumerate(record.layers)]
        return [["layer", *_header()], *rows]
    check_index("layer", layer, len(record.layers))
    heads: Sequence[Any] = range(record.layers[layer].heads)
    return [[f"{record.layers[layer]}, head", *_header()],
            *[[str(head), *[_number(last[name][layer][head]) for name in STATISTICS]] for head in heads]]


def _header() -> list[str]:
    return [_COLUMNS.get(name, name) for name in STATISTICS]


def _number(x: Any) -> str:
    return f"{float(x):.3g}"


def _notes(record: Record) -> list[str]:
    events = [f"step {event.step}: {event.kind}: {event.message}" for event in record.events[-_MOST_EVENTS:]]
    more = len(record.events) - len(events)
    return [*([f"{more} earlier events"] if more else []), *events,
            *[f"not observed: {name}: {reason}" for name, reason in record.missed.items()]]
