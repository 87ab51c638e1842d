"""What a graph of `torch.compile(backend="saccade")` adds to reports (`saccade.served`)."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Node

from saccade import _served
from saccade._places import is_inner_file

_NAMES = dict.fromkeys(("softmax", "sigmoid"), "attention written by hand")


def calls_of(replaced: Sequence[Node], kept: Sequence[tuple[Node, Exception]]) -> Counter[_served.Call]:
    """The calls of attention in each call of a graph."""
    found: Counter[_served.Call] = Counter()
    for node in replaced:
        found[_call(node, str(node.meta.get("saccade_function", "attention written by hand")), None)] += 1
    for node, reason in kept:
        name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
        found[_call(node, _NAMES.get(name, name), str(reason))] += 1
    return found


def reporting(compiled: Callable[..., Any], calls: Counter[_served.Call]) -> Callable[..., Any]:
    """The compiled graph, which adds its calls to the reports of the thread."""
    if not calls:
        return compiled

    @functools.wraps(compiled, updated=())
    def call(*arguments: Any) -> Any:
        if _served.is_on:
            for report in _served.reports():
                for each, count in calls.items():
                    report.add(each, count)
        return compiled(*arguments)

    if getattr(compiled, "_boxed_call", False):  # takes the list of its arguments
        call._boxed_call = True  # type: ignore[attr-defined]
    return call


def _call(node: Node, function: str, reason: str | None) -> _served.Call:
    modules = list(node.meta.get("nn_module_stack", {}).values())
    tensors = node.args[0] if node.args and isinstance(node.args[0], (list, tuple)) else node.args
    examples = [x.meta.get("example_value", x.meta.get("val")) for x in tensors[:3] if isinstance(x, Node)]
    operands = [x for x in examples if isinstance(x, torch.Tensor)]
    return _served.Call(function, module_name(modules), place(node), _served.operands_text(operands), reason)


def module_name(modules: Sequence[Any]) -> str:
    """The qualified name of the innermost module, as Dynamo's source "L['self'].layers[0].attention" gives it; the
    class of the outermost one."""
    if not modules:
        return ""
    source, kind = modules[-1]
    path = re.sub(r"\['?(\w+)'?\]", r".\1", re.sub(r"^L\['\w+'\]", "", source)).replace("._modules.", ".").strip(".")
    path = re.sub(r"\._modules\b", "", path)
    return path or (kind if isinstance(kind, str) else kind.__name__).rpartition(".")[2]


def place(node: Node) -> str:
    """The innermost line of the user's code of a node's stack."""
    lines = re.findall(r'File "(.*?)", line (\d+)', node.meta.get("stack_trace") or "")
    for file, line in reversed(lines):
        if not is_inner_file(file):
            return f"{file}:{line}"
    return ""
