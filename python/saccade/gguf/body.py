"""Writes the ops of a function: what a decoder needs, as `linalg` on tensors.

A structured op is given by an equation of one letter a dimension, as in Einstein's notation: "rk,mk->rm" is a matmul.
Letters that the result does not have are reduced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

Extent = int | str
"""A size: a number, or the SSA name of an index."""


class Value(NamedTuple):
    """A tensor in the program."""

    name: str
    shape: tuple[Extent, ...]
    element: str = "f32"

    @property
    def type(self) -> str:
        """The MLIR type."""
        return tensor_type(self.shape, self.element)


def tensor_type(shape: Sequence[Extent], element: str) -> str:
    """The MLIR type of a tensor."""
    return f"tensor<{''.join(f'{extent}x' if isinstance(extent, int) else '?x' for extent in shape)}{element}>"


def number(value: float, element: str = "f32") -> str:
    """A literal with its type."""
    text = str(value) if element[0] == "i" else f"{value:.17e}"
    return f"{text} : {element}"


class Region:
    """The body of a structured op on scalars."""

    def __init__(self, letters: str, prefix: str):
        self.lines: list[str] = []
        self._letters, self._prefix = letters, prefix

    def _new(self) -> str:
        return f"{self._prefix}_{len(self.lines)}"

    def emit(self, text: str) -> str:
        """Adds an op and returns the name of its result."""
        name = self._new()
        self.lines.append(f"{name} = {text}")
        return name

    def op(self, op: str, *operands: str, type: str = "f32") -> str:
        """Adds an op whose operands and result have one type."""
        return self.emit(f"{op} {', '.join(operands)} : {type}")

    def cast(self, op: str, operand: str, source: str, target: str) -> str:
        """Adds a conversion."""
        return self.emit(f"{op} {operand} : {source} to {target}")

    def constant(self, value: float, type: str = "f32") -> str:
        """Adds a constant."""
        return self.emit(f"arith.constant {number(value, type)}")

    def index(self, letter: str) -> str:
        """The position in a dimension."""
        return self.emit(f"linalg.index {self._letters.index(letter)} : index")

    def extract(self, tensor: Value, *indices: str) -> str:
        """Reads an element."""
        return self.emit(f"tensor.extract {tensor.name}[{', '.join(indices)}] : {tensor.type}")


Compute = Callable[..., str]
"""Adds ops to a region for one element: of the region and the names of its operands, the last of which is the partial
result of a reduction. Returns the name of the result."""


class Body:
    """Collects the lines of a function."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0
        self._indices: dict[int, str] = {}

    def name(self) -> str:
        """A new SSA name."""
        self._count += 1
        return f"%v{self._count - 1}"

    def emit(self, text: str) -> str:
        """Adds an op and returns the name of its result."""
        name = self.name()
        self.lines.append(f"  {name} = {text}")
        return name

    def index(self, value: int) -> str:
        """An index constant."""
        if value not in self._indices:
            self._indices[value] = self.emit(f"arith.constant {value} : index")
        return self._indices[value]

    def dim(self, value: Value, axis: int) -> str:
        """A size of a tensor."""
        return self.emit(f"tensor.dim {value.name}, {self.index(axis)} : {value.type}")

    def product(self, x: str, y: str) -> str:
        """The product of two sizes."""
        return self.emit(f"arith.muli {x}, {y} : index")

    def empty(self, shape: tuple[Extent, ...], element: str = "f32") -> Value:
        """A tensor without elements."""
        dynamic = ", ".join(extent for extent in shape if isinstance(extent, str))
        return Value(self.emit(f"tensor.empty({dynamic}) : {tensor_type(shape, element)}"), shape, element)

    def generic(self, equation: str, inputs: Sequence[Value], shape: tuple[Extent, ...], compute: Compute,
                element: str = "f32") -> Value:
        """A structured op. Its result has the given shape; sums begin with 0."""
        given, _, result = equation.partition("->")
        terms = given.split(",") if given else []
        reduced = "".join(dict.fromkeys(letter for letter in "".join(terms) if letter not in result))
        letters = result + reduced
        out = self.empty(shape, element)
        if reduced:
            zero = self.emit(f"arith.constant {number(0, element)}")
            out = Value(self.emit(f"linalg.fill ins({zero} : {element}) outs({out.name} : {out.type}) -> {out.type}"),
                        shape, element)  # fmt: skip
        maps = ", ".join(f"affine_map<({', '.join(letters)}) -> ({', '.join(term)})>" for term in [*terms, result])
        kinds = ", ".join(['"parallel"'] * len(result) + ['"reduction"'] * len(reduced))
        name = self.name()
        region = Region(letters, f"{name}_")
        operands = [f"{name}_in{i}" for i in range(len(inputs))]
        arguments = [f"{operand}: {value.element}" for operand, value in zip(operands, inputs)]
        yielded = compute(region, *operands, *([f"{name}_out"] if reduced else []))
        ins = (f" ins({', '.join(value.name for value in inputs)} : {', '.join(value.type for value in inputs)})"
               if inputs else "")  # fmt: skip
        self.lines += [f"  {name} = linalg.generic {{indexing_maps = [{maps}], iterator_types = [{kinds}]}}{ins} "
                       f"outs({out.name} : {out.type}) {{",
                       f"  ^bb0({', '.join([*arguments, f'{name}_out: {element}'])}):",
                       *(f"    {line}" for line in region.lines),
                       f"    linalg.yield {yielded} : {element}", f"  }} -> {out.type}"]  # fmt: skip
        return Value(name, shape, element)

    def contract(self, equation: str, x: Value, y: Value, shape: tuple[Extent, ...]) -> Value:
        """Sums of products in f32."""
        def compute(at: Region, a: str, b: str, sum: str) -> str:
            wide = [name if value.element == "f32" else at.cast("arith.extf", name, value.element, "f32")
                    for name, value in ((a, x), (b, y))]  # fmt: skip
            return at.op("arith.addf", sum, at.op("arith.mulf", *wide))
        return self.generic(equation, [x, y], shape, compute)

    def split(self, value: Value, axis: int, extents: tuple[Extent, ...]) -> Value:
        """Splits a dimension into several."""
        shape = (*value.shape[:axis], *extents, *value.shape[axis + 1 :])
        groups = _groups(len(value.shape), axis, len(extents))
        sizes = ", ".join(map(str, shape))
        return Value(self.emit(f"tensor.expand_shape {value.name} {groups} output_shape [{sizes}] : {value.type} into "
                               f"{tensor_type(shape, value.element)}"), shape, value.element)  # fmt: skip

    def join(self, value: Value, axis: int, count: int, extent: Extent) -> Value:
        """Joins `count` dimensions to one of the given size."""
        shape = (*value.shape[:axis], extent, *value.shape[axis + count :])
        groups = _groups(len(shape), axis, count)
        return Value(self.emit(f"tensor.collapse_shape {value.name} {groups} : {value.type} into "
                               f"{tensor_type(shape, value.element)}"), shape, value.element)  # fmt: skip

    def slice(self, value: Value, offsets: Sequence[int], shape: tuple[Extent, ...],
              taken: tuple[Extent, ...] | None = None) -> Value:
        """A part of a tensor. `taken` is its shape before dimensions of size 1 are dropped."""
        sizes = taken or shape
        return Value(self.emit(f"tensor.extract_slice {value.name}[{', '.join(map(str, offsets))}] "
                               f"[{', '.join(map(str, sizes))}] [{', '.join('1' for _ in sizes)}] : {value.type} to "
                               f"{tensor_type(shape, value.element)}"), shape, value.element)  # fmt: skip

    def concatenate(self, values: Sequence[Value], axis: int) -> Value:
        """Tensors one after another, of static extents, in a dimension."""
        first = values[0]
        extent = sum(int(value.shape[axis]) for value in values)
        shape = (*first.shape[:axis], extent, *first.shape[axis + 1 :])
        return Value(self.emit(f"tensor.concat dim({axis}) {', '.join(value.name for value in values)} : "
                               f"({', '.join(value.type for value in values)}) -> "
                               f"{tensor_type(shape, first.element)}"), shape, first.element)  # fmt: skip


def _groups(rank: int, axis: int, count: int) -> str:
    """The dimensions of a reshape: `count` ones in place of `axis`, out of `rank`."""
    groups = [[place + (count - 1) * (place > axis)] for place in range(rank)]
    groups[axis] = list(range(axis, axis + count))
    return str(groups)
