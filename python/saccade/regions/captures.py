"""The arrays that a traced function reads elements of."""

from __future__ import annotations

import sys
from typing import Any

from saccade import _arrays
from saccade.regions.expression import Builder, Node
from saccade.regions.subject import Subject
from saccade.regions.dtypes import KIND


class Captures:
    """Numbers the arrays that elements are read of, and checks them."""

    def __init__(self, builder: Builder, subject: Subject, needs_grad: bool = False):
        self.builder, self.subject, self.needs_grad = builder, subject, needs_grad
        self.arrays: list[Any] = []
        self.are_made: list[bool] = []  # by the function itself, while it was traced
        self.is_reusable = True
        """Whether another call of a function with an equal fingerprint would give the same region."""
        self._checked: dict[int, Any] = {}

    def check(self, array: Any) -> None:
        """Refuses what compiled code cannot read."""
        if id(array) in self._checked:
            return
        name = f"{self.subject.name_of(array)}, captured by the {self.subject.title},"
        if torch := sys.modules.get("torch"):
            # Tracing runs without grad, but it is the caller's mode that counts.
            with torch.set_grad_enabled(self.needs_grad):
                _arrays.check_tensor(name, array)
        else:
            _arrays.check_tensor(name, array)
        dtype = str(array.dtype).removeprefix("torch.")
        if dtype not in KIND:
            raise self.subject.error(f"reads {self.subject.name_of(array)} of type {dtype}, wanted one of {', '.join(KIND)}")
        self._checked[id(array)] = array

    def load(self, array: Any, indices: list[Node], is_made: bool = False, is_stale: bool = False) -> Node:
        """The element of `array` at `indices`. It is_made where the function computed the array itself; that is_stale for
        the next call where it was computed from captured ones."""
        self.check(array)
        self.is_reusable &= not is_stale
        number = next((i for i, known in enumerate(self.arrays) if known is array), None)
        if number is None:
            number = len(self.arrays)
            self.arrays.append(array)
            self.are_made.append(is_made)
        return self.builder.load(number, str(array.dtype).removeprefix("torch."), indices)
