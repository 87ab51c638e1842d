"""Tables of the supported operations by their names in aten and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from saccade.regions import composite
from saccade.regions import operations as op
from saccade.regions.divisions import divide, floor_divide, remainder, truncated_remainder
from saccade.regions.expression import Node

Operation = Callable[..., Node]

_MATH = {name: partial(op.math_function, f"math.{name}") for name in (
    "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh",
    "asin", "acos", "atan", "asinh", "acosh", "atanh", "erf", "erfc")}  # fmt: skip

_SHARED: dict[str, Operation] = {
    **_MATH,
    "floor": partial(op.rounding, "math.floor"),
    "ceil": partial(op.rounding, "math.ceil"),
    "trunc": partial(op.rounding, "math.trunc"),
    "minimum": op.minimum, "maximum": op.maximum, "fmod": truncated_remainder, "remainder": remainder,
    "floor_divide": floor_divide, "reciprocal": op.reciprocal, "square": op.square,
    "bitwise_and": partial(op.bitwise, "arith.andi"),
    "bitwise_or": partial(op.bitwise, "arith.ori"),
    "bitwise_xor": partial(op.bitwise, "arith.xori"),
    "logical_and": op.logical_and, "logical_not": op.logical_not,
    "logical_or": op.logical_or,
    "logical_xor": partial(op.logical, "arith.xori"),
    "fmin": partial(composite.without_nan, "min"), "fmax": partial(composite.without_nan, "max"),
    "hypot": composite.hypot, "logaddexp": composite.logaddexp, "copysign": partial(op.math_function2, "math.copysign"),
    "isnan": op.isnan, "isinf": op.isinf, "isfinite": op.isfinite,
}  # fmt: skip

_COMPOSED = {function.__name__: function for function in (
    composite.addcdiv, composite.addcmul, composite.elu, composite.frac, composite.gelu, composite.leaky_relu,
    composite.lerp, composite.masked_fill, composite.nan_to_num, composite.relu, composite.sigmoid, composite.silu,
    composite.softplus)
}  # fmt: skip

ATEN: dict[str, Operation] = {
    **_SHARED,
    **_COMPOSED,
    "add": op.add, "sub": op.sub, "rsub": op.rsub, "mul": op.mul, "div": op.div, "neg": op.neg, "abs": op.absolute,
    "clamp": op.clamp, "clamp_min": lambda b, x, min: op.clamp(b, x, min),
    "clamp_max": lambda b, x, max: op.clamp(b, x, None, max),
    "hardtanh": lambda b, x, min=-1, max=1: op.clamp(b, x, min, max),
    "celu": lambda b, x, alpha=1: composite.elu(b, x, alpha, 1, divide(b, 1.0, alpha)),
    "pow": op.power, "sign": op.sign, "sgn": op.sign, "round": partial(op.rounding, "math.roundeven"),
    "atan2": partial(op.math_function2, "math.atan2"), "rsqrt": op.rsqrt, "where": op.where,
    "bitwise_not": op.bitwise_not,
    "eq": op.eq, "ne": op.ne, "lt": op.lt, "le": op.le, "gt": op.gt, "ge": op.ge,
    "__lshift__": partial(op.shift, "arith.shli"), "__rshift__": partial(op.shift, "arith.shrsi"),
    "bitwise_left_shift": partial(op.shift, "arith.shli"), "bitwise_right_shift": partial(op.shift, "arith.shrsi"),
}  # fmt: skip
"""By names in aten, without overloads."""

NUMPY: dict[str, Operation] = {
    **_SHARED,
    "add": op.add, "subtract": op.sub, "multiply": op.mul, "divide": divide, "true_divide": divide, "mod": remainder,
    "negative": op.neg, "sign": op.numpy_sign, "positive": lambda b, x: x, "absolute": op.absolute, "fabs": op.absolute,
    "power": op.power, "float_power": lambda b, x, y: op.power(b, *b.floating(x, y)),
    "cbrt": partial(op.math_function, "math.cbrt"),
    "rint": partial(op.rounding, "math.roundeven"), "arctan2": partial(op.math_function2, "math.atan2"),
    "arcsin": _MATH["asin"], "arccos": _MATH["acos"], "arctan": _MATH["atan"], "arcsinh": _MATH["asinh"],
    "arccosh": _MATH["acosh"], "arctanh": _MATH["atanh"], "invert": op.bitwise_not,
    "equal": partial(op.exact, op.eq), "not_equal": partial(op.exact, op.ne), "less": partial(op.exact, op.lt),
    "less_equal": partial(op.exact, op.le), "greater": partial(op.exact, op.gt),
    "greater_equal": partial(op.exact, op.ge), "left_shift": partial(op.shift, "arith.shli"),
    "right_shift": partial(op.shift, "arith.shrsi"),
}  # fmt: skip
"""By names of NumPy's ufuncs."""
