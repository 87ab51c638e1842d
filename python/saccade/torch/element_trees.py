"""The score of attention that a graph of Dynamo computes by hand, as a function of one element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

from saccade.torch.element_index import Dim, Piece, Unknown, broadcast, is_one, permuted, reshaped
from saccade.torch.products import Product, name_of, shape_of, views_of

Value = Callable[[Any, dict[str, Any], Sequence[Any]], Any]
"""A function of the product's element, the positions by letter, and the captured tensors."""


def _masked_fill(x: Any, mask: Any, number: Any) -> Any:
    return torch.where(mask, number, x)


# Elementwise functions of one element, by the name of what a graph calls, in place or not.
_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "multiply": operator.mul,
    "div": operator.truediv, "truediv": operator.truediv, "divide": operator.truediv, "neg": operator.neg,
    "where": torch.where, "masked_fill": _masked_fill, "tanh": torch.tanh, "sigmoid": torch.sigmoid,
    "abs": torch.abs, "square": torch.square, "maximum": torch.maximum, "minimum": torch.minimum}  # fmt: skip
_CASTS = frozenset({"to", "type", "type_as", "float", "half", "bfloat16", "double"})
_DROPOUTS = frozenset({"dropout", "dropout_"})
_MAXIMA = frozenset({"amax", "max"})


def elementwise(node: Node) -> Callable[..., Any] | None:
    """The function of one element that a node computes, if it is elementwise."""
    name = name_of(node)
    if node.target in (operator.iadd, operator.isub, operator.imul, operator.itruediv):
        name = name[1:]
    name = name.removesuffix("_") if not name.endswith("__") else name.strip("_")
    return _ELEMENTWISE.get(name)


def is_cast(node: Node) -> bool:
    """Whether a node converts floats to floats on the same device."""
    source = node.args[0].meta.get("example_value") if node.args and isinstance(node.args[0], Node) else None
    own = node.meta.get("example_value")
    return (name_of(node) in _CASTS and isinstance(source, torch.Tensor) and isinstance(own, torch.Tensor)
            and source.is_floating_point() and own.is_floating_point() and source.device == own.device)


def is_dropout(node: Node) -> bool:
    """Whether a node sets elements to 0 at random."""
    return name_of(node) in _DROPOUTS and bool(node.args)


def is_idle_dropout(node: Node) -> bool:
    """Whether a node is a dropout that leaves its tensor as it is: one of eval mode, or with the probability 0."""
    if not is_dropout(node):
        return False
    given = dict(zip(("p", "training"), node.args[1:])) | dict(node.kwargs)
    is_training = given.get("training", given.get("train", True))
    return is_training is False or isinstance(given.get("p"), (int, float)) and given["p"] == 0


