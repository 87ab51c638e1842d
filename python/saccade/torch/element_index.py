"""Which element of a tensor an element of attention weights is computed from, through views.

A dimension's index is a sequence of pieces in mixed radix, the outermost first. A piece is digit `(x // stride) %
extent` of the position x along a dimension of the weights. No piece is index 0: a dimension of extent 1, or one that is
broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch.fx.experimental.symbolic_shapes import has_static_value, statically_known_true


class Piece(NamedTuple):
    """A digit of a position."""

    letter: str
    stride: int
    extent: Any
    """An int, or the symbol of a dynamic extent; then the stride is 1 and the piece is the whole position."""


Dim = tuple[Piece, ...]


class Unknown(Exception):
    """An index that cannot be proved, with the reason as its message."""


def is_one(extent: Any) -> bool:
    """Whether an extent is known to be 1."""
    return bool(statically_known_true(extent == 1))


def is_same(x: Any, y: Any) -> bool:
    """Whether two extents are known to be equal."""
    return x is y or bool(statically_known_true(x == y))


def broadcast(index: Sequence[Dim], shape: Sequence[Any]) -> list[Dim]:
    """The index of an operand with this shape that is broadcast to the dimensions of `index`."""
    tail = list(index[len(index) - len(shape):]) if shape else []
    return [() if is_one(extent) else dim for dim, extent in zip(tail, shape)]


def permuted(index: Sequence[Dim], order: Sequence[int]) -> list[Dim]:
    """The index of x where `index` is that of x.permute(order)."""
    made: list[Dim] = [()] * len(index)
    for place, axis in enumerate(order):
        made[axis] = index[place]
    return made


def reshaped(index: Sequence[Dim], shape: Sequence[Any], source: Sequence[Any]) -> list[Dim]:
    """The index of x, of shape `source`, where `index` is that of x.reshape(shape). Raises Unknown."""
    found: list[Dim] = []
    i = j = 0
    while i < len(shape) or j < len(source):
        if i < len(shape) and j < len(source) and is_same(shape[i], source[j]):
            found.append(index[i])
            i, j = i + 1, j + 1
            continue
        if i < len(shape) and is_one(shape[i]):
            i += 1
            continue
        if j < len(source) and is_one(source[j]):
            found.append(())
            j += 1
            continue
        # The fewest dimensions from here with equal products.
        first, begin = i, j
        left = right = 1
        while left == 1 or left != right:
            takes_left = left <= right
            extents, at = (shape, i) if takes_left else (source, j)
            if at >= len(extents) or not has_static_value(extents[at]):
                raise Unknown("a view joins or splits a dimension of dynamic extent")
            if takes_left:
                left, i = left * int(extents[at]), i + 1
            else:
                right, j = right * int(extents[at]), j + 1
        pieces = [piece for dim in index[first:i] for piece in dim]
        if math.prod(int(piece.extent) for piece in pieces) != left:
            raise Unknown("a view joins a dimension that is broadcast")
        found += _split(_merged(pieces), [int(extent) for extent in source[begin:j]])
    return [_merged(dim) for dim in found]


def _merged(pieces: Sequence[Piece]) -> Dim:
    """The pieces with digits of one position that follow each other as one."""
    made: list[Piece] = []
    for piece in pieces:
        last = made[-1] if made else None
        if last is not None and last.letter == piece.letter and has_static_value(piece.extent) and (
                last.stride == piece.stride * piece.extent):
            made[-1] = Piece(piece.letter, piece.stride, last.extent * piece.extent)
        else:
            made.append(piece)
    return tuple(made)


def _split(pieces: Dim, extents: Sequence[int]) -> list[Dim]:
    """The pieces of each dimension, whose extents have the product of the pieces' extents."""
    rest = list(pieces)
    found: list[Dim] = []
    for extent in reversed(extents):
        dim: list[Piece] = []
        while extent != 1:
            letter, stride, size = rest.pop()
            if size <= extent and extent % size == 0:
                dim.insert(0, Piece(letter, stride, size))
                extent //= size
            elif size % extent == 0:
                dim.insert(0, Piece(letter, stride, extent))
                rest.append(Piece(letter, stride * extent, size // extent))
                extent = 1
            else:
                raise Unknown("a view splits a dimension at no multiple of its parts")
        found.insert(0, tuple(dim))
    return found
