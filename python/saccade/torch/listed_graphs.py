"""Graphs of torch.compile with flex_attention: which lists of blocks are read.

Lists that `create_block_mask` made from the mask function of a call need not be read (block_lists.py). A graph is
compiled for the lists of its first call. If these are such lists, the compiled graph does not read them, and each later
call compares its own with what was recorded; a call with other lists runs a graph that reads them, without Inductor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from saccade.regions import Region, TraceError, trace
from saccade.torch import block_lists
from saccade.torch.created_lists import is_created_in, same_regions

_FLEX = torch.ops.higher_order.flex_attention


class _Check(NamedTuple):
    """Lists that the compiled graph does not read."""

    key: Any
    lists: tuple[int | None, ...]
    """The numbers of the inputs that they are."""
    captures: tuple[int | None, ...]
    """The numbers of the inputs that are tensors of the mask function, in the order of its fingerprint."""
    covers: tuple[int, int]
    """The batch and the heads of the query."""

    def holds(self, inputs: Sequence[Any]) -> bool:
        lists = [None if number is None else inputs[number] for number in self.lists]
        origin = block_lists.origin_of(lists[0])
        if origin is None or origin.key != self.key or not origin.covers(*self.covers):
            return False
        captures = [known.tensor() if number is None else inputs[number]
                    for number, known in zip(self.captures, origin.captures)]
        return origin.is_still(lists, captures)


class Listing:
    """Decides for the calls of flex_attention in a graph whether their lists are read."""

    def __init__(self, graph: GraphModule, reads_all: bool = False):
        self._inputs = {node: number for number, node in enumerate(
            node for node in graph.graph.nodes if node.op == "placeholder")}
        self._reads_all = reads_all
        self.checks: list[_Check] = []

    def follows_mask(self, given: dict[str, Any], mask: Region, read: Sequence[Node], precision: str) -> bool:
        """Whether the lists of a call hide what its mask function hides and nothing else.

        Args:
            given: the arguments of the operator.
            mask: the region of the mask function, which reads the tensors `read`.
        """
        if self._reads_all:
            return False
        lists = given["block_mask"][2:6]
        batch, heads = given["query"].meta["example_value"].shape[:2]
        extents = int(batch) if isinstance(batch, int) else -1, int(heads) if isinstance(heads, int) else -1
        if not any(x in self._inputs for x in lists if isinstance(x, Node)):
            return is_created_in(given, mask, read, precision, extents, block_lists.reads_of(mask))
        tensors = [_tensor(x) for x in lists]
        origin = block_lists.origin_of(tensors[0])
        if origin is None or any(x is not None and x not in self._inputs for x in lists):
            return False
        function = origin.function()
        captures = [known.tensor() for known in origin.captures]
        block_size = tuple(given["block_mask"][-3:-1])
        if (function is None or not origin.is_still(tensors, captures) or not origin.is_of(function)
                or not origin.covers(*extents) or block_size != origin.block_size):
            return False
        try:
            with torch.no_grad():
                expected = trace(function, "mask", precision, bakes_numbers=True)
        except (TraceError, TypeError, ValueError):
            return False
        found = [_tensor(x) for x in read]
        if not same_regions(expected, mask) or any(x is not y for x, y in zip(expected.captures, found)):
            return False
        numbers: list[int | None] = [None if x is None else self._inputs[x] for x in lists]
        by_tensor = {id(_tensor(node)): number for node, number in self._inputs.items()}
        self.checks.append(_Check(origin.key, tuple(numbers), tuple([by_tensor.get(id(x)) for x in captures]), extents))
        return True

    def checked(self, compiled: Callable[..., Any], reading: Callable[..., Any] | None) -> Callable[..., Any]:
        """The compiled graph; with lists that it must read, `reading` instead."""
        if not self.checks or reading is None:
            return compiled
        checks = self.checks

        def call(*inputs: Any) -> Any:
            for check in checks:
                if not check.holds(inputs):
                    return reading(*inputs)
            return compiled(*inputs)

        return call


def has_flex(graph: GraphModule) -> bool:
    """Whether the graph calls flex_attention."""
    return any(node.target is _FLEX for node in graph.graph.nodes)


def replace(graph: GraphModule, replace_attention: Callable[..., Any],
            **options: Any) -> tuple[Listing, GraphModule | None, list[Any]]:
    """Replaces attention in a graph of torch.compile by rewriting.py.

    Returns:
        Which lists the graph does not read, a graph that reads all if there are any, and what was replaced in each of
        the graphs.
    """
    copied = _copy_of(graph) if has_flex(graph) else None
    listing = Listing(graph)
    replaced = replace_attention(graph, listing=listing, **options)
    if copied is None or not listing.checks:
        return listing, None, [replaced]
    in_copy = replace_attention(copied, listing=Listing(copied, reads_all=True))
    return listing, copied, [replaced, in_copy]


def _copy_of(graph: GraphModule) -> GraphModule:
    """The graph with nodes of its own."""
    copied = Graph()
    copied.output(copied.graph_copy(graph.graph, {}))
    return GraphModule(graph, copied)


def _tensor(node: Any) -> Any:
    """The tensor of an input of the graph in the call for which it is compiled; None if there is none."""
    given = node.meta.get("grapharg") if isinstance(node, Node) else None
    return None if given is None else given.example
