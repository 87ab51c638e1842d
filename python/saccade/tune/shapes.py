"""Classes of attention, and programs and operands to measure them with.

A class is what the compiler chooses tile sizes by: the target, the element type and the head sizes. Lengths, batches,
heads and masks are not part of it, so a class is measured on several cases of them.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

ELEMENTS = ("f32", "f64", "f16", "bf16")


@dataclasses.dataclass(frozen=True)
class ShapeClass:
    """Attention with elements of one type and head sizes of keys and values."""

    element: str
    head_size: int
    value_head_size: int

    @classmethod
    def parse(cls, text: str) -> ShapeClass:
        """Parses "f32:64" or "f32:64:128".

        Raises:
            ValueError: the text is no class.
        """
        element, *sizes = text.split(":")
        if element not in ELEMENTS or not 1 <= len(sizes) <= 2 or not all(size.isdecimal() for size in sizes):
            raise ValueError(f"'{text}' is no class, expected ELEMENT:HEAD_SIZE or ELEMENT:HEAD_SIZE:VALUE_HEAD_SIZE, "
                             f"such as f32:64, with an element of {', '.join(ELEMENTS)}")  # fmt: skip
        numbers = [int(size) for size in sizes]
        if min(numbers) < 1:
            raise ValueError(f"'{text}' has a head size of 0, expected at least 1")
        return cls(element, numbers[0], numbers[-1])

    def __str__(self) -> str:
        return f"{self.element}:{self.head_size}:{self.value_head_size}"

    def program(self) -> str:
        """The functions `full` and `causal`."""
        sizes = [self.head_size, self.head_size, self.value_head_size]
        q, k, v = (f"tensor<?x?x?x{size}x{self.element}>" for size in sizes)
        return "\n".join(f"""func.func @{name}(%q: {q}, %k: {k}, %v: {v}) -> {v} {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d]{mask} : ({q}, {k}, {v}) -> {v}
  return %o : {v}
}}""" for name, mask in (("full", ""), ("causal", " mask causal<bottom_right>")))  # fmt: skip

    def operands(self, case: Case) -> list[Any]:
        """Random queries, keys and values; equal for equal cases."""
        generator = np.random.default_rng(7)
        rows = ((case.queries, self.head_size), (case.keys, self.head_size), (case.keys, self.value_head_size))
        arrays = (generator.standard_normal((case.batch, case.heads, *row), np.float32) for row in rows)
        return [array.astype(self.dtype()) for array in arrays]

    def dtype(self) -> Any:
        if self.element == "bf16":
            import ml_dtypes

            return ml_dtypes.bfloat16
        return {"f32": np.float32, "f64": np.float64, "f16": np.float16}[self.element]


@dataclasses.dataclass(frozen=True)
class Case:
    """Sizes and a mask on which a class is measured. `mask` is "full" or "causal"."""

    mask: str
    batch: int
    heads: int
    queries: int
    keys: int

    @classmethod
    def parse(cls, text: str) -> Case:
        """Parses "causal:1x8x512x512".

        Raises:
            ValueError: the text is no case.
        """
        mask, _, rest = text.partition(":")
        sizes = rest.split("x")
        if mask not in ("full", "causal") or len(sizes) != 4 or not all(size.isdecimal() for size in sizes):
            raise ValueError(f"'{text}' is no case, expected MASK:BATCHxHEADSxQUERIESxKEYS with MASK full or causal: "
                             "causal:1x8x512x512")  # fmt: skip
        return cls(mask, *map(int, sizes))

    def __str__(self) -> str:
        return f"{self.mask}:{self.batch}x{self.heads}x{self.queries}x{self.keys}"


# Short and long sequences, few and many tasks, tiles that a mask leaves out.
CASES = (Case("full", 1, 8, 384, 384), Case("full", 4, 8, 256, 256), Case("full", 1, 4, 1536, 1536),
         Case("causal", 1, 8, 1024, 1024))  # fmt: skip
