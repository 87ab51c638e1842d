"""Quotients and remainders with Python's signs.

Integer divisors are never zero: a lane whose result is dropped by `where` must not trap. torch would raise an error.
"""

from __future__ import annotations

from saccade.regions.dtypes import BOOL, FLOAT, LIMITS
from saccade.regions.expression import Builder, Node, Operand, fits, is_number


def divide(b: Builder, x: Operand, y: Operand) -> Node:
    """x / y as a float."""
    x, y = b.floating(x, y)
    return b.make("arith.divf", (x, y), None, x.dtype)


def floor_divide(b: Builder, x: Operand, y: Operand) -> Node:
    """x // y, rounded down."""
    x, y = _numbers(b, x, y)
    if x.kind == FLOAT:
        return _float_floor_divide(b, x, y)
    dtype = x.dtype
    x, y = _safe(b, *_narrow(b, x, y))
    return b.convert(b.arithmetic("arith.divui" if _is_unsigned(x, y) else "arith.floordivsi", x, y), dtype)


def remainder(b: Builder, x: Operand, y: Operand) -> Node:
    """x % y, with the sign of y."""
    x, y = _numbers(b, x, y)
    if x.kind == FLOAT:
        rest = b.make("arith.remf", (x, y), None, x.dtype)
        return b.select(_has_other_sign(b, rest, y), b.make("arith.addf", (rest, y), None, x.dtype), rest)
    dtype = x.dtype
    x, y = _safe(b, *_narrow(b, x, y))
    if _is_unsigned(x, y):
        return b.convert(b.arithmetic("arith.remui", x, y), dtype)
    whole = b.arithmetic("arith.muli", b.arithmetic("arith.floordivsi", x, y), y)
    limits = (0, y.high - 1) if y.low > 0 else None
    return b.convert(b.make("arith.subi", (x, whole), None, x.dtype, limits), dtype)


def truncated_divide(b: Builder, x: Operand, y: Operand) -> Node:
    """x / y, rounded towards zero."""
    x, y = _numbers(b, x, y)
    if x.kind == FLOAT:
        return b.make("math.trunc", (divide(b, x, y),), None, x.dtype)
    dtype = x.dtype
    x, y = _safe(b, *_narrow(b, x, y))
    return b.convert(b.arithmetic("arith.divui" if _is_unsigned(x, y) else "arith.divsi", x, y), dtype)


def truncated_remainder(b: Builder, x: Operand, y: Operand) -> Node:
    """The remainder with the sign of x, as C's fmod and %."""
    x, y = _numbers(b, x, y)
    if x.kind == FLOAT:
        return b.make("arith.remf", (x, y), None, x.dtype)
    dtype = x.dtype
    x, y = _safe(b, *_narrow(b, x, y))
    return b.convert(b.arithmetic("arith.remui" if _is_unsigned(x, y) else "arith.remsi", x, y), dtype)


def _numbers(b: Builder, x: Operand, y: Operand) -> tuple[Node, Node]:
    x, y = b.promoted(x, y)
    if x.kind == BOOL:
        raise b.error("divides booleans: convert them to integers first")
    if x.kind != FLOAT:
        b.bake(*filter(is_number, (y,)))  # divisions by constants are fast
        if not (x.low >= 0 and fits(x, "int32")):
            b.bake(x)  # the value may prove that a fast division is correct
    return x, y


def _narrow(b: Builder, x: Node, y: Node) -> tuple[Node, Node]:
    """Both as int32 if their ranges fit: a vector of 64-bit integers is divided one element at a time."""
    if x.dtype == "int64" and fits(x, "int32") and fits(y, "int32"):
        return b.convert(x, "int32"), b.convert(y, "int32")
    return x, y


def _is_unsigned(x: Node, y: Node) -> bool:
    return x.low >= 0 and y.low >= 0


def _safe(b: Builder, x: Node, y: Node) -> tuple[Node, Node]:
    """Operands with the same quotient and remainder that is defined: a divisor other than zero, and no minimum integer
    divided by -1."""
    smallest = LIMITS[x.dtype][0]
    if y.low <= -1 <= y.high and x.low == smallest:
        # x / -1 is -x / 1, where the minimum wraps.
        is_negation = b.make("arith.cmpi", (y, b.number(-1, y.dtype)), "eq", "bool")
        x = b.select(is_negation, b.arithmetic("arith.subi", b.number(0, x.dtype), x), x)
        y = b.make("arith.select", (is_negation, b.number(1, y.dtype), y), None, y.dtype, (y.low, max(1, y.high)))
    if y.low <= 0 <= y.high:
        is_zero = b.make("arith.cmpi", (y, b.number(0, y.dtype)), "eq", "bool")
        # A non-negative divisor is at least 1 now.
        limits = (1, max(1, y.high)) if y.low == 0 else (y.low, max(1, y.high))
        y = b.make("arith.select", (is_zero, b.number(1, y.dtype), y), None, y.dtype, limits)
    return x, y


def _has_other_sign(b: Builder, rest: Node, y: Node) -> Node:
    """Whether a nonzero remainder has another sign than the divisor."""
    zero = b.number(0, y.dtype)
    is_rest = b.make("arith.cmpf", (rest, zero), "une", "bool")
    signs = [b.make("arith.cmpf", (value, zero), "olt", "bool") for value in (rest, y)]
    return b.arithmetic("arith.andi", is_rest, b.arithmetic("arith.xori", *signs))


def _float_floor_divide(b: Builder, x: Node, y: Node) -> Node:
    """Python's algorithm: (x - remainder) / y is integral up to rounding error, so it is rounded to the nearest
    integer. For y = 0 the result is x / y."""
    rest = b.make("arith.remf", (x, y), None, x.dtype)
    whole = divide(b, b.make("arith.subf", (x, rest), None, x.dtype), y)
    one_less = b.make("arith.subf", (whole, b.number(1, x.dtype)), None, x.dtype)
    whole = b.select(_has_other_sign(b, rest, y), one_less, whole)
    is_zero = b.make("arith.cmpf", (y, b.number(0, y.dtype)), "oeq", "bool")
    return b.select(is_zero, divide(b, x, y), b.make("math.roundeven", (whole,), None, x.dtype))
