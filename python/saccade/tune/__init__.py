"""Tile sizes that are measured on this machine, for `--schedule-table`.

`tune` compares tile sizes of a class of attention with those that the compiler chooses, and returns the ones that are
faster, if there are any. `python -m saccade.tune` writes a table of them.
"""

from __future__ import annotations

from saccade.tune.search import Result, Tiles, tune
from saccade.tune.shapes import Case, ShapeClass

__all__ = ["Case", "Result", "ShapeClass", "Tiles", "tune"]
