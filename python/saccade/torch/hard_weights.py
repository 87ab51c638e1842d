"""Hard weights of attention in a graph of Dynamo: 1 at the first maximum of each row of scores, 0 elsewhere, with the
gradient of the softmax of the scores (a straight-through estimator). Kernels compute the maximum and the gradient."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Node

from saccade.torch.attention_dims import softmax_axis
from saccade.torch.element_index import Unknown, is_same
from saccade.torch.element_trees import Score, elementwise, is_cast
from saccade.torch.products import name_of, shape_of, views_of

_ZEROS = frozenset({"zeros_like", "zeros", "new_zeros"})
_BOUNDED = (torch.tanh, torch.sigmoid)


def softmax_of(node: Node) -> Node | None:
    """The softmax of a sum `h + softmax - softmax.detach()`, in any order, where h is 1 at the first maximum of the
    scores along the dimension of the softmax, and 0 elsewhere; None if a node is no such sum."""
    terms = _terms(node)
    removed = [x for sign, x in terms if sign < 0]
    kept = [x for sign, x in terms if sign > 0]
    if len(removed) != 1 or len(kept) != 2 or name_of(removed[0]) != "detach":
        return None
    softmax = removed[0].args[0]
    if softmax not in kept or not isinstance(softmax, Node) or name_of(softmax) != "softmax":
        return None
    one_hot = kept[1] if kept[0] is softmax else kept[0]
    is_hard = all(_is_alike(x, softmax) for x in (node, one_hot)) and _is_one_hot(one_hot, softmax)
    return softmax if is_hard else None


def check(score: Score, second: Node) -> None:
    """Refuses scores of which those that are equal for PyTorch may differ in a kernel, which then finds another first
    maximum: rounded to another type, close to the bound of a function, or less other scores."""
    nodes = (*score.chain, *score.product.node.all_input_nodes, second)
    examples = [node.meta.get("example_value") for node in nodes]
    types = {x.dtype for x in examples if isinstance(x, torch.Tensor) and x.is_floating_point()}
    if len(types) != 1 or not types <= {torch.float32, torch.float64}:
        raise Unknown("hard weights are computed in float16, bfloat16 or several types")
    if any(elementwise(node) in _BOUNDED for node in score.elements):
        raise Unknown("hard weights are computed from scores of 'tanh' or 'sigmoid'")
    if any(node in score.chain for node, _ in score.captures):
        raise Unknown("hard weights are computed from scores and a part of these")


def _terms(node: Node) -> list[tuple[int, Node]]:
    """The terms of two sums or differences, with their signs."""
    terms = [(1, node)]
    for _ in range(2):
        for place, (sign, term) in enumerate(terms):
            compute = elementwise(term)
            if compute in (operator.add, operator.sub) and not term.kwargs and len(term.args) == 2 and all(
                    isinstance(x, Node) for x in term.args):
                left, right = term.args
                terms[place:place + 1] = [(sign, left), (sign if compute is operator.add else -sign, right)]
                break
    return terms


def _is_alike(x: Node, y: Node) -> bool:
    """Whether two tensors have one shape."""
    shapes = shape_of(x), shape_of(y)
    return None not in shapes and len(shapes[0]) == len(shapes[1]) and all(map(is_same, *shapes))  # type: ignore


def _is_one_hot(node: Node, softmax: Node) -> bool:
    """Whether a node is zeros that nothing else reads or writes to, with a 1 at the first maximum of each row."""
    given = dict(zip(("input", "dim", "index", "value"), node.args)) | dict(node.kwargs)
    if name_of(node) not in ("scatter", "scatter_") or given.keys() != {"input", "dim", "index", "value"}:
        return False
    zeros, value = given["input"], given["value"]
    return (isinstance(zeros, Node) and name_of(zeros) in _ZEROS and len(zeros.users) == 1
            and isinstance(value, (int, float)) and value == 1 and _is_axis(given["dim"], softmax)
            and _is_first_maximum(given["index"], softmax))


def _is_first_maximum(index: Any, softmax: Node) -> bool:
    """Whether a node is the key of the first maximum of each row, as a dimension of extent 1."""
    name = "argmax"
    if isinstance(index, Node) and name_of(index) == "getitem" and index.args[1] == 1:
        name, index = "max", index.args[0]
    if not isinstance(index, Node) or name_of(index) != name:
        return False
    given = dict(zip(("input", "dim", "keepdim"), index.args)) | dict(index.kwargs)
    return (given.keys() == {"input", "dim", "keepdim"} and given["keepdim"] is True and _is_axis(given["dim"], softmax)
            and _unchanged(given["input"]) is _unchanged(softmax.args[0]))


def _is_axis(dim: Any, softmax: Node) -> bool:
    """Whether a dimension is that of a softmax."""
    return isinstance(dim, int) and dim % len(shape_of(softmax) or (1,)) == softmax_axis(softmax)


def _unchanged(node: Any) -> Any:
    """The tensor whose elements a node has: without casts, copies, and factors of 1."""
    while isinstance(node, Node) and not node.kwargs:
        is_factor = elementwise(node) in (operator.mul, operator.truediv) and node.args[1:] in ((1,), (1.0,))
        is_copy = views_of(node) == ("same", None) or is_cast(node) or name_of(node) == "detach"
        if not is_factor and not is_copy:
            break
        node = node.args[0]
    return node
