"""Scalar expressions: the typed graph between the tracers and the MLIR text.

A node is one value of one element type. Equal nodes are unified, so common subexpressions are computed once, and unused
nodes are not emitted. Integer nodes, including positions, have a value range: it avoids the wrap-around of indices that
cannot be negative and allows divisions of positions in 32 bits.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeAlias

from saccade.regions.dtypes import BITS, BOOL, COMPUTED, FLOAT, INTEGER, KIND, LIMITS, POSITION, kind_of_number, promote
from saccade.regions.numbers import FLOAT_LIMIT, Number


class Node:
    """One value. `op` is an MLIR op or one of: argument, constant, number, load, extent, relabel, round, widen,
    narrow."""

    __slots__ = ("op", "operands", "attribute", "dtype", "low", "high")

    def __init__(self, op: str, operands: tuple[Node, ...], attribute: Any, dtype: str, low: int, high: int):
        self.op, self.operands, self.attribute, self.dtype = op, operands, attribute, dtype
        self.low, self.high = low, high  # 0, 0 for floats

    @property
    def kind(self) -> int:
        return KIND[self.dtype]

    @property
    def constant(self) -> bool | int | float | None:
        """The value of a constant, otherwise None."""
        return self.attribute if self.op == "constant" else None


Operand: TypeAlias = Node | Number | bool | int | float
"""A node, or a Python scalar or captured number, which takes the type of the other operands unless it is of a higher
kind."""

ErrorFactory = Callable[[str], Exception]
"""Creates the exception for an invalid operation, with the function's name and line."""

# The largest float of each precision within the range of an integer type.
_LARGEST = {
    ("float32", "int32"): 2147483520.0, ("float64", "int32"): 2147483647.0,
    ("float32", "int64"): 9223371487098961920.0, ("float64", "int64"): 9223372036854774784.0,
}  # fmt: skip


