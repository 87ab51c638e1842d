"""Weights of attention that are changed linearly in a graph of Dynamo: (a * w + b) @ v is a * (w @ v) + b @ v, where a
has no dimension of keys. The product of w, which attention becomes, is the only one that reads the softmax."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from saccade.torch import hard_weights
from saccade.torch.element_index import Unknown, is_one, is_same
from saccade.torch.element_trees import elementwise, is_idle_dropout
from saccade.torch.products import Product, name_of, product, shape_of

_LINEAR = (operator.add, operator.sub, operator.mul, operator.truediv)
_UNKNOWN = "weights are changed by more than products and sums with other tensors"


def is_changed(softmax: Node, second: Product) -> bool:
    """Whether arithmetic stands between a softmax and the left operand of a matmul."""
    if name_of(second.node) not in ("matmul", "bmm", "mm", "__matmul__") or name_of(softmax) != "softmax":
        return False
    node: Any = second.left
    while isinstance(node, Node) and node is not softmax:
        if _linear(node) is not None:
            return True
        node = node.args[0] if node.args else None
    return False


def _linear(node: Node) -> Callable[..., Any] | None:
    compute = elementwise(node)
    is_linear = compute in _LINEAR and len(node.args) == 2 and not node.kwargs
    return compute if is_linear and hard_weights.softmax_of(node) is None else None


def others(softmax: Node, chain: set[Node]) -> list[Node]:
    """The tensors that weights are changed with."""
    weights = _derived(softmax) & chain
    return [x for node in weights for x in node.all_input_nodes if x not in weights]


def _derived(node: Node) -> set[Node]:
    found, todo = {node}, [node]
    while todo:
        for user in todo.pop().users:
            if user not in found:
                found.add(user)
                todo.append(user)
    return found


def distribute(graph: Graph, softmax: Node, second: Product, chain: set[Node]) -> Product:
    """Replaces the product by the sum of products, and erases the nodes of `chain` that nothing reads any more. Raises
    Unknown, which leaves nodes without readers.

    Returns:
        The product of the weights as they are before the changes.
    """
    made = _Distribution(graph, softmax, second)
    with graph.inserting_before(second.node):
        result = made.product_of(second.left)
    if result is None or made.core is None:
        raise Unknown(_UNKNOWN)
    second.node.replace_all_uses_with(result)
    graph.erase_node(second.node)
    for node in reversed(list(graph.nodes)):
        if node in chain and not node.users:
            graph.erase_node(node)
    core = product(made.core)
    assert core is not None
    return core


class _Distribution:
    def __init__(self, graph: Graph, softmax: Node, second: Product):
        self.graph, self.second = graph, second
        self.weights = _derived(softmax)
        self.dtype = second.node.meta["example_value"].dtype
        self.core: Node | None = None

    def product_of(self, node: Node) -> Node:
        """The product of weights and values."""
        node = _before_dropout(node)
        found = self._parts(node)
        if found is None:
            if self.core is not None:
                raise Unknown(_UNKNOWN)
            self.core = self._add(torch.matmul, node, self.second.right)
            return self.core
        compute, weights, other = found
        if compute in (operator.add, operator.sub):
            return self._add(compute, *[self.product_of(x) if x is weights else self._add(
                torch.matmul, x, self.second.right) for x in node.args])
        return self._add(compute, self.product_of(weights), other)

    def _sum_of(self, node: Node) -> Any:
        """The sum of weights over the keys, which stay a dimension: a node or a number."""
        node = _before_dropout(node)
        found = self._parts(node)
        if found is None:
            return 1.0  # of a softmax
        compute, weights, other = found
        if compute in (operator.add, operator.sub):
            return self._add(compute, *[self._sum_of(x) if x is weights else self._add(
                torch.sum, x, -1, True) for x in node.args])
        return self._add(compute, self._sum_of(weights), other)

    def _parts(self, node: Node) -> tuple[Any, Node, Any] | None:
        """The function of a change, the weights that it changes and what it changes them with; None for no change."""
        compute = _linear(node)
        if compute is None:
            return None
        left, right = node.args
        if compute is operator.truediv and _is_sum_of(right, left):
            return compute, left, self._sum_of(left)
        weights = [x for x in (left, right) if isinstance(x, Node) and x in self.weights]
        if len(weights) != 1 or compute is operator.truediv and weights[0] is not left:
            raise Unknown(_UNKNOWN)
        other = right if weights[0] is left else left
        self._check(node, weights[0], other, compute in (operator.add, operator.sub))
        return compute, weights[0], other

    def _check(self, node: Node, weights: Node, other: Any, is_added: bool) -> None:
        own, shape, more = shape_of(node), shape_of(weights), shape_of(other)
        assert own is not None and shape is not None
        examples = [x.meta["example_value"] for x in (node, weights, other) if isinstance(x, Node)]
        is_number = not isinstance(other, Node) and isinstance(other, (int, float)) and not is_added
        if len(own) != len(shape) or not all(map(is_same, own, shape)) or any(
                not isinstance(x, torch.Tensor) or x.dtype != self.dtype for x in examples):
            raise Unknown(_UNKNOWN)
        if is_added:
            is_known = more is not None and len(more) >= 2 and all(map(is_same, more[-2:], shape[-2:]))
        else:
            is_known = is_number or more is not None and (len(more) == 0 or is_one(more[-1]))
        if not is_known:
            raise Unknown(_UNKNOWN)

    def _add(self, function: Any, *arguments: Any) -> Any:
        nodes = [x for x in arguments if isinstance(x, Node)]
        if not nodes:
            return function(*arguments)
        with torch.no_grad():
            example = function(*[x.meta["example_value"] if isinstance(x, Node) else x for x in arguments])
        example.requires_grad_(any(x.meta["example_value"].requires_grad for x in nodes))
        made = self.graph.call_function(function, arguments)
        made.meta.update({name: value for name, value in self.second.node.meta.items() if name != "example_value"})
        made.meta["example_value"] = example
        return made


def _before_dropout(node: Node) -> Node:
    """The tensor that dropouts without an effect give."""
    while is_idle_dropout(node):
        source = node.args[0]
        assert isinstance(source, Node)
        node = source
    return node


def _is_sum_of(node: Any, weights: Any) -> bool:
    """Whether a node is the sum of weights over their last dimension, which stays."""
    rank = len(shape_of(weights) or ())
    is_kept = True
    if isinstance(node, Node) and name_of(node) == "unsqueeze" and not node.kwargs and node.args[1:] in (
            (-1,), (rank - 1,)):
        is_kept, node = False, node.args[0]
    if not isinstance(node, Node) or name_of(node) != "sum" or node.args[:1] != (weights,):
        return False
    given = dict(zip(("dim", "keepdim"), node.args[1:])) | dict(node.kwargs)
    dim = given.get("dim")
    dim = dim[0] if isinstance(dim, (list, tuple)) and len(dim) == 1 else dim
    is_last = isinstance(dim, int) and dim in (-1, rank - 1)
    return is_last and given.keys() <= {"dim", "keepdim"} and given.get("keepdim", False) is is_kept
