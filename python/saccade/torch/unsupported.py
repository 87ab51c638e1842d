"""What a message says about operators that the compiler does not support: where they are, how many, what to do."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Node

from saccade.errors import CompileError
from saccade.torch.errors import ExportError
from saccade.torch.graph_report import module_name, place
from saccade.torch.operators import is_known

PARTITION = 'torch.compile(MODULE, backend="saccade", options={"whole_graph": True, "partition": True})'

_SHOWN = 8
"""The number of operators that a message lists."""


def reasons(error: Exception, names: Iterable[str]) -> dict[str, str]:
    """The nodes with these names that an error quotes, with the message about each."""
    texts = [each.message for each in error.diagnostics] if isinstance(error, CompileError) else []
    known = set(names)
    return {name: text for text in texts or [str(error)] for name in re.findall(r"'([^' ]+)'", text)[:2]
            if name in known}  # fmt: skip


def explaining(graph: torch.fx.Graph, work: Callable[[], Any], advice: str) -> Any:
    """The result of `work`, which compiles a graph. To an error about operators it adds their number, their modules and
    lines, and `advice`."""
    try:
        return work()
    except (CompileError, ExportError) as error:
        nodes = [node for node in graph.nodes if node.op == "call_function"]
        quoted = reasons(error, [node.name for node in nodes])
        listed = _listed([node for node in nodes if node.name in quoted or not is_known(node.target)])
        if not listed:
            raise
        text = f"{error}\nnot supported: {listed}; {advice}"
        more = CompileError(text, error.diagnostics) if isinstance(error, CompileError) else ExportError(text)
        raise more.with_traceback(error.__traceback__) from None


def _listed(nodes: list[Node]) -> str:
    """Operators with their number and the place of the first node of each."""
    kinds: dict[str, list[Node]] = {}
    for node in nodes:
        kinds.setdefault(str(node.target).removesuffix(".default"), []).append(node)
    parts = []
    for name, found in kinds.items():
        modules = list(found[0].meta.get("nn_module_stack", {}).values())
        where = [x for x in (module_name(modules), place(found[0])) if x]
        first = f"{'the first in' if len(found) > 1 else 'in'} {', '.join(where)}" if where else ""
        count = f"{len(found)} nodes" if len(found) > 1 else ""
        parts.append(f"{name} ({', '.join(x for x in (count, first) if x)})" if count or first else name)
    rest = len(parts) - _SHOWN
    return "; ".join(parts[:_SHOWN]) + (f"; and {rest} others" if rest > 0 else "")
