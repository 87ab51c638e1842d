"""Nodes of a graph of Dynamo that may be attention written by hand: a normalizer between two products."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import GraphModule, Node

from saccade.torch.products import Product, name_of, product

_LAYERS = frozenset({"linear", "layer_norm", "rms_norm", "batch_norm", "group_norm", "embedding", "cat"})
"""What attention has before its scores and after its result: a product beyond these is another one."""
_NORMALIZERS = ("softmax", "sigmoid")
_POSITIONAL = {"matmul": ("input", "other"), "bmm": ("input", "mat2"), "mm": ("input", "mat2"), "softmax": ("input",),
               "sigmoid": ("input",), **dict.fromkeys(("add", "sub", "mul", "div"), ("input", "other"))}
"""The first arguments of functions, by their names in PyTorch."""
_FARTHEST = 64
"""The number of nodes that a search visits."""


def candidates(graph: GraphModule) -> list[tuple[Node, Product, Product]]:
    """The normalizers between two products, with the products: softmaxes, and sigmoids that no softmax reads."""
    found = []
    for node in graph.graph.nodes:
        _place_arguments(node)
    for node in graph.graph.nodes:
        if name_of(node) not in _NORMALIZERS or not isinstance(node.args[:1] and node.args[0], Node):
            continue
        second = _reader(node)
        first = _source(node.args[0]) if second is not None else None
        if first is not None and second is not None:
            found.append((node, first, second))
    return found


def _place_arguments(node: Node) -> None:
    """Passes arguments by position that a graph passes by name."""
    for name in _POSITIONAL.get(name_of(node), ())[len(node.args) :]:
        if name not in node.kwargs:
            return
        kwargs = dict(node.kwargs)
        node.args, node.kwargs = (*node.args, kwargs.pop(name)), kwargs


def _reader(node: Node) -> Product | None:
    """The product that reads weights: the first one on the way forward. Nodes that are not supported are passed, so
    that the report has them."""
    for user in _reached(node, is_forward=True):
        if (found := product(user)) is not None:
            return found
    return None


def _source(node: Node) -> Product | None:
    """The product that scores are computed from: the first one on the way back."""
    for at in _reached(node, is_forward=False):
        found = product(at)
        if found is not None and _keeps_operands(found):
            return found
    return None


def _reached(node: Node, *, is_forward: bool) -> Iterator[Node]:
    """The nodes from which, or to which, values flow; the nearest first."""
    seen: set[Node] = set()
    todo = [node]
    while todo and len(seen) <= _FARTHEST:
        at = todo.pop(0)
        if at in seen:
            continue
        seen.add(at)
        yield at
        if name_of(at) in _LAYERS or is_forward and at is not node and name_of(at) == "softmax":
            continue
        todo += [user for user in at.users if _is_computed(user)] if is_forward else at.all_input_nodes


def _is_computed(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def _keeps_operands(found: Product) -> bool:
    """Whether both operands are computed: a linear layer's are not."""
    return all(x.op != "get_attr" for x in (found.left, found.right))
