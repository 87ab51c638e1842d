"""Products of two tensors in a graph of Dynamo, as an einsum of two operands."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Node

from saccade.torch.element_index import is_one, is_same

_MATMUL = ("matmul", "bmm", "mm", "__matmul__", "baddbmm")


class Product(NamedTuple):
    """sum over letters that `result` lacks of left[...] * right[...]. None is a dimension that is broadcast."""

    node: Node
    left: Node
    right: Node
    left_dims: tuple[str | None, ...]
    right_dims: tuple[str | None, ...]
    result: tuple[str, ...]
    addend: Node | None = None
    """A tensor that is added to the result, times `beta`."""
    alpha: Any = 1
    beta: Any = 1


def name_of(node: Node) -> str:
    """The name of the function or method that a node calls, without distinction of torch.x, Tensor.x and operator.x;
    empty for other functions."""
    if node.op == "call_method":
        return str(node.target)
    if node.op != "call_function":
        return ""
    module = getattr(node.target, "__module__", None)
    is_known = module is None or module == "_operator" or module.partition(".")[0] == "torch"
    return getattr(node.target, "__name__", "") if is_known else ""


def shape_of(node: Any) -> torch.Size | None:
    """The shape of a node's value; None if it is no tensor."""
    value = node.meta.get("example_value") if isinstance(node, Node) else None
    return value.shape if isinstance(value, torch.Tensor) else None


def product(node: Node) -> Product | None:
    """The product that a node computes; None if it is none, or has another form."""
    name = name_of(node)
    if name == "einsum":
        return _einsum(node)
    if name not in _MATMUL:
        return None
    named = dict(node.kwargs)
    operands = list(node.args)
    addend, alpha, beta = None, 1, 1
    if name == "baddbmm":
        addend = operands.pop(0) if len(operands) == 3 else named.pop("input", None)
        alpha, beta = named.pop("alpha", 1), named.pop("beta", 1)
        if not isinstance(addend, Node) or not isinstance(alpha, (int, float)) or not isinstance(beta, (int, float)):
            return None
        if beta == 0:  # not even NaN of the addend is read
            addend = None
    if named or len(operands) != 2:
        return None
    left, right = operands
    shapes = shape_of(left), shape_of(right)
    if shapes[0] is None or shapes[1] is None or min(map(len, shapes)) < 2:  # type: ignore[arg-type]
        return None
    rank = max(map(len, shapes))  # type: ignore[arg-type]
    letters = [f"b{n}" for n in range(rank - 2)]
    dims = []
    for shape, other, own in ((shapes[0], shapes[1], ("m", "k")), (shapes[1], shapes[0], ("k", "n"))):
        batch: list[str | None] = []
        for back in range(len(shape) - 2, 0, -1):
            extent = shape[-2 - back]
            is_short = back > len(other) - 2
            opposite = 1 if is_short else other[-2 - back]
            is_broadcast = is_one(extent) and not is_one(opposite)
            if not is_broadcast and not is_one(opposite) and not is_same(extent, opposite):
                return None
            batch.append(None if is_broadcast else letters[rank - 2 - back])
        dims.append((*batch, *own))
    return Product(node, left, right, dims[0], dims[1], (*letters, "m", "n"), addend, alpha, beta)


def _einsum(node: Node) -> Product | None:
    equation, *operands = node.args
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = list(operands[0])
    if node.kwargs or not isinstance(equation, str) or len(operands) != 2 or "->" not in equation:
        return None
    inputs, _, result = equation.replace(" ", "").partition("->")
    parts = inputs.split(",")
    shapes = [shape_of(x) for x in operands]
    if len(parts) != 2 or None in shapes:
        return None
    if "..." in equation:
        ranks = [len(shape) - len(part.replace("...", "")) if "..." in part else 0  # type: ignore[arg-type]
                 for part, shape in zip(parts, shapes)]
        if any("..." in part and rank != max(ranks) for part, rank in zip(parts, ranks)) or "..." not in result:
            return None
        more = "".join(chr(0x3b1 + n) for n in range(max(ranks)))
        parts, result = [part.replace("...", more) for part in parts], result.replace("...", more)
    terms = [*parts, result]
    if any(len(set(term)) != len(term) for term in terms) or not set(result) <= set(parts[0]) | set(parts[1]):
        return None
    extents: dict[str, Any] = {}
    for part, shape in zip(parts, shapes):
        if len(part) != len(shape):  # type: ignore[arg-type]
            return None
        for letter, extent in zip(part, shape):  # type: ignore[arg-type]
            if not is_same(extents.setdefault(letter, extent), extent):
                return None  # a dimension of extent 1 that is broadcast
    if any(letter not in result and not (letter in parts[0] and letter in parts[1]) for letter in extents):
        return None  # a sum over a dimension of one operand
    return Product(node, operands[0], operands[1], tuple(parts[0]), tuple(parts[1]), tuple(result))


def views_of(node: Node) -> tuple[str, Any] | None:
    """What a view does: "same", "reshape", "expand", or "permute" with its order; None for other nodes."""
    name = name_of(node)
    if name in ("contiguous", "clone", "alias"):
        return "same", None
    if name in ("view", "reshape", "flatten", "unflatten", "squeeze", "unsqueeze"):
        source, own = shape_of(node.args[0]), shape_of(node)
        is_type = name == "view" and len(node.args) == 2 and isinstance(node.args[1], torch.dtype)
        return None if source is None or own is None or is_type else ("reshape", None)
    if name == "expand":
        return "expand", None
    if name == "getitem" and len(node.args) == 2 and is_whole(node.args[1]):
        return "same", None
    shape = shape_of(node)
    if shape is None:
        return None
    rank = len(shape)
    order = _order(node, name, rank)
    return None if order is None else ("permute", order)


def is_whole(index: Any) -> bool:
    """Whether x[index] is all of x, in its shape, for every x."""
    parts = index if isinstance(index, tuple) else (index,)
    wholes = (slice(None), slice(0, None), slice(None, None, 1), slice(0, None, 1))
    return all(part is Ellipsis or isinstance(part, slice) and part in wholes for part in parts)


def _order(node: Node, name: str, rank: int) -> list[int] | None:
    given: Sequence[Any] = node.args[1:]
    if name == "permute" and len(given) == 1 and isinstance(given[0], (list, tuple)):
        given = given[0]
    is_known = all(isinstance(axis, int) for axis in given) and not node.kwargs  # none of dynamic ones
    if name == "permute" and is_known:
        return [axis % rank for axis in given]
    order = list(range(rank))
    is_attribute = node.target is getattr or node.target is operator.attrgetter
    if name in ("transpose", "swapaxes", "swapdims") and len(given) == 2 and is_known:
        x, y = (axis % rank for axis in given)
    elif name == "t" and rank == 2 or (name == "mT" or is_attribute and given[:1] == ("mT",)) and rank >= 2:
        x, y = rank - 2, rank - 1
    else:
        return None
    order[x], order[y] = order[y], order[x]
    return order
