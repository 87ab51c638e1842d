"""Recognises the lists of blocks that a graph of Dynamo makes as `create_block_mask` does, from a known mask function.

`create_block_mask` evaluates the mask function on all pairs with vmap, counts the visible pairs of each block, and
sorts the blocks. The nodes are followed from the lists back to the evaluation, whose value is traced and compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from saccade.regions import Region, TraceError, trace


class _Other(Exception):
    """The nodes are not those of `create_block_mask`."""


def is_created_in(given: dict[str, Any], mask: Region, read: Sequence[Node], precision: str,
                  extents: tuple[int, int], reads: tuple[bool, bool]) -> bool:
    """Whether the lists of a call hide what its mask function hides and nothing else.

    Args:
        given: the arguments of the operator flex_attention.
        mask: the region of the mask function, which reads the tensors `read`.
        extents: the batch and the heads of the query.
        reads: whether the mask function reads the batch index, and the head index.
    """
    try:
        value, made = _evaluation(given)
        if any(is_read and found != expected for found, expected, is_read in zip(made, extents, reads)):
            return False
        region, tensors = _region(value, precision)
    except (_Other, TraceError, TypeError, ValueError, AttributeError, IndexError):
        return False
    return same_regions(region, mask) and len(tensors) == len(read) and all(x is y for x, y in zip(tensors, read))


def same_regions(x: Region, y: Region) -> bool:
    """Whether regions compute the same from their captures."""

    def text(region: Region) -> str:
        return region.body("bhij", [f"%c{i}" for i in range(len(region.captures))])

    return x.capture_types == y.capture_types and len(x.captures) == len(y.captures) and text(x) == text(y)


def _is(node: Any, name: str) -> bool:
    """Whether a node calls a function or a method of this name."""
    target = node.target if isinstance(node, Node) and node.op.startswith("call") else None
    return target == name or getattr(target, "__name__", None) == name


def _step(node: Any, *names: str) -> Any:
    """The first operand of a node that calls one of these."""
    if not any(_is(node, name) for name in names):
        raise _Other
    return node.args[0]


def _blocks(counts: Any, indices: Any) -> Any:
    """The boolean node of the blocks in a list."""
    dense = _step(_step(counts, "to"), "sum")
    if _step(_step(indices, "to"), "argsort") is not dense:
        raise _Other
    return _step(_step(dense, "to"), "to")


def _compared(node: Any, name: str, number: int) -> Any:
    """The operand that a node compares with a number."""
    first = _step(node, name)
    if node.args[1] != number:
        raise _Other
    return first


def _evaluation(given: dict[str, Any]) -> tuple[Node, tuple[int, int]]:
    """The node of the evaluated mask function, and its numbers of batches and heads."""
    queries, keys, counts, indices, full_counts, full_indices = given["block_mask"][:6]
    rows, columns = given["block_mask"][-3:-1]
    partial = _blocks(counts, indices)
    if full_counts is None:
        total = _compared(partial, "gt", 0)
    else:
        some, few = partial.args if _is(partial, "and_") else (None, None)
        total = _compared(some, "gt", 0)
        if (_compared(few, "lt", rows * columns) is not total
                or _compared(_blocks(full_counts, full_indices), "eq", rows * columns) is not total):
            raise _Other
    permuted = _step(total, "sum")
    view = _step(permuted, "permute")
    if (total.kwargs != {"dim": [-2, -1]} or permuted.args[1:] != (0, 1, 2, 4, 3, 5)
            or view.args[3:] != (-(-queries // rows), rows, -(-keys // columns), columns)):
        raise _Other
    node = _step(_step(view, "view"), "pad")
    for level in (1, 2, 3, 4):
        inner = _step(node, "_remove_batch_dim")
        if node.args[1] != level or node.args[3] != 0:
            raise _Other
        node = inner
    return node, view.args[1:3]


def _region(value: Node, precision: str) -> tuple[Region, list[Node]]:
    """The region of an evaluated mask function, and the nodes of the tensors that it reads."""
    positions: dict[Node, int] = {}
    order: list[Node] = []
    known: dict[Node, bool] = {}

    def visit(node: Node) -> bool:
        """Whether a node depends on positions."""
        if node in known:
            return known[node]
        if _is(node, "_add_batch_dim"):
            arange = node.args[0]
            if not _is(arange, "arange") or arange.args[0] != 0 or len(arange.args) != 2:
                raise _Other
            positions[node] = node.args[2] - 1
            known[node] = True
            return True
        known[node] = any([visit(operand) for operand in node.all_input_nodes])
        if known[node]:
            order.append(node)
        return known[node]

    visit(value)
    leaves = {}
    for operand in [operand for node in order for operand in node.all_input_nodes if not known[operand]]:
        example = operand.meta["example_value"]
        leaves[operand] = torch.empty((1,) * example.dim(), dtype=example.dtype)

    def evaluate(*indices: Any) -> Any:
        values: dict[Node, Any] = {**leaves, **{node: indices[number] for node, number in positions.items()}}
        for node in order:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "call_method":
                values[node] = getattr(args[0], node.target)(*args[1:], **kwargs)
            else:
                values[node] = node.target(*args, **kwargs)
        return values[value]

    def mask_mod(b: Any, h: Any, i: Any, j: Any) -> Any:
        return evaluate(b, h, i, j)

    with torch.no_grad():
        region = trace(mask_mod, "mask", precision, bakes_numbers=True)
    return region, [next(node for node, x in leaves.items() if x is capture) for capture in region.captures]