@dataclass
class Score:
    """The element of a score: what `build` finds."""

    product: Product
    chain: set[Node]
    """The nodes that are computed from the product."""
    keys: Piece | None
    """The dimension of the softmax; None if there is none."""
    lead: frozenset[str] = frozenset()
    """The dimensions before those of queries."""
    place: list[Dim] | None = None
    """The index of the product."""
    captures: list[tuple[Node, list[Dim]]] = field(default_factory=list)
    elements: set[Node] = field(default_factory=set)
    """The nodes of the chain of which an element is computed."""

    def build(self, node: Any, index: list[Dim]) -> Value:
        """The element of a node at an index. Raises Unknown."""
        if not isinstance(node, Node):
            if not isinstance(node, (int, float)):
                raise Unknown(f"a score is computed with {node!r:.40}")
            return lambda s, at, read: node
        if node is self.product.node:
            return self._element(index)
        if node not in self.chain:
            return self._capture(node, index)
        known = self.place, list(self.captures), set(self.elements)
        try:
            self.elements.add(node)
            return self._computed(node, index)
        except Unknown:
            # What lacks a dimension is smaller than the scores: PyTorch computes it, and it is read.
            if self.lead <= {piece.letter for dim in index for piece in dim}:
                raise
            self.place, self.captures, self.elements = known
            return self._capture(node, index)

    def _computed(self, node: Node, index: list[Dim]) -> Value:
        """The element of a node that is computed from the product."""
        view = views_of(node)
        source: Any = node.args[0] if node.args else None
        if view is not None:
            return self.build(source, viewed(node, view, index))
        if is_cast(node):
            return self.build(source, index)
        compute = elementwise(node)
        if compute is None or node.kwargs:
            raise Unknown(f"'{node.name}' ({name_of(node) or node.target}) of scores is not supported")
        if compute is operator.sub and self._is_maximum(node.args[1], source, index):
            return self.build(source, index)  # a softmax does not change
        values = [self.build(x, broadcast(index, shape_of(x) or ()) if isinstance(x, Node) else index)
                  for x in node.args]
        return lambda s, at, read: compute(*[value(s, at, read) for value in values])

    def _element(self, index: list[Dim]) -> Value:
        if self.place is not None and self.place != index:
            raise Unknown("a score is computed from two elements of the product")
        self.place = index
        self.elements.add(self.product.node)
        alpha, beta, addend = self.product.alpha, self.product.beta, self.product.addend
        if addend is None:
            return (lambda s, at, read: s) if alpha == 1 else (lambda s, at, read: s * alpha)
        added = self._capture(addend, broadcast(index, shape_of(addend) or ()))
        return lambda s, at, read: s * alpha + added(s, at, read) * beta

    def _capture(self, node: Node, index: list[Dim]) -> Value:
        example = node.meta.get("example_value")
        if not isinstance(example, (torch.Tensor, int, float, torch.SymInt, torch.SymFloat)):
            raise Unknown(f"'{node.name}', which scores are computed with, is no tensor")
        number = len(self.captures)
        dims = [dim for dim in index if dim] if isinstance(example, torch.Tensor) else []
        self.captures.append((node, index if isinstance(example, torch.Tensor) else []))

        def read_element(s: Any, at: dict[str, Any], read: Sequence[Any]) -> Any:
            table = read[number]
            return table[tuple([position(dim, at) for dim in dims])] if dims else table

        return read_element

    def _is_maximum(self, node: Any, source: Any, index: list[Dim]) -> bool:
        """Whether a node is the maximum of `source` over the keys, which only keeps exponentials from overflowing."""
        while isinstance(node, Node) and name_of(node) in ("detach", "getitem"):
            if name_of(node) == "getitem" and node.args[1] not in (0, "values"):
                return False
            node = node.args[0]
        if not isinstance(node, Node) or name_of(node) not in _MAXIMA or node.args[:1] != (source,):
            return False
        given = dict(zip(("dim", "keepdim"), node.args[1:])) | dict(node.kwargs)
        dim = given.get("dim")
        dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
        if not isinstance(dim, int) or given.get("keepdim") is not True or len(given) != 2:
            return False
        return self.keys is not None and index[dim % len(index)] == (self.keys,)


def viewed(node: Node, view: tuple[str, Any], index: list[Dim]) -> list[Dim]:
    """The index of the source of a view where `index` is that of the view. Raises Unknown."""
    kind, order = view
    source = shape_of(node.args[0])
    own = shape_of(node)
    if source is None or own is None:
        raise Unknown(f"'{node.name}' has no example value")
    if kind == "same":
        return index
    if kind == "permute":
        return permuted(index, order)
    if kind == "expand":
        tail = index[len(index) - len(source):]
        return [() if is_one(extent) else dim for dim, extent in zip(tail, source)]
    return reshaped(index, own, source)


def position(dim: Dim, at: dict[str, Any]) -> Any:
    """The index of a dimension, from the positions and their extents (`letter` and `#letter`)."""
    value: Any = None
    for letter, stride, extent in dim:
        digit = at[letter]
        if stride != 1:
            digit = digit // stride
        whole = at["#" + letter]
        if not (whole is extent or isinstance(whole, int) and whole == stride * extent):
            digit = digit % extent
        value = digit if value is None else value * extent + digit
    return value
