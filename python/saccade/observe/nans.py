"""Finds the first NaN or Inf of a call of attention, and the operand that brought it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from saccade.observe.calls import Call, log_visible


@dataclass(frozen=True)
class Finding:
    """The first number of a call that is not finite."""

    kind: str
    """"nan" or "inf"."""
    operand: str
    """"query", "key", "value", "mask" or "score"."""
    head: int
    query: int | None
    key: int | None
    message: str


def find(call: Call) -> Finding | None:
    """What brought NaN or Inf to a call; None if its operands and its output are finite."""
    operands = {"query": call.query, "key": call.key, "value": call.value}
    bad = {name: place for name, x in operands.items() if (place := _first(~x.isfinite())) is not None}
    if bad:
        return _in_operand(call, operands, bad)
    if call.bias is not None and (place := _first(call.bias.isnan() | call.bias.isposinf())) is not None:
        _, head, query, key = (0,) * (4 - len(place)) + place
        number = call.bias[place]
        return Finding(_kind(number), "mask", head, query, key,
                       f"the mask has {number.item()} for query {query}, key {key}")
    place = _first(~call.output.isfinite())
    return None if place is None else _in_scores(call, place)


def _first(bad: torch.Tensor) -> tuple[int, ...] | None:
    """The index of the first true element."""
    if not bad.any():
        return None
    place = int(bad.flatten().to(torch.uint8).argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(place), bad.shape))


def _kind(number: torch.Tensor) -> str:
    return "nan" if number.isnan() else "inf"


def _in_operand(call: Call, operands: dict[str, torch.Tensor], bad: dict[str, tuple[int, ...]]) -> Finding:
    name, (batch, head, row, element) = next(iter(bad.items()))
    number = operands[name][batch, head, row, element]
    where = f"{name} has {number.item()} in batch {batch}, row {row}, element {element}"
    if len(bad) == 3:
        where += "; key and value have such numbers, too, so it came with the input of the layer"
    else:
        where += f"; it came with the projection of {name}" + "".join(f" and {other}" for other in list(bad)[1:])
    if name == "query":
        return Finding(_kind(number), name, head, row, None, where)
    head *= call.query.shape[1] // call.key.shape[1]
    reached = _first(~call.output[batch, head].isfinite())
    return Finding(_kind(number), name, head, None if reached is None else reached[0], row, where)


def _in_scores(call: Call, place: tuple[int, ...]) -> Finding:
    """The operands are finite, and the output is not."""
    batch, head, query, _ = place
    kind = _kind(call.output[place])
    row = call.query[batch, head, query].double()
    keys = call.key[batch, head * call.key.shape[1] // call.query.shape[1]]
    scale = float(call.options.get("scale", row.shape[0] ** -0.5))
    scores = keys.double() @ row * scale
    over = _first(scores.abs() > torch.finfo(call.query.dtype).max)
    if over is not None:
        return Finding(kind, "score", head, query, over[0],
                       f"the score of query {query} and key {over[0]} is {scores[over].item():.3g}, which "
                       f"{str(call.query.dtype).removeprefix('torch.')} cannot have: bound the queries and keys")
    count = log_visible(call).broadcast_to(call.query.shape[:3])[batch, head, query]
    if count.isneginf():
        return Finding(kind, "mask", head, query, None,
                       f"query {query} of batch {batch} sees no key: give it one, such as its own")
    largest = int(scores.argmax())
    return Finding(kind, "score", head, query, largest,
                   f"the output of query {query} is {call.output[place].item()}, its operands are finite; the largest "
                   f"q·k·scale is {scores[largest].item():.3g} of key {largest}")
