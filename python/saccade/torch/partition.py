"""Divides a graph of aten operators into parts that Saccade compiles and operators that PyTorch runs."""

from __future__ import annotations

import copy
import operator
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase
from torch.fx.passes.utils.fuser_utils import fuse_by_partitions

from saccade.errors import CompileError
from saccade.torch.errors import ExportError
from saccade.torch.operators import is_known
from saccade.torch.program import ELEMENTS
from saccade.torch.unsupported import reasons

_VIEWS = frozenset("""
    _conj _unsafe_view alias as_strided detach diagonal expand expand_as lift_fresh_copy narrow permute reshape select
    slice split split_with_sizes squeeze t transpose unbind unsqueeze view view_as view_as_complex view_as_real
""".split())
"""Operators that compute nothing."""

_SMALLEST = 2
"""The number of operators that compute something, from which on a part is worth a call."""


def divide(graph: GraphModule, compile_part: Callable[[GraphModule], Any]) -> tuple[GraphModule, Plan]:
    """A graph whose parts are compiled programs.

    Args:
        graph: a graph of aten operators without effects, whose nodes have their values (`meta["val"]`).
        compile_part: compiles a graph that returns a tuple of tensors; the result has a method `run`. Raises
            CompileError, ExportError or NotImplementedError; nodes that the message quotes by name are left to PyTorch,
            or else the whole part is.

    Source: the method is the partitioner of torch.fx, "capability based".
    """
    refused: dict[str, str] = {}  # reasons by names of nodes
    compiled: dict[tuple[str, ...], Any] = {}  # by the names of nodes
    while True:
        divided = GraphModule(graph, copy.deepcopy(graph.graph))  # shares the tensors that are attributes
        partitions = CapabilityBasedPartitioner(divided, _Support(refused), allows_single_node_partition=True)
        parts = [part for part in partitions.propose_partitions() if _is_worthwhile(part.nodes)]
        names = [tuple(node.name for node in part.nodes) for part in parts]
        fused = fuse_by_partitions(divided, [dict.fromkeys(part.nodes) for part in parts], always_return_tuple=True)
        ordered = _in_order(fused, [node.name for node in graph.graph.nodes if is_random(node.target)])
        if ordered is None:  # a part would have to run both before and after a random operator
            return graph, Plan(graph, [], [], refused)
        fused = ordered
        modules = [getattr(fused, f"fused_{number}") for number in range(len(parts))]
        failed = False
        for nodes, module in zip(names, modules):
            if nodes in compiled:
                continue
            try:
                compiled[nodes] = compile_part(module)
            except (CompileError, ExportError, NotImplementedError) as error:
                refused |= reasons(error, nodes) or dict.fromkeys(nodes, str(error))
                failed = True
        if failed:
            continue
        for number, nodes in enumerate(names):
            fused.delete_submodule(f"fused_{number}")
            fused.add_submodule(f"fused_{number}", _Part(compiled[nodes].run))
        fused.recompile()
        return fused, Plan(fused, [len(nodes) for nodes in names], [compiled[nodes] for nodes in names], refused)


class Plan:
    """What of a graph is compiled, and what PyTorch runs."""

    def __init__(self, graph: GraphModule, parts: list[int], programs: list[Any], reasons: Mapping[str, str]):
        self.parts = parts
        """The number of nodes of each part that is compiled."""
        self.programs = programs
        """What each part was compiled to."""
        self.rest: list[tuple[Node, str]] = [
            (node, reasons.get(node.name, "")) for node in graph.graph.nodes
            if isinstance(node.target, torch._ops.OpOverload) and not _is_size(node)]  # fmt: skip
        """The operators that PyTorch runs, with the reason if the compiler gave one."""

    def __str__(self) -> str:
        counts = Counter(str(node.target).removesuffix(".default") for node, _ in self.rest)
        listed = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in counts.most_common())
        compiled = f"{sum(self.parts)} nodes in {len(self.parts)} {'part' if len(self.parts) == 1 else 'parts'}"
        return f"{compiled} compiled by Saccade; run by PyTorch: {listed or 'none'}"


def is_random(op: Any) -> bool:
    """Whether an operator draws random numbers of a generator. Attention has the tag for its dropout."""
    return (isinstance(op, torch._ops.OpOverload) and torch.Tag.nondeterministic_seeded in op.tags
            and "attention" not in op._schema.name)  # fmt: skip


def _in_order(graph: GraphModule, random: list[str]) -> GraphModule | None:
    """The graph with its random operators in the given order, which decides what numbers they draw; None if there is no
    such order."""
    if len(random) < 2:
        return graph
    waiting, placed, order = list(graph.graph.nodes), set[Node](), list[Node]()
    pending = [name for name in random if any(node.name == name for node in waiting)]
    while waiting:
        node = next((node for node in waiting if placed.issuperset(node.all_input_nodes)
                     and (node.name not in pending or node.name == pending[0])), None)  # fmt: skip
        if node is None:
            return None
        if node.name in pending:
            pending.pop(0)
        waiting.remove(node)
        placed.add(node)
        order.append(node)
    if order == list(graph.graph.nodes):
        return graph
    sorted_, copies = torch.fx.Graph(), dict[Node, Node]()
    for node in order:
        copies[node] = sorted_.node_copy(node, lambda x: copies[x])
    return GraphModule(graph, sorted_)


class _Support(OperatorSupportBase):  # type: ignore[misc]
    def __init__(self, refused: Mapping[str, str]):
        self.refused = refused

    def is_node_supported(self, submodules: Mapping[str, Any], node: Node) -> bool:
        if node.op != "call_function" or node.name in self.refused:
            return False
        if node.target is operator.getitem:  # in the part of its operand
            return isinstance(node.args[0], Node) and self.is_node_supported(submodules, node.args[0])
        if not isinstance(node.target, torch._ops.OpOverload) or not is_known(node.target):
            return False
        return not _is_size(node) and all(map(_has_tensors, (node, *node.all_input_nodes)))


class _Part(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, call: Callable[..., Any]):
        super().__init__()
        self.call = call

    def forward(self, *arguments: Any) -> Any:
        return self.call(*arguments)


def _is_size(node: Node) -> bool:
    return isinstance(node.meta.get("val"), (int, float, torch.SymInt, torch.SymFloat, torch.SymBool))


def _has_tensors(node: Node) -> bool:
    """Whether a node's values are sizes, or dense tensors of types that programs have."""
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return all(x is None or isinstance(x, (int, torch.SymInt)) or isinstance(x, torch.Tensor) and x.dtype in ELEMENTS
               and x.layout == torch.strided and not x.is_nested and x.device.type == "cpu"
               for x in values)  # fmt: skip


def _is_worthwhile(nodes: Any) -> bool:
    computing = [node for node in nodes if isinstance(node.target, torch._ops.OpOverload)
                 and node.target._schema.name.partition("::")[2] not in _VIEWS]  # fmt: skip
    return len(computing) >= _SMALLEST
