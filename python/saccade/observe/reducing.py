"""Means over the processes of torch.distributed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy
import torch
from torch import distributed

from saccade import errors
from saccade.observe.measures import Measured


def reduce(step: int, measured: Sequence[Measured], group: Any) -> None:
    """Replaces the numbers of all processes by their means, and `max` by the maximum. Every process gets the first NaN
    or Inf of any. Processes with other layers, as in pipelines, keep their own, with a warning."""
    if not distributed.is_available() or not distributed.is_initialized() or distributed.get_world_size(group) == 1:
        return
    shapes = [(each.layer.name, each.layer.call, each.layer.heads, {name: x.shape for name, x in each.grids.items()})
              for each in measured]
    world = distributed.get_world_size(group)
    others: list[Any] = [None] * world
    distributed.all_gather_object(others, ((step, shapes), [each.finding for each in measured]), group=group)
    if any(other[0] != (step, shapes) for other in others):
        errors.warn("saccade.observe: the processes of the group have other layers or shapes, expected equal ones: "
                    "each keeps its own statistics")
        return
    for index, each in enumerate(measured):
        each.finding = next((finding[index] for _, finding in others if finding[index] is not None), None)
    largest = [each.numbers["max"] for each in measured]
    means = [x for each in measured for name, x in sorted(each.numbers.items()) if name != "max"]
    means += [each.size for each in measured]
    means += [x for each in measured for name, x in sorted(each.grids.items())]
    _all_reduce(largest, distributed.ReduceOp.MAX, 1, group)
    _all_reduce(means, distributed.ReduceOp.SUM, world, group)


def _all_reduce(arrays: list[Any], operation: Any, divisor: int, group: Any) -> None:
    """Reduces arrays in place, in one transfer."""
    is_on_gpu = distributed.get_backend(group) == "nccl"
    joined = torch.from_numpy(numpy.concatenate([x.ravel().astype(numpy.float64) for x in arrays]))
    joined = joined.cuda() if is_on_gpu else joined
    distributed.all_reduce(joined, operation, group=group)
    numbers, first = joined.cpu().numpy() / divisor, 0
    for x in arrays:
        x[...] = numbers[first : first + x.size].reshape(x.shape)
        first += x.size
