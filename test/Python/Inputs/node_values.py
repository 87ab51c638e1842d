"""Evaluates the nodes of a traced expression at one place, and checks the range that each integer claims."""

import math

import numpy as np

from saccade.regions.dtypes import BITS, COMPUTED, FLOAT, KIND, LIMITS
from saccade.regions.emit import live


class WrongRange(AssertionError):
    """A value outside of the range that its node claims."""


def wrap(number, dtype):
    if dtype == "bool":
        return bool(number & 1)
    low, high = LIMITS[dtype]
    return (number - low) % (high - low + 1) + low


def unsigned(number, dtype):
    return number & ((1 << BITS[dtype]) - 1)


def signed(number, dtype):
    """The bits of a value as a signed number; those of uint8 are a signed byte."""
    bits = BITS[dtype]
    number &= (1 << bits) - 1
    return number - (1 << bits) if number >> (bits - 1) else number


def truncated(a, b):
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


SIGNED = {
    "arith.floordivsi": lambda a, b: a // b, "arith.divsi": truncated,
    "arith.remsi": lambda a, b: a - b * truncated(a, b), "arith.minsi": min, "arith.maxsi": max,
    "arith.shrsi": lambda a, b: a >> b,
}  # fmt: skip
UNSIGNED = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.andi": lambda a, b: a & b, "arith.ori": lambda a, b: a | b, "arith.xori": lambda a, b: a ^ b,
    "arith.divui": lambda a, b: a // b, "arith.remui": lambda a, b: a % b, "arith.minui": min, "arith.maxui": max,
    "arith.shli": lambda a, b: a << b, "arith.shrui": lambda a, b: a >> b,
}  # fmt: skip
def rounded(number, dtype):
    """A float in the type that regions compute in."""
    return float(np.float32(number)) if COMPUTED[dtype] == "f32" else float(number)


def to_16_bits(number, dtype):
    import torch

    return torch.tensor(number, dtype=torch.float32).to(getattr(torch, dtype)).item()


def least(a, b):
    """As IEEE 754's minimum: NaN if one is NaN, and -0 is less than 0."""
    return math.nan if math.isnan(a + b) and not (math.isinf(a) and math.isinf(b)) else min(a, b, key=lambda x: (x, math.copysign(1, x)))


FLOATS = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide, "arith.remf": np.fmod,
    "arith.negf": np.negative, "arith.minimumf": least, "arith.maximumf": lambda a, b: -least(-a, -b), "math.powf": np.power,
    "math.atan2": np.arctan2, "math.absf": np.abs, "math.roundeven": np.rint, "math.erf": math.erf, "math.erfc": math.erfc,
    **{f"math.{name}": getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "floor",
        "ceil", "trunc", "copysign", "cbrt")},
    **{f"math.{name}": getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh")},
}  # fmt: skip
PREDICATES = {"eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b, "le": lambda a, b: a <= b}


def of_floats(op, predicate, given, dtype):
    """An op of floats; None for any other one."""
    if op == "arith.cmpf":
        if predicate == "uno" or any(map(math.isnan, given)):
            return predicate.startswith("u") and any(map(math.isnan, given))
        compare = {**PREDICATES, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b}[predicate[1:]]
        return compare(*given)
    if op in FLOATS:
        with np.errstate(all="ignore"):
            return rounded(FLOATS[op](*map(np.float64, given)), dtype)
    if op == "arith.fptosi":
        if not math.isfinite(given[0]) or wrap(int(given[0]), dtype) != int(given[0]):
            raise ArithmeticError(f"{given[0]} as {dtype}")
        return int(given[0])
    return None


def evaluate(root, place, captures):
    """The value of an expression at the place (s, b, h, i, j). `captures` are arrays by capture number, and captured numbers
    by the attribute of their nodes. Checks the range of every integer; raises WrongRange. An op without a defined result
    raises ArithmeticError."""
    values = {}
    for node in live(root):
        given = [values[id(operand)] for operand in node.operands]
        types = [operand.dtype for operand in node.operands]
        op, dtype = node.op, node.dtype
        if (value := of_floats(op, node.attribute, given, dtype)) is not None:
            pass
        elif KIND[dtype] == FLOAT and op in ("arith.extf", "arith.truncf", "widen", "relabel"):
            value = rounded(given[0], dtype)
        elif op in ("arith.sitofp", "arith.uitofp"):
            as_number = signed if op == "arith.sitofp" else unsigned
            value = rounded(as_number(int(given[0]), types[0]), dtype)
        elif op == "round":
            value = to_16_bits(given[0], dtype)
        elif op == "constant":
            value = rounded(node.attribute, dtype) if KIND[dtype] == FLOAT else node.attribute
        elif op == "number":
            value = rounded(captures[node.attribute], dtype) if KIND[dtype] == FLOAT else captures[node.attribute]
        elif op == "argument":
            value = place[node.attribute]
        elif op == "extent":
            value = captures[node.attribute[0]].shape[node.attribute[1]]
        elif op == "load":
            array = captures[node.attribute]
            if not all(0 <= index < extent for index, extent in zip(given, array.shape, strict=True)):
                raise ArithmeticError(f"reads {given} of {array.shape}")
            value = array[tuple(given)].item()
        elif op in ("relabel", "narrow", "arith.trunci"):
            value = wrap(given[0], dtype)
        elif op in ("arith.index_cast", "arith.extsi"):
            value = wrap(signed(given[0], types[0]) if types[0] != "bool" else -int(given[0]), dtype)
        elif op in ("arith.index_castui", "arith.extui"):
            value = wrap(unsigned(given[0], types[0]), dtype)
        elif op == "arith.select":
            value = given[1] if given[0] else given[2]
        elif op == "arith.cmpi":
            sign, predicate = ("", node.attribute) if node.attribute in PREDICATES else (node.attribute[0], node.attribute[1:])
            as_numbers = unsigned if sign == "u" else signed
            value = PREDICATES[predicate](*(as_numbers(int(x), type) for x, type in zip(given, types)))
        elif op in SIGNED or op in UNSIGNED:
            as_numbers = signed if op in SIGNED else unsigned
            a, b = (as_numbers(int(x), dtype) for x in given)
            is_undefined = b == 0 or op in SIGNED and b == -1 and a == -(1 << BITS[dtype] - 1)
            if ("div" in op or "rem" in op) and is_undefined:
                raise ArithmeticError(f"{op} of {a} and {b}")
            if op.startswith("arith.sh") and not 0 <= b < BITS[dtype]:
                raise ArithmeticError(f"{op} by {b}")
            value = wrap({**SIGNED, **UNSIGNED}[op](a, b), dtype)
        else:
            raise NotImplementedError(op)
        if KIND[dtype] != FLOAT and not node.low <= value <= node.high:
            raise WrongRange(f"{op} of {dtype} is {value}, claimed {node.low} to {node.high}")
        values[id(node)] = value
    return values[id(root)]