class Builder:
    """Creates the nodes of one function. `precision`, "float32" or "float64", is the type of the score and the promoted
    type of integers and Python floats. torch uses a global default for the latter, which would lose precision in
    float64 kernels."""

    def __init__(self, precision: str, error: ErrorFactory):
        self.precision, self.error = precision, error
        self._known: dict[tuple[Any, ...], Node] = {}
        self.numbers: dict[tuple[str, Any], Number] = {}
        """The captured numbers that nodes read, by the attribute of the node: MLIR type and expression."""

    # --- leaves ---------------------------------------------------------------------------------------------------

    def argument(self, number: int, dtype: str) -> Node:
        """Argument `number` of the region: a position, or the score."""
        return self.make("argument", (), number, dtype, POSITION if dtype == "int64" else None)

    def number(self, number: bool | int | float, dtype: str) -> Node:
        """A constant of type `dtype`."""
        if KIND[dtype] == FLOAT:
            number = float(number)
        else:
            number = bool(number) if dtype == "bool" else _wrap(int(number), dtype)
        return self.make("constant", (), number, dtype, (int(number),) * 2 if KIND[dtype] != FLOAT else None)

    def captured(self, number: Number, dtype: str) -> Node:
        """A captured number as a value of type `dtype`."""
        is_float = KIND[dtype] == FLOAT
        if KIND[dtype] == BOOL or not is_float and isinstance(number, float):
            return self.number(number._bake(), dtype)
        read = {"f64": "float64", "f32": "float32", "index": "int64"}[COMPUTED[dtype] if is_float else "index"]
        attribute = COMPUTED[read], number._expression
        self.numbers[attribute] = number
        node = self.make("number", (), attribute, read, None if is_float else number._range)
        if is_float and isinstance(number, float) and number._expression[0] == "slot":
            # Both ops leave the number as it is. They tell the proof of stability its range.
            for op, limit in (("arith.minimumf", FLOAT_LIMIT), ("arith.maximumf", -FLOAT_LIMIT)):
                node = self.make(op, (node, self.number(limit, read)), None, read)
        return self.convert(node, dtype)

    def bake(self, *nodes: Node) -> None:
        """Makes the captured numbers that nodes depend on constants of the region."""
        todo = list(nodes)
        for node in todo:
            todo += [operand for operand in node.operands if not any(operand is known for known in todo)]
            if node.op == "number":
                self.numbers[node.attribute]._bake()

    def extent(self, capture: int, axis: int) -> Node:
        """The extent of capture `capture` along `axis`."""
        return self.make("extent", (), (capture, axis), "int64", (0, 1 << 40))

    def load(self, capture: int, dtype: str, indices: list[Node]) -> Node:
        """An element of a capture. Negative indices count from the end."""
        wrapped = []
        for axis, index in enumerate(indices):
            index = self.convert(index, "int64")
            if index.high < 0:
                index = self.arithmetic("arith.addi", self.extent(capture, axis), index)
            elif index.low < 0:
                beyond = self.arithmetic("arith.addi", index, self.extent(capture, axis))
                is_negative = self.make("arith.cmpi", (index, self.number(0, "int64")), "slt", "bool")
                index = self.make("arith.select", (is_negative, beyond, index), None, "int64")
            wrapped.append(index)
        return self.make("load", tuple(wrapped), capture, dtype)

    # --- values ---------------------------------------------------------------------------------------------------

    def make(self, op: str, operands: tuple[Node, ...], attribute: Any, dtype: str,
             limits: tuple[int, int] | None = None) -> Node:
        """The node of an op. `limits` is the range of an integer; None, or a range that the type cannot represent,
        means any value."""
        is_float = KIND[dtype] == FLOAT
        exact = struct.pack("d", attribute) if is_float and op == "constant" else attribute
        key = (op, tuple(map(id, operands)), exact, dtype)
        if node := self._known.get(key):
            return node
        low, high = (0, 0) if is_float else LIMITS[dtype]
        if limits and not is_float and low <= limits[0] and limits[1] <= high:
            low, high = limits
        node = self._known[key] = Node(op, operands, attribute, dtype, low, high)
        return node

    def arithmetic(self, op: str, a: Node, b: Node) -> Node:
        """An op on two values of one type, with constant folding."""
        limits = None
        if a.kind == BOOL and op in ("arith.andi", "arith.ori"):
            for known, other in ((a, b), (b, a)):
                if known.constant is not None:
                    return other if known.constant == (op == "arith.andi") else known
        if a.kind == INTEGER:
            if op in ("arith.addi", "arith.subi", "arith.muli"):
                if b.constant == 0 and op != "arith.muli" or b.constant == 1 and op == "arith.muli":
                    return a
                if a.constant == 0 and op == "arith.addi" or a.constant == 1 and op == "arith.muli":
                    return b
            limits = _interval(op, a, b)
            if limits and limits[0] == limits[1] and LIMITS[a.dtype][0] <= limits[0] <= LIMITS[a.dtype][1]:
                return self.number(limits[0], a.dtype)
        return self.make(op, (a, b), None, a.dtype, limits)

    def select(self, condition: Node, a: Node, b: Node) -> Node:
        """`a` if the condition holds, else `b`; both have one type."""
        return a if a is b else self.make(
            "arith.select", (condition, a, b), None, a.dtype, (min(a.low, b.low), max(a.high, b.high)))

    def result_type(self, *operands: Operand) -> str:
        """The promoted type of the operands."""
        dtypes = [x.dtype for x in operands if isinstance(x, Node)]
        dtype = dtypes[0] if dtypes else "bool"
        for other in dtypes[1:]:
            dtype = promote(dtype, other)
        for kind in [kind_of_number(x) for x in operands if not isinstance(x, Node)]:
            if kind > KIND[dtype]:
                dtype = self.precision if kind == FLOAT else "int64"
        return dtype

    def to(self, operand: Operand, dtype: str) -> Node:
        """The operand as a value of type `dtype`."""
        if isinstance(operand, Node):
            return self.convert(operand, dtype)
        return self.captured(operand, dtype) if isinstance(operand, Number) else self.number(operand, dtype)

    def promoted(self, *operands: Operand) -> tuple[Node, ...]:
        """The operands converted to their promoted type."""
        dtype = self.result_type(*operands)
        return tuple([self.to(operand, dtype) for operand in operands])

    def floating(self, *operands: Operand) -> tuple[Node, ...]:
        """The operands converted to their promoted type, or to the builder's precision if that is no float type."""
        dtype = self.result_type(*operands)
        dtype = dtype if KIND[dtype] == FLOAT else self.precision
        return tuple([self.to(operand, dtype) for operand in operands])

    # --- conversions ----------------------------------------------------------------------------------------------

    def convert(self, node: Node, dtype: str, rounds: bool = False) -> Node:
        """`node` as a value of type `dtype`; `rounds` rounds 16-bit floats to their precision."""
        if node.dtype == dtype:
            return node
        if node.op == "constant" and (KIND[dtype] != INTEGER or node.kind != FLOAT) and not rounds:
            return self.number(node.attribute, dtype)
        if dtype == "bool":
            op, predicate = ("arith.cmpf", "une") if node.kind == FLOAT else ("arith.cmpi", "ne")
            return self.make(op, (node, self.number(0, node.dtype)), predicate, "bool")
        if KIND[dtype] == FLOAT:
            return (self._float_to_float if node.kind == FLOAT else self._to_float)(node, dtype, rounds)
        if node.kind == FLOAT:
            return self._to_integer(node, dtype)
        return self._integer_to_integer(node, dtype)

    def _float_to_float(self, node: Node, dtype: str, rounds: bool) -> Node:
        source, target = COMPUTED[node.dtype], COMPUTED[dtype]
        if source != target:
            node = self.make("arith.extf" if target == "f64" else "arith.truncf", (node,), None,
                             "float64" if target == "f64" else "float32")
        if dtype == node.dtype:
            return node
        return self.make("round" if rounds and dtype in ("float16", "bfloat16") else "relabel", (node,), None, dtype)

    def _to_float(self, node: Node, dtype: str, rounds: bool) -> Node:
        computed = "float64" if dtype == "float64" else "float32"
        if node.dtype == "int64" and fits(node, "int32"):
            node = self.convert(node, "int32")
        if node.dtype == "int64":
            node = self.make("widen", (node,), None, computed)
        else:
            op = "arith.uitofp" if node.dtype in ("bool", "uint8") else "arith.sitofp"
            node = self.make(op, (node,), None, computed)
        return self.convert(node, dtype, rounds)

    def _to_integer(self, node: Node, dtype: str) -> Node:
        """Rounds towards zero. Values out of range saturate and NaN becomes the minimum: arith.fptosi is poison for
        them, which must not propagate through a `where` that drops the value."""
        source = "float64" if node.dtype == "float64" else "float32"
        node = self.convert(node, source)
        target = "int64" if dtype == "int64" else "int32"
        low, high = self.number(LIMITS[target][0], source), self.number(_LARGEST[source, target], source)
        node = self.select(self.make("arith.cmpf", (node, low), "ogt", "bool"), node, low)
        node = self.select(self.make("arith.cmpf", (node, high), "olt", "bool"), node, high)
        return self.convert(self.make("arith.fptosi", (node,), None, target), dtype)

    def _integer_to_integer(self, node: Node, dtype: str) -> Node:
        limits = (node.low, node.high)
        if node.dtype == "bool":
            return self.select(node, self.number(1, dtype), self.number(0, dtype))
        if COMPUTED[node.dtype] == COMPUTED[dtype]:
            return self.make("relabel", (node,), None, dtype, limits)
        # Fold a round trip without loss.
        if node.op in ("arith.index_cast", "arith.extsi"):
            source = node.operands[0]
            if source.dtype == dtype and fits(source, node.dtype):
                return source
        is_unsigned = node.dtype == "uint8"
        if node.dtype == "int64" and not fits(node, dtype):
            op = "narrow"
        elif "int64" in (node.dtype, dtype):
            op = "arith.index_castui" if is_unsigned else "arith.index_cast"
        elif BITS[dtype] < BITS[node.dtype]:
            op = "arith.trunci"
        else:
            op = "arith.extui" if is_unsigned else "arith.extsi"
        return self.make(op, (node,), None, dtype, limits)


