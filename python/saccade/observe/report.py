"""A record as one HTML file, which opens in a browser without a network.

`page/` has the page: a template, a style sheet, and a script in one file for each concern. The record is in the page as
JSON. The page's policy permits this style sheet and this script only, so that nothing in a record can run or be loaded.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import os
import pathlib
import re
from typing import Any

from saccade import _files
from saccade.observe.record import Record, to_json

SIZE = 4_900_000
"""Tiles are left out of a page that would have more bytes."""
STEPS, EVENTS = 200, 1000
"""Of more steps, every second, third, ... from the last on is in the page. Of more events, the first are."""
_PAGE = pathlib.Path(__file__).with_name("page")
_SCRIPTS = ("data", "state", "colors", "overview", "cell_canvas", "weights", "links", "charts", "curves", "mask",
            "events", "main")  # fmt: skip


def write(record: Record, path: str | os.PathLike[str]) -> None:
    """Writes the page of a record. An error leaves the file of before."""
    _files.write(path, page(record))


def page(record: Record) -> str:
    """The text of the page."""
    if not isinstance(record, Record):
        raise TypeError(f"record is {record!r:.80}, expected a saccade.observe.Record, such as that of Record.load")
    data = to_json(record)
    left_out = _thin_steps(data) + _first_events(data)
    style = (_PAGE / "style.css").read_text(encoding="utf-8")
    script = '"use strict";\n' + "".join((_PAGE / f"{name}.js").read_text(encoding="utf-8") for name in _SCRIPTS)
    parts = {"POLICY": _policy(style, script), "MODEL": html.escape(record.model or "a model"), "STYLE": style,
             "SCRIPT": script}  # fmt: skip
    tiles, data["tiles"] = data["tiles"], []
    template = (_PAGE / "page.html").read_text(encoding="utf-8")
    texts = (template, *parts.values(), _text({**data, "left_out": left_out}))
    data["tiles"] = _fitting(tiles, SIZE - sum(len(text.encode()) for text in texts))
    if missing := len(tiles) - len(data["tiles"]):
        left_out.append(f"{missing} of {len(tiles)} tiles of exact weights are in the record only, to keep this file "
                        "small.")  # fmt: skip
    parts["RECORD"] = _text({**data, "left_out": left_out})
    return re.sub(r"@([A-Z]+)@", lambda found: parts[found[1]], template)


def _policy(style: str, script: str) -> str:
    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return f"default-src 'none'; img-src data:; style-src {source(style)}; script-src {source(script)}"


def _text(data: dict[str, Any]) -> str:
    """JSON that ends no element of HTML."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _thin_steps(data: dict[str, Any]) -> list[str]:
    steps = data["steps"]
    every = -(-len(steps) // STEPS)
    if every > 1:
        kept = slice((len(steps) - 1) % every, None, every)
        data["steps"] = steps[kept]
        data["statistics"] = {name: each[kept] for name, each in data["statistics"].items()}
    data["statistics"] = {name: [[[_rounded(x) for x in heads] for heads in layers] for layers in each]
                          for name, each in data["statistics"].items()}  # fmt: skip
    return [f"One of {every} observed steps is shown."] if every > 1 else []


def _rounded(x: float | str) -> float | str:
    return x if isinstance(x, str) else float(f"{x:.4g}")


def _first_events(data: dict[str, Any]) -> list[str]:
    count = len(data["events"])
    data["events"] = data["events"][:EVENTS]
    return [f"The first {EVENTS} of {count} events are shown."] if count > EVENTS else []


def _fitting(tiles: list[dict[str, Any]], space: int) -> list[dict[str, Any]]:
    """The tiles that `space` bytes hold: the first one of each head before others."""
    seen: set[tuple[int, int]] = set()
    first: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for tile in tiles:
        (others if (tile["layer"], tile["head"]) in seen else first).append(tile)
        seen.add((tile["layer"], tile["head"]))
    kept = []
    for tile in first + others:
        space -= len(_text(tile)) + 1
        if space < 0:
            break
        kept.append(tile)
    return kept
