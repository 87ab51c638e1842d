"""Rotary positions (Su et al. 2021), with the scaling of their angles that files ask for."""

from __future__ import annotations

import math

from saccade.gguf.body import Body, Extent, Region, Value
from saccade.gguf.settings import Rotary, Yarn


def tables(body: Body, rotary: Rotary, lengths: Value, new: str, rows: str,
           factors: Value | None) -> tuple[Value, Value]:
    """The cosines and sines [rows, size / 2] of the new tokens [batch, new], which follow `lengths` tokens [batch] and
    are all `rows`. `factors` [size / 2] divide the angles."""
    rates = _rates(body, rotary, factors)
    shape: tuple[Extent, ...] = (lengths.shape[0], new, rotary.size // 2)

    def function(name: str) -> Value:
        def compute(at: Region, length: str, rate: str) -> str:
            place = at.cast("arith.index_cast", at.index("n"), "index", "i32")
            position = at.cast("arith.sitofp", at.op("arith.addi", length, place, type="i32"), "i32", "f32")
            result = at.op(name, at.op("arith.mulf", position, rate))
            magnitude = rotary.magnitude * (_magnitude(rotary.factor) if rotary.yarn else 1.0)
            return result if magnitude == 1.0 else at.op("arith.mulf", result, at.constant(magnitude))
        return body.join(body.generic("b,i->bni", [lengths, rates], shape, compute), 0, 2, rows)

    return function("math.cos"), function("math.sin")


def rotate(body: Body, x: Value, angles: tuple[Value, Value], is_interleaved: bool) -> Value:
    """Rotates the heads x [rows, heads, head size]. Pairs that are neighbours in x are n and n + half in the result,
    which is the same order for queries and keys: their products do not depend on it."""
    rows, heads, depth = x.shape
    half = angles[0].shape[1]
    assert isinstance(half, int) and isinstance(depth, int)
    shape = (rows, heads, half)
    if is_interleaved:
        pairs = body.split(x if depth == 2 * half else body.slice(x, (0, 0, 0), (rows, heads, 2 * half)), 2, (half, 2))
        first, second = (body.slice(pairs, (0, 0, 0, i), shape, (*shape, 1)) for i in range(2))
    else:
        first, second = (body.slice(x, (0, 0, i * half), shape) for i in range(2))

    def turned(x: Value, y: Value, op: str) -> Value:
        def compute(at: Region, x: str, cos: str, y: str, sin: str) -> str:
            return at.op(op, at.op("arith.mulf", x, cos), at.op("arith.mulf", y, sin))
        return body.generic("rhi,ri,rhi,ri->rhi", [x, angles[0], y, angles[1]], shape, compute)

    parts = [turned(first, second, "arith.subf"), turned(second, first, "arith.addf")]
    if depth > 2 * half:
        parts.append(body.slice(x, (0, 0, 2 * half), (rows, heads, depth - 2 * half)))
    return body.concatenate(parts, 2)


def _rates(body: Body, rotary: Rotary, factors: Value | None) -> Value:
    """The angle of each pair at position 1, which is computed in f64."""
    def compute(at: Region, *given: str) -> str:
        def op(name: str, *operands: str) -> str:
            return at.op(name, *operands, type="f64")

        def constant(value: float) -> str:
            return at.constant(value, "f64")

        place = at.cast("arith.sitofp", at.cast("arith.index_cast", at.index("i"), "index", "i64"), "i64", "f64")
        exponent = op("arith.divf", op("arith.mulf", place, constant(-2.0)), constant(rotary.size))
        rate = op("math.powf", constant(rotary.base), exponent)
        if given:
            rate = op("arith.divf", rate, at.cast("arith.extf", given[0], "f32", "f64"))
        if rotary.factor != 1.0:
            scaled = op("arith.divf", rate, constant(rotary.factor))
            if rotary.yarn:
                first, last = _correction(rotary, rotary.yarn)
                width = max(last - first, 0.001)
                ramp = op("arith.divf", op("arith.subf", place, constant(first)), constant(width))
                ramp = op("arith.maximumf", op("arith.minimumf", ramp, constant(1.0)), constant(0.0))
                change = op("arith.mulf", op("arith.subf", scaled, rate), ramp)
                rate = op("arith.addf", rate, change)
            else:
                rate = scaled
        return at.cast("arith.truncf", rate, "f64", "f32")

    return body.generic("i->i" if factors else "->i", [factors] if factors else [], (rotary.size // 2,), compute)


def _correction(rotary: Rotary, yarn: Yarn) -> tuple[int, int]:
    """The pairs between which YaRN goes from the angles as they are to those divided by the factor: that with `fast`
    rotations in the original context, and that with `slow` ones (Peng et al. 2023, section 3.2)."""
    def pair(rotations: float) -> float:
        return rotary.size * math.log(yarn.original / (rotations * 2 * math.pi)) / (2 * math.log(rotary.base))

    return max(math.floor(pair(yarn.fast)), 0), min(math.ceil(pair(yarn.slow)), rotary.size - 1)


def _magnitude(factor: float) -> float:
    """YaRN's factor of cosines and sines."""
    return 0.1 * math.log(factor) + 1.0 if factor > 1.0 else 1.0
