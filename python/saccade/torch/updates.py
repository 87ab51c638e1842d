"""Operators that write to their operands, in graphs that PyTorch made functional."""

from __future__ import annotations

from typing import Any

import torch


def is_update(node: Any) -> bool:
    """Whether a node calls an operator that writes to its operands, with results in place of the writes."""
    return node.target is torch.ops.higher_order.auto_functionalized_v2


def read_update(node: Any) -> tuple[Any, dict[str, Any], list[int]]:
    """The call in a node of `is_update`.

    Returns:
        The operator; its arguments by name; and for each tensor that it writes to, in the order of its arguments, the
        number of the result of the node that has the new elements.

    Raises:
        ValueError: an operand that is written to is a view, or the same tensor as another one.
    """
    operator: Any = node.args[0]
    given = dict(node.kwargs)
    bases = given.pop("_all_bases")
    first = max(1, len(operator._schema.returns))
    arguments: dict[str, Any] = {}
    places: list[int] = []
    for argument in operator._schema.arguments:
        name = argument.name
        if name in given:
            arguments[name] = given[name]
            continue
        count = given.get(f"_{name}_length")
        prefixes = [f"_{name}"] if count is None else [f"_{name}_{i}" for i in range(count)]
        numbers = []
        for prefix in prefixes:
            if any(f"{prefix}_{how}" in given for how in ("size", "slice_dim")):
                raise ValueError(f"it writes to a view ('{name}'), expected a tensor that is no view")
            numbers.append(given[f"{prefix}_base_index"])
        places += [first + number for number in numbers]
        tensors = [bases[number] for number in numbers]
        arguments[name] = tensors[0] if count is None else tensors
    if len(set(places)) != len(places):
        raise ValueError("it writes to the same tensor twice, expected different tensors")
    return operator, arguments, places
