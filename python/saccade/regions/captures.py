"""The captured arrays of a traced function."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

from saccade import _arrays, _gpu
from saccade.regions.dtypes import KIND, dtype_name
from saccade.regions.expression import Builder, Node
from saccade.regions.traced_function import TracedFunction


class Captures:
    """Numbers the arrays that elements are read from, and checks them."""

    def __init__(self, builder: Builder, traced: TracedFunction, needs_grad: bool = False):
        self.builder, self.traced, self.needs_grad = builder, traced, needs_grad
        self.arrays: list[Any] = []
        self.are_made: list[bool] = []  # whether the function created the array while it was traced
        self.is_reusable = True
        """Whether another call of a function with an equal fingerprint would result in the same region."""
        self.checked: list[Any] = []

    def check(self, array: Any) -> None:
        """Rejects arrays that compiled code cannot read."""
        if any(known is array for known in self.checked):
            return
        name = f"{self.traced.name_of(array)}, captured by the {self.traced.title},"
        torch = sys.modules.get("torch")
        try:
            # Tracing runs without grad mode; the caller's mode applies here. A mask has no gradient.
            has_grad = self.needs_grad and self.traced.role != "mask"
            with torch.set_grad_enabled(has_grad) if torch else contextlib.nullcontext():
                (_arrays if self.traced.device == "cpu" else _gpu).check_tensor(name, array)
        except (TypeError, ValueError) as error:
            raise self.traced.refuse(error) from None
        dtype = dtype_name(array)
        if dtype not in KIND:
            known = ", ".join(KIND)
            raise self.traced.error(f"reads {self.traced.name_of(array)} of type {dtype}, expected one of {known}")
        self.checked.append(array)

    def load(self, array: Any, indices: list[Node], is_made: bool = False, is_stale: bool = False) -> Node:
        """The element of `array` at `indices`.

        Args:
            is_made: the function created the array.
            is_stale: it was computed from captured arrays, so it differs in the next call.
        """
        self.check(array)
        self.is_reusable &= not is_stale
        number = next((i for i, known in enumerate(self.arrays) if known is array), None)
        if number is None:
            number = len(self.arrays)
            self.arrays.append(array)
            self.are_made.append(is_made)
        return self.builder.load(number, dtype_name(array), indices)

    def rank_error(self, array: Any, count: int) -> Exception:
        """The error for reading an array with `count` indices, unequal to its rank."""
        if count == 0:
            return self.traced.whole_error(array)
        rank, name = array.ndim, self.traced.name_of(array)
        return self.traced.error(f"reads {name} with {count} ind{'ex' if count == 1 else 'ices'}, but it has "
                                  f"{_arrays.dimensions(rank)}")

    def index_error(self, array: Any, found: str) -> Exception:
        """The error for an index that is no integer, next to a position."""
        return self.traced.error(f"indexes {self.traced.name_of(array)} with {found} next to a position, expected "
                                  f"{'one integer' if array.ndim == 1 else f'{array.ndim} integers'}")

    def number(self, node: Node) -> bool | int | float | None:
        """The current value of a load at constant indices, otherwise None."""
        if node.op != "load":
            return None
        place = []
        for index in node.operands:
            if index.op == "arith.addi" and index.operands[0].op == "extent":  # negative index
                index = index.operands[1]
            if index.op == "number":
                place.append(self.builder.numbers[index.attribute]._bake())
            elif index.constant is None:
                return None
            else:
                place.append(index.constant)
        self.is_reusable = False
        number: bool | int | float = self.arrays[node.attribute][tuple(place)].item()
        return number
