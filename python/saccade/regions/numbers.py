"""Python numbers that a function captures, as operands of its region.

A function is traced with a Number in the place of each int and float that it captures. Sums, differences, products and
quotients of Numbers are computed in Python at every call, so kernels only read their results. Any other use of the
value, such as `if`, `range` or the index of a list, returns it and notes that the number is baked: the function is then
traced again with the value, which becomes part of the key of its kernel.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

Expression: TypeAlias = tuple[Any, ...]
"""("slot", number of a captured number), ("constant", type, text), or (operator, expression, expression)."""

INTEGER_LIMIT = 1 << 29
"""Captured integers of this magnitude or more are constants. Sums with positions, which are below 2^30, fit 32 bits."""
FLOAT_LIMIT = 2.0**40
"""Captured floats above this magnitude, infinities and NaN are constants: they have a meaning beyond their value, and
the proof that scores are finite needs a bound of all others."""

_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}  # fmt: skip
_INT64 = -(1 << 63), (1 << 63) - 1


class Number:
    """A captured number, or one computed from captured numbers. It converts and compares as its value does."""

    __slots__ = ("_value", "_range", "_expression", "_slots", "_baked")

    def __init__(self, value: int | float, limits: tuple[int, int], expression: Expression, slots: frozenset[int],
                 baked: set[int]):
        self._value, self._range, self._expression, self._slots, self._baked = value, limits, expression, slots, baked

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._value)

    def _bake(self) -> Any:
        """The value, which becomes a constant of the region."""
        self._baked.update(self._slots)
        return self._value

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented  # torch passes Numbers to the mode of the tracer

    def __getattr__(self, name: str) -> Any:
        if not hasattr(self._value, name):
            raise AttributeError(f"'{type(self._value).__name__}' object has no attribute '{name}'")
        return getattr(self._bake(), name)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        import numpy

        return numpy.asarray(self._bake(), dtype)

    def __neg__(self) -> Any:
        return _combine("-", 0, self) if type(self._value) is int else _combine("*", -1.0, self)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        low, high = self._range
        is_known = type(self._value) is int and (low >= 0 or high <= 0)
        return (self if low >= 0 else -self) if is_known else abs(self._bake())


def slot(number: int, value: int | float, baked: set[int]) -> Number:
    """Captured number `number` of a function; `baked` collects the numbers whose values are used."""
    limits = (0, 0)
    if type(value) is int:
        limits = (0, INTEGER_LIMIT - 1) if value >= 0 else (1 - INTEGER_LIMIT, -1)
    return Number(value, limits, ("slot", number), frozenset([number]), baked)


def is_variable(value: int | float) -> bool:
    """Whether a captured number may become an operand."""
    if type(value) is int:
        return -INTEGER_LIMIT < value < INTEGER_LIMIT
    return -FLOAT_LIMIT <= value <= FLOAT_LIMIT


def evaluator(expression: Expression, is_float: bool = False) -> Callable[[Sequence[int | float]], Any]:
    """The function of all captured numbers that computes an expression, with `is_float` as a float."""
    if is_float:
        exact = evaluator(expression)
        return lambda numbers: float(exact(numbers))
    if expression[0] == "slot":
        return operator.itemgetter(expression[1])
    if expression[0] == "constant":
        constant = int(expression[2]) if expression[1] is int else float(expression[2])
        return lambda numbers: constant
    compute, x, y = _OPERATORS[expression[0]], evaluator(expression[1]), evaluator(expression[2])
    if expression[1][0] == "slot" and expression[2][0] == "constant":  # for speed
        number, constant = expression[1][1], y(())
        return lambda numbers: compute(numbers[number], constant)
    return lambda numbers: compute(x(numbers), y(numbers))


def plain(x: Any) -> Any:
    """`x` with the values of Numbers in nested tuples, lists, dicts and slices, which become constants."""
    if type(x) is Number:
        return x._bake()
    if isinstance(x, list):
        return [plain(item) for item in x]
    if type(x) is tuple:
        return tuple([plain(item) for item in x])
    if type(x) is dict:
        return {key: plain(value) for key, value in x.items()}
    if type(x) is slice:
        return slice(plain(x.start), plain(x.stop), plain(x.step))
    return x


def _combine(name: str, x: Any, y: Any) -> Any:
    """The result of an operator for Numbers and Python numbers, at least one of which is a Number."""
    operands = [x if type(x) is Number else None, y if type(y) is Number else None]
    values = [operand._value if operand is not None else given for operand, given in zip(operands, (x, y))]
    value = _OPERATORS[name](*values)
    ranges = [operand._range if operand is not None else (given, given) for operand, given in zip(operands, (x, y))]
    limits = (0, 0)
    if type(value) is int:
        corners = [_OPERATORS[name](first, second) for first in ranges[0] for second in ranges[1]]
        limits = min(corners), max(corners)
        if limits[0] < _INT64[0] or limits[1] > _INT64[1]:
            return _OPERATORS[name](plain(x), plain(y))
    parts = [operand._expression if operand is not None else ("constant", type(given), repr(given))
             for operand, given in zip(operands, values)]
    slots = frozenset().union(*[operand._slots for operand in operands if operand is not None])
    baked = next(operand._baked for operand in operands if operand is not None)
    return Number(value, limits, (name, *parts), slots, baked)


def _define(name: str, compute: Callable[..., Any], symbol: str | None) -> None:
    """Defines an operator and its reflection. Operators with a symbol keep numbers variable."""

    def apply(self: Number, other: Any, is_reflected: bool) -> Any:
        if type(other) is bool:
            other = int(other)
        if symbol and type(other) in (int, float, Number):
            return _combine(symbol, other, self) if is_reflected else _combine(symbol, self, other)
        # Tensors, arrays and their proxies have the operators themselves.
        if type(other) is not Number and any(hasattr(type(other), protocol) for protocol in _PROTOCOLS):
            return NotImplemented
        first, second = plain(self), plain(other)
        return compute(second, first) if is_reflected else compute(first, second)

    setattr(Number, f"__{name}__", lambda self, other: apply(self, other, False))
    if name not in _COMPARISONS:
        setattr(Number, f"__r{name}__", lambda self, other: apply(self, other, True))


_PROTOCOLS = "__torch_function__", "__array_ufunc__"
_COMPARISONS = "eq", "ne", "lt", "le", "gt", "ge"
for _name, _symbol in (("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"), ("floordiv", None), ("mod", None),
                       ("pow", None), ("lshift", None), ("rshift", None), ("and", None), ("or", None), ("xor", None),
                       *((_name, None) for _name in _COMPARISONS)):
    _define(_name, getattr(operator, _name, None) or getattr(operator, f"{_name}_"), _symbol)
_define("divmod", divmod, None)


def _convert(name: str, compute: Callable[..., Any]) -> None:
    setattr(Number, name, lambda self, *given: compute(self._bake(), *map(plain, given)))


for _name, _compute in (("__bool__", bool), ("__int__", int), ("__float__", float), ("__complex__", complex),
                        ("__index__", operator.index), ("__hash__", hash), ("__str__", str), ("__repr__", repr),
                        ("__format__", format), ("__round__", round), ("__invert__", operator.invert),
                        ("__trunc__", int)):
    _convert(_name, _compute)
