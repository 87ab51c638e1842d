"""The arrays that a traced function reads elements of."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from saccade import _arrays
from saccade.regions.expression import Builder, Node
from saccade.regions.traced_function import Subject
from saccade.regions.dtypes import KIND, dtype_name


class Captures:
    """Numbers the arrays that elements are read of, and checks them."""

    def __init__(self, builder: Builder, subject: Subject, needs_grad: bool = False):
        self.builder, self.subject, self.needs_grad = builder, subject, needs_grad
        self.arrays: list[Any] = []
        self.are_made: list[bool] = []  # by the function itself, while it was traced
        self.is_reusable = True
        """Whether another call of a function with an equal fingerprint would give the same region."""
        self.checked: list[Any] = []

    def check(self, array: Any) -> None:
        """Refuses what compiled code cannot read."""
        if any(known is array for known in self.checked):
            return
        name = f"{self.subject.name_of(array)}, captured by the {self.subject.title},"
        torch = sys.modules.get("torch")
        try:
            # Tracing runs without grad, but it is the caller's mode that counts.
            with torch.set_grad_enabled(self.needs_grad) if torch else contextlib.nullcontext():
                _arrays.check_tensor(name, array)
        except (TypeError, ValueError) as error:
            raise self.subject.refuse(error)
        dtype = dtype_name(array)
        if dtype not in KIND:
            known = ", ".join(KIND)
            raise self.subject.error(f"reads {self.subject.name_of(array)} of type {dtype}, expected one of {known}")
        self.checked.append(array)

    def load(self, array: Any, indices: list[Node], is_made: bool = False, is_stale: bool = False) -> Node:
        """The element of `array` at `indices`. It is_made where the function computed the array itself; that is_stale
        for the next call where it was computed from captured ones."""
        self.check(array)
        self.is_reusable &= not is_stale
        number = next((i for i, known in enumerate(self.arrays) if known is array), None)
        if number is None:
            number = len(self.arrays)
            self.arrays.append(array)
            self.are_made.append(is_made)
        return self.builder.load(number, dtype_name(array), indices)

    def rank_error(self, array: Any, count: int) -> Exception:
        """For reading an array of another rank with `count` indices."""
        rank, name = array.ndim, self.subject.name_of(array)
        return self.subject.error(f"reads {name} with {count} ind{'ex' if count == 1 else 'ices'}, but it has "
                                  f"{_arrays.dimensions(rank)}")

    def index_error(self, array: Any, found: str) -> Exception:
        """For an index beside positions that is no integer."""
        return self.subject.error(f"indexes {self.subject.name_of(array)} with {found} beside a position: wanted "
                                  f"{'one integer' if array.ndim == 1 else f'{array.ndim} integers'}")

    def number(self, node: Node) -> bool | int | float | None:
        """The number that is read now, if `node` reads an element of a captured array at a constant place."""
        if node.op != "load":
            return None
        place = []
        for index in node.operands:
            if index.op == "arith.addi" and index.operands[0].op == "extent":  # counted from the end
                index = index.operands[1]
            if index.constant is None:
                return None
            place.append(index.constant)
        self.is_reusable = False
        return self.arrays[node.attribute][tuple(place)].item()
