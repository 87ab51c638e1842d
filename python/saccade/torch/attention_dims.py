"""The dimensions of attention that two products of a graph of Dynamo compute, and its operands by dimension."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import has_static_value

from saccade.torch.element_index import Dim, Piece, Unknown, is_one
from saccade.torch.products import Product, shape_of


class Operand(NamedTuple):
    """A tensor and what its dimensions are, None for one of extent 1."""

    node: Node
    dims: tuple[Any, ...]


class Letters:
    """The dimensions of the second product: `lead`, queries, keys and the values' size."""

    def __init__(self, second: Product, side: int):
        weights = second.left_dims if side == 0 else second.right_dims
        values = second.right_dims if side == 0 else second.left_dims
        node = second.left if side == 0 else second.right
        shape, other = shape_of(node), shape_of(second.right if side == 0 else second.left)
        assert shape is not None and other is not None
        self.extents = {letter: extent for letter, extent in (*zip(values, other), *zip(weights, shape)) if letter}
        reduced = [letter for letter in weights if letter is not None and letter not in second.result]
        alone = [letter for letter in weights if letter in second.result and letter not in values]
        widths = [letter for letter in values if letter in second.result and letter not in weights]
        if len(reduced) != 1 or not alone or not widths or second.addend is not None or second.alpha != 1:
            raise Unknown("the second product is not one of weights and values")
        self.keys, self.queries, self.width = reduced[0], alone[-1], widths[-1]
        shared = [letter for letter in weights if letter in values and letter in second.result]
        self.lead: list[str] = [*widths[:-1], *shared, *alone[:-1]]

    def piece(self, letter: str) -> Piece:
        return Piece(letter, 1, self.extents[letter])


def queries_and_keys(first: Product, place: list[Dim], letters: Letters) -> tuple[Operand, Operand]:
    """The operands of the first product with their dimensions as pieces; "e" is the dimension of the product's sum."""
    index: dict[str, Dim] = dict(zip(first.result, place))
    reduced = {x for x in (*first.left_dims, *first.right_dims) if x is not None and x not in first.result}
    if len(reduced) != 1:
        raise Unknown("the first product sums over several dimensions")
    queries, keys = letters.piece(letters.queries), letters.piece(letters.keys)
    found: list[tuple[list[Piece], Operand]] = []
    for node, dims in ((first.left, first.left_dims), (first.right, first.right_dims)):
        pieces: list[Any] = []
        for letter, extent in zip(dims, shape_of(node) or ()):
            dim: Dim = () if letter is None else index.get(letter, ())
            for piece in dim:
                if piece != letters.piece(piece.letter):
                    raise Unknown("a position is a part of a dimension of the first product")
            if letter in reduced:
                pieces.append("e")
            elif not dim:
                if not (has_static_value(extent) and int(extent) == 1):
                    raise Unknown("a dimension of the first product is broadcast after it")
                pieces.append(None)
            else:
                pieces.append(dim)
        flat = [piece for dim in pieces if isinstance(dim, tuple) for piece in dim]
        if len({piece.letter for piece in flat}) != len(flat) or queries in flat and keys in flat:
            raise Unknown("a position is two dimensions of the first product")
        found.append((flat, Operand(node, tuple(pieces))))
    have_keys = [keys in flat for flat, _ in found]
    if have_keys == [False, False] and is_one(keys.extent):  # the one that lacks queries, or either one
        is_right = queries not in found[1][0]
        have_keys = [not is_right, is_right]
    if sum(have_keys) != 1:
        raise Unknown("the first product is not one of queries and keys")
    (_, x), (_, y) = found if have_keys[1] else reversed(found)
    return x, y


def softmax_axis(node: Node) -> int:
    """The dimension of a softmax, counted from the first one."""
    given = dict(zip(("dim", "_stacklevel") if node.op == "call_function" else ("dim", "dtype"), node.args[1:]))
    given |= dict(node.kwargs)
    shape = shape_of(node)
    if shape is None or not isinstance(given.get("dim"), int):
        raise Unknown("the softmax has no dimension")
    return int(given["dim"] % len(shape))
