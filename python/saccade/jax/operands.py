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


def roles_of(x: Operands) -> list[Role]:
    """The roles of the operands of the kernel in the order of its arguments."""
    roles = ["q", "k", "v", *["score_captures"] * len(x.score_captures)]
    roles += ["bias"] * (x.bias is not None) + ["mask_captures"] * len(x.mask_captures)
    roles += ["mask"] * (x.mask is not None) + ["scale"] * (x.scale is not None)
    return roles + ["left", "right"] * (x.window is not None) + ["key_lengths"] * (x.key_lengths is not None)


def operands_of(x: Operands) -> list[Any]:
    """The operands of the kernel in the order of its arguments."""
    operands = [x.q, x.k, x.v, *x.score_captures]
    operands += [array for array in (x.bias, *x.mask_captures, x.mask, x.scale) if array is not None]
    return operands + [*(x.window or ())] + ([x.key_lengths] if x.key_lengths is not None else [])