def _wrap(number: int, dtype: str) -> int:
    low, high = LIMITS[dtype]
    return (number - low) % (high - low + 1) + low


def is_number(node: Node) -> bool:
    """Whether the node is a captured number."""
    return node.op == "number" or node.op in ("relabel", "arith.index_cast") and is_number(node.operands[0])


def fits(node: Node, dtype: str) -> bool:
    """Whether the range of the integer is within type `dtype`."""
    return LIMITS[dtype][0] <= node.low and node.high <= LIMITS[dtype][1]


def _interval(op: str, a: Node, b: Node) -> tuple[int, int] | None:
    """The range of an integer op's result, or None if it is not known."""
    if op == "arith.addi":
        return a.low + b.low, a.high + b.high
    if op == "arith.subi":
        return a.low - b.high, a.high - b.low
    if op == "arith.muli":
        corners = [x * y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    if op in ("arith.minsi", "arith.minui"):
        return min(a.low, b.low), min(a.high, b.high)
    if op in ("arith.maxsi", "arith.maxui"):
        return max(a.low, b.low), max(a.high, b.high)
    if op in ("arith.divui", "arith.floordivsi") and b.low > 0:
        corners = [x // y for x in (a.low, a.high) for y in (b.low, b.high)]
        return min(corners), max(corners)
    if op == "arith.remui" and a.low >= 0 and b.low > 0:
        return 0, min(a.high, b.high - 1)
    if op == "arith.andi" and min(a.low, b.low) >= 0:
        return 0, min(a.high, b.high)
    return None

