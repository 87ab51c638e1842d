"""Operations of torch and NumPy that are composed of several expression ops."""

from __future__ import annotations

import math
import sys

from saccade.regions.divisions import divide
from saccade.regions.dtypes import FLOAT
from saccade.regions.expression import Builder, Node, Operand
from saccade.regions.operations import (
    absolute,
    add,
    eq,
    gt,
    isinf,
    isnan,
    logical_or,
    math_function,
    maximum,
    minimum,
    mul,
    neg,
    power,
    rounding,
    scaled,
    square,
    sub,
    truth,
    where,
)

# --- activation functions ---------------------------------------------------------------------------------------------


def sigmoid(b: Builder, x: Operand) -> Node:
    (x,) = b.floating(x)
    return divide(b, 1.0, add(b, math_function("math.exp", b, neg(b, x)), 1.0))


def silu(b: Builder, x: Operand) -> Node:
    return mul(b, x, sigmoid(b, x))


def relu(b: Builder, x: Node) -> Node:
    return maximum(b, x, 0)


def leaky_relu(b: Builder, x: Node, negative_slope: Operand = 0.01) -> Node:
    return where(b, gt(b, x, 0), x, mul(b, x, negative_slope))


def elu(b: Builder, x: Node, alpha: Operand = 1, scale: Operand = 1, input_scale: Operand = 1) -> Node:
    below = mul(b, math_function("math.expm1", b, mul(b, x, input_scale)), mul(b, b.to(alpha, x.dtype), scale))
    return where(b, gt(b, x, 0), scaled(b, x, scale), below)


def gelu(b: Builder, x: Node, approximate: str = "none") -> Node:
    if approximate == "tanh":
        inner = mul(b, add(b, x, mul(b, power(b, x, 3), 0.044715)), math.sqrt(2 / math.pi))
        share = math_function("math.tanh", b, inner)
    else:
        share = math_function("math.erf", b, mul(b, x, math.sqrt(0.5)))
    return mul(b, mul(b, x, 0.5), add(b, share, 1.0))


def softplus(b: Builder, x: Node, beta: Operand = 1, threshold: Operand = 20) -> Node:
    steep = mul(b, x, beta)
    # The clamp avoids overflow; the linear branch is selected above the threshold.
    exponential = math_function("math.exp", b, minimum(b, steep, threshold))
    return where(b, gt(b, steep, threshold), x, divide(b, math_function("math.log1p", b, exponential), beta))


# --- binary and ternary operations ------------------------------------------------------------------------------------


def masked_fill(b: Builder, x: Node, mask: Operand, value: Operand) -> Node:
    return b.select(truth(b, mask), b.to(value, x.dtype), x)


def nan_to_num(b: Builder, x: Node, nan: Operand | None = None, posinf: Operand | None = None,
               neginf: Operand | None = None) -> Node:
    if x.kind != FLOAT:
        return x
    largest = {"float16": 65504.0, "bfloat16": 2.0**127 * (2 - 2.0**-7), "float32": 2.0**127 * (2 - 2.0**-23),
               "float64": sys.float_info.max}[x.dtype]  # fmt: skip
    high, low = largest if posinf is None else posinf, -largest if neginf is None else neginf
    infinite = b.select(gt(b, x, 0), b.to(high, x.dtype), b.to(low, x.dtype))
    return b.select(isnan(b, x), b.to(0.0 if nan is None else nan, x.dtype), b.select(isinf(b, x), infinite, x))


def without_nan(op: str, b: Builder, x: Operand, y: Operand) -> Node:
    """minimum or maximum that ignores a NaN operand."""
    x, y = b.promoted(x, y)
    choose = {"min": minimum, "max": maximum}[op]
    return b.select(isnan(b, x), y, b.select(isnan(b, y), x, choose(b, x, y)))


def lerp(b: Builder, start: Operand, end: Operand, weight: Operand) -> Node:
    return add(b, start, mul(b, weight, sub(b, end, start)))


def addcmul(b: Builder, x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Node:
    return add(b, x, mul(b, y, z), value)


def addcdiv(b: Builder, x: Operand, y: Operand, z: Operand, value: Operand = 1) -> Node:
    return add(b, x, divide(b, y, z), value)


def frac(b: Builder, x: Node) -> Node:
    return sub(b, x, rounding("math.trunc", b, x))


def hypot(b: Builder, x: Operand, y: Operand) -> Node:
    """√(x² + y²) without overflow of the squares."""
    x, y = b.floating(x, y)
    x, y = absolute(b, x), absolute(b, y)
    large, small = maximum(b, x, y), minimum(b, x, y)
    length = mul(b, large, math_function("math.sqrt", b, add(b, square(b, divide(b, small, large)), 1.0)))
    return b.select(logical_or(b, eq(b, large, 0), isinf(b, large)), large, length)


def logaddexp(b: Builder, x: Operand, y: Operand) -> Node:
    """log(exp(x) + exp(y)), also for equal infinities."""
    x, y = b.floating(x, y)
    difference = b.select(eq(b, x, y), b.number(0, x.dtype), absolute(b, sub(b, x, y)))
    return add(b, maximum(b, x, y), math_function("math.log1p", b, math_function("math.exp", b, neg(b, difference))))
