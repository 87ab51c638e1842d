"""The operations of torch and NumPy as expressions.

Every function takes a builder and operands (nodes or Python scalars) and returns a node; types promote as in torch.
composite.py has operations composed of these, names.py the tables of names.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from saccade.regions.divisions import divide, floor_divide, truncated_divide
from saccade.regions.dtypes import BOOL, FLOAT, INTEGER, LIMITS, kind_of_number
from saccade.regions.expression import Builder, Node, Operand, is_number
from saccade.regions.numbers import Number

# Constant exponents up to this are expanded to multiplications.
_LARGEST_EXPONENT = 64


# --- arithmetic -------------------------------------------------------------------------------------------------------


def _binary(b: Builder, x: Operand, y: Operand, booleans: str | None, integers: str, floats: str) -> Node:
    x, y = b.promoted(x, y)
    if x.kind == BOOL and booleans is None:
        raise b.error("subtracts booleans: write ^ or logical_not")
    if x.kind == INTEGER and x.dtype == "uint8":
        integers = integers.replace("minsi", "minui").replace("maxsi", "maxui")
    if x.kind == INTEGER and integers not in ("arith.addi", "arith.subi"):
        # Coefficients of positions, and bounds that keep an index within a table: analyses need their values.
        b.bake(*filter(is_number, (x, y)))
    return b.arithmetic({BOOL: booleans or "", INTEGER: integers, FLOAT: floats}[x.kind], x, y)


def add(b: Builder, x: Operand, y: Operand, alpha: Operand = 1) -> Node:
    return _binary(b, x, scaled(b, y, alpha), "arith.ori", "arith.addi", "arith.addf")


def sub(b: Builder, x: Operand, y: Operand, alpha: Operand = 1) -> Node:
    return _binary(b, x, scaled(b, y, alpha), None, "arith.subi", "arith.subf")


def rsub(b: Builder, x: Operand, y: Operand, alpha: Operand = 1) -> Node:
    return sub(b, y, x, alpha)


def mul(b: Builder, x: Operand, y: Operand) -> Node:
    return _binary(b, x, y, "arith.andi", "arith.muli", "arith.mulf")


def scaled(b: Builder, x: Operand, factor: Operand) -> Operand:
    return x if not isinstance(factor, (Node, Number)) and factor == 1 else mul(b, x, factor)


def minimum(b: Builder, x: Operand, y: Operand) -> Node:
    return _binary(b, x, y, "arith.andi", "arith.minsi", "arith.minimumf")


def maximum(b: Builder, x: Operand, y: Operand) -> Node:
    return _binary(b, x, y, "arith.ori", "arith.maxsi", "arith.maximumf")


def clamp(b: Builder, x: Operand, min: Operand | None = None, max: Operand | None = None) -> Node:
    dtype = b.result_type(*[value for value in (x, min, max) if value is not None])
    x = b.to(x, dtype)
    if min is not None:
        x = maximum(b, x, b.to(min, dtype))
    return x if max is None else minimum(b, x, b.to(max, dtype))


def div(b: Builder, x: Operand, y: Operand, rounding_mode: str | None = None) -> Node:
    return {None: divide, "floor": floor_divide, "trunc": truncated_divide}[rounding_mode](b, x, y)


def neg(b: Builder, x: Node) -> Node:
    if x.kind == BOOL:
        raise b.error("negates a boolean: write ~")
    return b.make("arith.negf", (x,), None, x.dtype) if x.kind == FLOAT else sub(b, 0, x)


def absolute(b: Builder, x: Node) -> Node:
    if x.kind == FLOAT:
        return b.make("math.absf", (x,), None, x.dtype)
    return x if x.low >= 0 else maximum(b, x, neg(b, x))


def sign(b: Builder, x: Node) -> Node:
    """torch.sign: 0 for NaN."""
    return _sign(b, x, b.number(0, x.dtype))


def numpy_sign(b: Builder, x: Node) -> Node:
    """np.sign: NaN for NaN."""
    return _sign(b, x, x if x.kind == FLOAT else b.number(0, x.dtype))


def _sign(b: Builder, x: Node, neither: Node) -> Node:
    if x.kind == BOOL:
        return x
    is_negative, is_positive = lt(b, x, 0), gt(b, x, 0)
    one, minus_one = b.number(1, x.dtype), b.number(-1, x.dtype)
    return b.select(is_positive, one, b.select(is_negative, minus_one, neither))


def power(b: Builder, x: Operand, y: Operand) -> Node:
    base = x if not isinstance(x, Node) else x.constant
    exponent = y if not isinstance(y, Node) else y.constant
    dtype = b.result_type(x, y)
    is_float = dtype not in LIMITS
    if exponent is not None and abs(exponent) <= _LARGEST_EXPONENT and exponent == int(exponent):
        if exponent < 0 and not is_float:
            raise b.error(f"raises an integer to the power {exponent}: write {float(exponent)}")
        product = _product(b, b.to(x, dtype), abs(int(exponent)))
        return product if exponent >= 0 else divide(b, 1.0, product)
    if not is_float:
        if base != 2:
            raise b.error("raises an integer to a power that is not constant: convert one of them to float")
        x, y = b.promoted(x, y)
        # A negative exponent has no integer result, and a shift by the width or more is undefined.
        bits = b.number(len(bin(LIMITS[dtype][1])) - 2, dtype)
        is_in = logical_and(b, ge(b, y, 0), lt(b, y, bits))
        shifted = b.make("arith.shli", (b.number(1, dtype), b.select(is_in, y, b.number(0, dtype))), None, dtype)
        return b.select(is_in, shifted, b.number(0, dtype))
    if exponent in (0.5, -0.5):
        root = math_function("math.sqrt", b, b.to(x, dtype))
        return root if exponent > 0 else divide(b, 1.0, root)
    if base == 2:
        return b.make("math.exp2", (b.to(y, dtype),), None, dtype)
    return b.make("math.powf", (b.to(x, dtype), b.to(y, dtype)), None, dtype)


def _product(b: Builder, x: Node, count: int) -> Node:
    """x^count by repeated squaring."""
    result = None
    while count:
        if count & 1:
            result = x if result is None else mul(b, result, x)
        count >>= 1
        x = mul(b, x, x) if count else x
    return b.number(1, x.dtype) if result is None else result


def square(b: Builder, x: Node) -> Node:
    return mul(b, x, x)


# --- functions of a float ---------------------------------------------------------------------------------------------


def math_function(op: str, b: Builder, x: Operand) -> Node:
    (x,) = b.floating(x)
    return b.make(op, (x,), None, x.dtype)


def rounding(op: str, b: Builder, x: Node) -> Node:
    return math_function(op, b, x) if x.kind == FLOAT else x


def math_function2(op: str, b: Builder, x: Operand, y: Operand) -> Node:
    x, y = b.floating(x, y)
    return b.make(op, (x, y), None, x.dtype)


def reciprocal(b: Builder, x: Operand) -> Node:
    return divide(b, 1.0, x)


def rsqrt(b: Builder, x: Operand) -> Node:
    return divide(b, 1.0, math_function("math.sqrt", b, x))


# --- comparisons and logic --------------------------------------------------------------------------------------------


def _compare(predicate: str, b: Builder, x: Operand, y: Operand) -> Node:
    x, y = b.promoted(x, y)
    if x.kind == FLOAT:
        return b.make("arith.cmpf", (x, y), ("u" if predicate == "ne" else "o") + predicate, "bool")
    if predicate in ("gt", "ge"):
        predicate, x, y = {"gt": "lt", "ge": "le"}[predicate], y, x
    # Rewrite |x| <= y to -y <= x <= y: the key range analysis supports conjunctions of affine bounds.
    if predicate in ("lt", "le") and x.dtype == "int64" and x.op == "arith.maxsi":
        inner, negated = x.operands
        if negated.op == "arith.subi" and negated.operands[0].constant == 0 and negated.operands[1] is inner:
            below, above = _compare(predicate, b, inner, y), _compare(predicate, b, neg(b, y), inner)
            return b.arithmetic("arith.andi", below, above)
    x, y = _narrow(b, x, y)
    if predicate in ("lt", "le"):
        predicate = ("u" if x.dtype in ("bool", "uint8") else "s") + predicate
    return b.make("arith.cmpi", (x, y), predicate, "bool")


def _narrow(b: Builder, x: Node, y: Node) -> tuple[Node, Node]:
    """Both operands as int32 if they were widened from it, so that no position is narrowed."""

    def is_int32(node: Node) -> bool:
        return node.op == "arith.index_cast" and node.operands[0].dtype == "int32"

    def fits(node: Node) -> bool:
        is_uniform = node.constant is not None or node.op == "number"
        return is_int32(node) or is_uniform and node.low >= -(1 << 31) and node.high < 1 << 31

    if x.dtype == "int64" and (is_int32(x) or is_int32(y)) and fits(x) and fits(y):
        return b.convert(x, "int32"), b.convert(y, "int32")
    return x, y


eq, ne, lt, le, gt, ge = [functools.partial(_compare, predicate) for predicate in ("eq", "ne", "lt", "le", "gt", "ge")]


def exact(compare: Callable[..., Node], b: Builder, x: Operand, y: Operand) -> Node:
    """A comparison as in NumPy: numbers that the type of the other operand does not have are not wrapped."""
    for node, number in ((x, y), (y, x)):
        if isinstance(node, Node) and node.kind == INTEGER and type(number) is Number and isinstance(number, int):
            low, high = LIMITS[node.dtype]
            if not (low <= number._range[0] and number._range[1] <= high):
                wide = b.convert(node, "int64")
                return compare(b, wide, number) if node is x else compare(b, number, wide)
        if isinstance(node, Node) and node.kind == INTEGER and type(number) is int:
            low, high = LIMITS[node.dtype]
            if not low <= number <= high:
                low, high = LIMITS["int64"]
                bounded = b.number(max(low, min(high, number)), "int64")
                wide = b.convert(node, "int64")
                return compare(b, wide, bounded) if node is x else compare(b, bounded, wide)
    return compare(b, x, y)


def bitwise(op: str, b: Builder, x: Operand, y: Operand) -> Node:
    x, y = b.promoted(x, y)
    if x.kind == FLOAT:
        raise b.error("combines floats bit by bit: & | ^ take booleans and integers; compare first")
    b.bake(*filter(is_number, (x, y)))
    return b.arithmetic(op, x, y)


def bitwise_not(b: Builder, x: Node) -> Node:
    if x.kind == FLOAT:
        raise b.error("inverts the bits of a float: ~ takes booleans and integers; compare first")
    return b.arithmetic("arith.xori", x, b.number(True if x.kind == BOOL else -1, x.dtype))


def shift(op: str, b: Builder, x: Operand, y: Operand) -> Node:
    x, y = b.promoted(x, y)
    if x.kind != INTEGER:
        raise b.error("shifts a value that is no integer")
    b.bake(*filter(is_number, (y,)))
    bits = 8 if x.dtype == "uint8" else len(bin(LIMITS[x.dtype][1])) - 1
    is_in = logical_and(b, ge(b, y, 0), lt(b, y, bits))
    keeps_sign = op == "arith.shrsi" and x.dtype != "uint8"
    amount = b.select(is_in, y, b.number(bits - 1 if keeps_sign else 0, x.dtype))
    shifted = b.make("arith.shrui" if x.dtype == "uint8" and op == "arith.shrsi" else op, (x, amount), None, x.dtype)
    return shifted if keeps_sign else b.select(is_in, shifted, b.number(0, x.dtype))


def truth(b: Builder, x: Operand) -> Node:
    """x != 0."""
    return b.to(x, "bool")


def logical(op: str, b: Builder, x: Operand, y: Operand) -> Node:
    return b.arithmetic(op, truth(b, x), truth(b, y))


def logical_not(b: Builder, x: Operand) -> Node:
    return bitwise_not(b, truth(b, x))


def logical_and(b: Builder, x: Operand, y: Operand) -> Node:
    return logical("arith.andi", b, x, y)


def logical_or(b: Builder, x: Operand, y: Operand) -> Node:
    return logical("arith.ori", b, x, y)


def where(b: Builder, condition: Operand, x: Operand, y: Operand) -> Node:
    if isinstance(x, Node) or isinstance(y, Node):
        x, y = b.promoted(x, y)
    else:
        x, y = _numbers(b, x, y)
    return b.select(truth(b, condition), x, y)


def _numbers(b: Builder, x: Number | bool | int | float, y: Number | bool | int | float) -> tuple[Node, Node]:
    dtype = ("bool", "int64", b.precision)[max(kind_of_number(x), kind_of_number(y))]
    return b.to(x, dtype), b.to(y, dtype)


def isnan(b: Builder, x: Node) -> Node:
    return b.make("arith.cmpf", (x, x), "uno", "bool") if x.kind == FLOAT else b.number(False, "bool")


def isinf(b: Builder, x: Node) -> Node:
    return eq(b, absolute(b, x), float("inf")) if x.kind == FLOAT else b.number(False, "bool")


def isfinite(b: Builder, x: Node) -> Node:
    return lt(b, absolute(b, x), float("inf")) if x.kind == FLOAT else b.number(True, "bool")
