"""Element types by torch's names, their MLIR types in regions, and their promotion.

Integers are exact: int64 maps to MLIR's `index`, the type of positions, so masks stay comparisons of positions. 16-bit
float types are computed in f32 and rounded only at explicit conversions.
"""

from __future__ import annotations

from typing import Any

BOOL, INTEGER, FLOAT = range(3)
"""The kinds of types, in order of promotion."""

KIND = {
    "bool": BOOL, "uint8": INTEGER, "int8": INTEGER, "int16": INTEGER, "int32": INTEGER, "int64": INTEGER,
    "float16": FLOAT, "bfloat16": FLOAT, "float32": FLOAT, "float64": FLOAT,
}  # fmt: skip

COMPUTED = {
    "bool": "i1", "uint8": "i8", "int8": "i8", "int16": "i16", "int32": "i32", "int64": "index",
    "float16": "f32", "bfloat16": "f32", "float32": "f32", "float64": "f64",
}  # fmt: skip
"""The MLIR type of a value inside a region."""

STORED = {**COMPUTED, "int64": "i64", "float16": "f16", "bfloat16": "bf16"}
"""The MLIR type of an element of a captured tensor."""

BITS = {"bool": 1, "uint8": 8, "int8": 8, "int16": 16, "int32": 32, "int64": 64}

LIMITS = {
    name: (0, 1) if name == "bool" else (0, 255) if name == "uint8" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    for name, bits in BITS.items()
}
"""The minimum and maximum of every integer type."""

POSITION = (0, 1 << 30)
"""The range of a position; the compiler assumes the same when it computes positions in 32 bits."""


def promote(a: str, b: str) -> str:
    """The promoted type of `a` and `b`, as torch.promote_types."""
    if a == b:
        return a
    if KIND[a] != KIND[b]:
        return a if KIND[a] > KIND[b] else b
    if KIND[a] == FLOAT:
        # Neither 16-bit type contains the other.
        return "float32" if {a, b} == {"float16", "bfloat16"} else max(a, b, key=list(KIND).index)
    if "uint8" in (a, b):
        other = b if a == "uint8" else a
        return "int16" if other == "int8" else other
    return a if BITS[a] > BITS[b] else b


def kind_of_number(number: Any) -> int:
    """The kind of a Python scalar or a captured number."""
    return BOOL if isinstance(number, bool) else INTEGER if isinstance(number, int) else FLOAT


def dtype_name(array: Any) -> str:
    """The name of an array's element type."""
    return str(array.dtype).removeprefix("torch.")
