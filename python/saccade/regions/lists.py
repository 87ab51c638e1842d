"""Captured lists of numbers, nested or not, that a function indexes with positions.

A position has no value while a function is traced, so an element at a position is read from a table that is made of the
list. The elements are constants: another list is traced anew, but shares the kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade.regions.numbers import plain

Read = Callable[["NumberList", Any], Any]


def shape_of(x: Any) -> tuple[int, ...] | None:
    """The extents of a nested list of numbers; None for any other object, and for lists of unequal lengths."""
    if isinstance(x, (bool, int, float)):
        return ()
    if type(x) not in (list, NumberList) or not x:
        return None
    first = shape_of(x[0])
    return None if first is None or any(shape_of(item) != first for item in x) else (len(x), *first)


def is_list_of_numbers(x: Any) -> bool:
    """Whether `x` is a list of numbers, or of lists of one length, and so on."""
    return type(x) is list and shape_of(x) is not None


class NumberList(list[Any]):
    """A copy of a captured list. `read` is called for its element at an index that is no int or slice."""

    def __init__(self, items: list[Any], read: Read):
        super().__init__([NumberList(item, read) if type(item) is list else item for item in items])
        self._read = read

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, (int, slice)):
            return super().__getitem__(index)
        return self._read(self, index)

    def values(self) -> list[Any]:
        """The elements as plain numbers."""
        return [item.values() if type(item) is NumberList else plain(item) for item in self]
