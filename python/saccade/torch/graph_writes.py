"""Writes to tensors in a graph of Dynamo, between the two products of attention.

The operator that replaces attention reads its tensors where the second product is. A write in between is harmless if
the tensor is not read by the operator, or is read after the write. Tensors that share memory are those whose fake
tensors share storage; inputs of the graph may share memory with each other.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from saccade.torch.element_index import Unknown, is_same
from saccade.torch.products import is_whole, shape_of

_OPERATORS = ("iadd", "isub", "imul", "itruediv", "setitem", "ior", "iand")
_ANY_INPUT = -1
"""The storage of all inputs and attributes of a graph."""


def is_write(node: Node) -> bool:
    """Whether a node writes to elements of a tensor."""
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    is_operator = getattr(node.target, "__module__", "") == "_operator" and name in _OPERATORS
    is_method = name.endswith("_") and not name.endswith("__")
    return bool(is_operator or is_method or node.kwargs.get("inplace") or node.kwargs.get("out") is not None
                or _is_mutable(node.target))


def _is_mutable(target: Any) -> bool:
    if isinstance(target, torch._ops.OpOverloadPacket):
        target = target.default if "default" in target.overloads() else None
    return isinstance(target, torch._ops.OpOverload) and bool(target._schema.is_mutable)


class Writes:
    """The writes between two nodes."""

    def __init__(self, graph: Graph, first: Node, second: Node):
        self.place = {node: number for number, node in enumerate(graph.nodes)}
        self.first, self.second = first, second
        inputs = (node for node in graph.nodes if node.op in ("placeholder", "get_attr"))
        self.inputs = {storage for node in inputs if (storage := _storage(node)) is not None}
        self.sharing: dict[int | None, list[Node]] = {}
        for node in graph.nodes:
            self.sharing.setdefault(self.storage(node), []).append(node)
        self.writes = [node for node in graph.nodes
                       if self.place[first] < self.place[node] < self.place[second] and is_write(node)]

    def storage(self, node: Node) -> int | None:
        """What nodes that share memory have in common; None if it is not known."""
        found = _storage(node)
        return _ANY_INPUT if found in self.inputs else found

    def check(self, chain: set[Node], read: Iterable[Node]) -> None:
        """Refuses writes that the operator would not see, or see too early.

        Args:
            chain: the nodes that are computed from the first product.
            read: the tensors that the operator reads.
        """
        own = {self.storage(node) for node in chain if shape_of(node) is not None}
        since = {node: self._first_reading(node, chain) for node in read}
        for write in self.writes:
            written = self._written(write)
            if written is None:
                raise Unknown("a tensor is written to between the products")
            if written in own or write in chain:
                self._check_own(write, written, chain)
            elif any(self.storage(node) in (written, None) and place < self.place[write]
                     for node, place in since.items() if shape_of(node) is not None):
                raise Unknown("a tensor that attention reads is written to between the products")

    def _written(self, write: Node) -> int | None:
        target = write.kwargs.get("out", write.args[0] if write.args else None)
        is_plain = isinstance(target, Node) and not _is_mutable(write.target)
        return self.storage(target) if is_plain and shape_of(target) is not None else None

    def _first_reading(self, node: Node, chain: set[Node]) -> int:
        return min((self.place[user] for user in node.users if user in chain), default=self.place[self.first])

    def _check_own(self, write: Node, written: int | None, chain: set[Node]) -> None:
        """Refuses a write to scores or weights unless all later reads are of its result."""
        sharing = self.sharing[written]
        if write not in chain or write.args[0] not in chain or any(node not in chain for node in sharing
                                                                   if shape_of(node) is not None):
            raise Unknown("scores are written to and read in several places")
        later = _descendants(write, chain)
        for node in sharing:
            if node not in later and any(self.place[user] > self.place[write] for user in node.users):
                raise Unknown("scores are written to and read in several places")


def _storage(node: Node) -> int | None:
    value = node.meta.get("example_value")
    if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
        return None
    return int(value.untyped_storage()._cdata)


def _descendants(node: Node, within: set[Node]) -> set[Node]:
    found, todo = {node}, [node]
    while todo:
        for user in todo.pop().users:
            if user in within and user not in found:
                found.add(user)
                todo.append(user)
    return found


def follow_writes(graph: GraphModule, first: Node, second: Node) -> None:
    """Lets nodes read what a write between two nodes leaves in place of the tensor that was written to: the result of
    `x.add_(y)` is x, and after `x[:] = y` the elements of x are those of y. The graph computes the same."""
    writes = Writes(graph.graph, first, second)
    for write in writes.writes:
        target = write.args[0] if write.args else None
        if not isinstance(target, Node) or writes.storage(target) in (_ANY_INPUT, None):
            continue
        if write.target is operator.setitem:
            _follow_copy(graph.graph, writes, write, target)
        elif _is_same_tensor(write, target):
            target.replace_all_uses_with(write, delete_user_cb=_after(writes, write))


def _after(writes: Writes, write: Node) -> Any:
    return lambda user: writes.place[user] > writes.place[write]


def _is_same_tensor(x: Node, y: Node) -> bool:
    """Whether two nodes have the same elements in the same memory."""
    left, right = (node.meta.get("example_value") for node in (x, y))
    if not isinstance(left, torch.Tensor) or not isinstance(right, torch.Tensor) or _storage(x) != _storage(y):
        return False
    return _is_alike(left, right) and is_same(left.storage_offset(), right.storage_offset())


def _is_alike(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether tensors have one element type, shape and order in memory."""
    return x.dtype == y.dtype and x.dim() == y.dim() and all(
        map(is_same, (*x.shape, *x.stride()), (*y.shape, *y.stride())))


def _follow_copy(graph: Graph, writes: Writes, write: Node, target: Node) -> None:
    """Replaces `x[:] = y` by y, if nothing else reads the memory of x later."""
    _, index, value = write.args
    example, copied = (x.meta.get("example_value") if isinstance(x, Node) else None for x in (target, value))
    if write.users or not isinstance(example, torch.Tensor) or not isinstance(copied, torch.Tensor):
        return
    storages = writes.storage(target), writes.storage(value)
    if not is_whole(index) or not _is_alike(example, copied) or storages[0] == storages[1]:
        return
    place = writes.place[write]
    sharing = [node for storage in storages for node in writes.sharing[storage]]
    is_written_later = any(writes.place[user] > place and is_write(user) for node in sharing for user in node.users)
    is_read_elsewhere = any(writes.place[user] > place for node in writes.sharing[storages[0]] if node is not target
                            for user in node.users)
    if is_written_later or is_read_elsewhere or storages[1] in (_ANY_INPUT, None):
        return
    target.replace_all_uses_with(value, delete_user_cb=_after(writes, write))
    graph.erase_node(write)
