"""The arrays of one call, and their order in a kernel."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax

Role = str
"""What an operand is in the call: the name of its field in Operands, "left" and "right" for the window."""


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Operands:
    """The arrays of one call; None for those that its form does not have."""

    q: Any  # [batch, queries, heads, head size]
    k: Any  # [batch, keys, KV heads, head size]
    v: Any
    bias: Any  # [batch, heads, queries, keys], each extent possibly 1
    mask: Any
    query_lengths: Any  # [batch]
    key_lengths: Any
    scale: Any  # without dimensions
    window: Any  # a pair of arrays without dimensions
    score_captures: tuple[Any, ...]
    mask_captures: tuple[Any, ...]
    normalizer_captures: tuple[Any, ...] = ()


def named_operands(x: Operands) -> list[tuple[Role, Any]]:
    """The roles and the operands of the kernel in the order of its arguments."""
    left, right = x.window or (None, None)
    found = [("q", x.q), ("k", x.k), ("v", x.v), *[("score_captures", each) for each in x.score_captures],
             ("bias", x.bias), *[("mask_captures", each) for each in x.mask_captures], ("mask", x.mask),
             *[("normalizer_captures", each) for each in x.normalizer_captures], ("scale", x.scale), ("left", left),
             ("right", right), ("key_lengths", x.key_lengths)]  # fmt: skip
    return [(role, array) for role, array in found if array is not None]


def roles_of(x: Operands) -> list[Role]:
    """The roles of the operands of the kernel in the order of its arguments."""
    return [role for role, _ in named_operands(x)]


def operands_of(x: Operands) -> list[Any]:
    """The operands of the kernel in the order of its arguments."""
    return [array for _, array in named_operands(x)]
