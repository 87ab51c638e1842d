"""Sorts the nodes of a graph topologically."""

from __future__ import annotations

from typing import Any

from saccade._text import Scope
from saccade.onnx.errors import ModelError

_CODES = {"MatMulNBits": (1, 3), "GatherBlockQuantized": (0, 3)}
"""The inputs of an operator of com.microsoft that are codes or zero points."""


def describe(node: Any) -> str:
    """The node's name and operator for diagnostics."""
    return f"node '{node.name}' ({node.op_type})" if node.name else f"a node {node.op_type}"


def reads(node: Any) -> set[str]:
    """The names that a node reads, including those that its subgraphs read from the enclosing graph."""
    names = {each for each in node.input if each}
    for attribute in node.attribute:
        if attribute.type != 5:
            continue
        graph = attribute.g
        own = {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}
        for inner in graph.node:
            own.update(inner.output)
        for inner in graph.node:
            names |= reads(inner) - own
        names |= {value.name for value in graph.output} - own
    return names


def sort_nodes(nodes: Any, scope: Scope, file: str) -> list[Any]:
    """The nodes in a topological order, unchanged if they are sorted already. `file` is the model's name in
    diagnostics. Raises ModelError for an output name that is defined twice, and for cycles."""
    producers: dict[str, int] = {}
    for i, node in enumerate(nodes):
        for name in node.output:
            if name and (name in producers or name in scope.values):
                raise ModelError(f"{file}: {describe(node)}: the output '{name}' is there already")
            if name:
                producers[name] = i
    waits = [{producers[name] for name in reads(node) if name in producers} for node in nodes]
    order, done = [], [False] * len(nodes)
    for start in range(len(nodes)):
        stack = [(start, iter(sorted(waits[start])))] if not done[start] else []
        active = {start}
        while stack:
            i, rest = stack[-1]
            following = next((j for j in rest if not done[j]), None)
            if following is None:
                stack.pop()
                active.discard(i)
                if not done[i]:
                    done[i] = True
                    order.append(nodes[i])
            elif following in active:
                raise ModelError(f"{file}: {describe(nodes[following])}: "
                                 "it reads what is made of its own output")
            else:
                active.add(following)
                stack.append((following, iter(sorted(waits[following]))))
    return order


def codes_of(graph: Any) -> set[str]:
    """The weights of `graph` that only nodes with quantized weights read, as their codes or zero points. These bytes
    have no sign, in contrast to other numbers of uint8, which are not supported."""
    codes: set[str] = set()
    others = {value.name for value in graph.output}

    def visit(nodes: Any) -> None:
        for node in nodes:
            places = _CODES.get(node.op_type, ()) if node.domain == "com.microsoft" else ()
            for i, name in enumerate(node.input):
                (codes if i in places else others).add(name)
            for attribute in node.attribute:
                for inner in (attribute.g, *attribute.graphs):
                    visit(inner.node)
                    others.update(value.name for value in inner.output)

    visit(graph.node)
    return codes - others
