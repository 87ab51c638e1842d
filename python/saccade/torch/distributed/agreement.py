"""Checks that all processes make the same call, before they exchange anything else."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from saccade import _operands
from saccade.masks import Mask
from saccade.regions import fingerprint
from saccade.scores import Score

_Prepared = TypeVar("_Prepared")
_DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class Shape:
    """The extents of one process's arrays."""

    is_valid: int  # 0: the process refused its arguments
    dtype: int
    batch: int
    heads: int
    kv_heads: int
    head_dim: int
    head_dim_v: int
    queries: int
    keys: int
    options: int  # a hash
    gradients: int  # which tensors require gradients, a bit for each; 0 if none is recorded


_NAMES = {"dtype": "element type", "batch": "batch size", "heads": "head count of q", "kv_heads": "head count of k",
          "head_dim": "head size", "head_dim_v": "head size of v", "options": "options",
          "gradients": "tensors that require gradients"}  # fmt: skip


def agree(group: Any, q: Any, prepare: Callable[[], tuple[_Prepared, Shape]]) -> tuple[_Prepared, list[Shape]]:
    """What `prepare` returns, and the shapes of all processes.

    Raises what `prepare` raises, on the other processes a ValueError: no process waits for one that failed. Raises
    ValueError on all processes if the calls differ in anything but lengths.
    """
    failure: Exception | None = None
    try:
        with torch.no_grad():  # in which no check refuses a tensor that requires grad
            prepared, mine = prepare()
    except (TypeError, ValueError) as error:
        failure, mine = error, Shape(*[0] * len(dataclasses.fields(Shape)))
    device = q.device if isinstance(q, torch.Tensor) and dist.get_backend(group) == "nccl" else "cpu"
    row = torch.tensor(dataclasses.astuple(mine), dtype=torch.int64, device=device)
    rows = [torch.empty_like(row) for _ in range(dist.get_world_size(group))]
    dist.all_gather(rows, row, group=group)
    shapes = [Shape(*each.tolist()) for each in rows]
    if failure is not None:
        raise failure
    refused = [rank for rank, shape in enumerate(shapes) if not shape.is_valid]
    if refused:
        raise ValueError(f"rank {refused[0]} refused its arguments: its exception says why")
    for field, what in _NAMES.items():
        values = [getattr(shape, field) for shape in shapes]
        for rank, value in enumerate(values):
            if value != values[0]:
                said = [str(_DTYPES[each]) if field == "dtype" else each for each in (value, values[0])]
                is_list = field in ("options", "gradients")
                found = f"other {what}" if is_list else f"{what} {said[0]}"
                expected = "those" if is_list else f"{said[1]}, that"
                raise ValueError(f"rank {rank} has {found}, expected {expected} of rank 0")
    return prepared, shapes


def shape_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: str, options: Any, read: list[Any],
             has_grad: bool) -> Shape:
    """The shape of this process's arrays, which are checked against each other. `options` are equal for calls that may
    be made together, and have a repr. `read` are the other arguments whose gradients may be recorded,
    `has_grad` is whether any are."""
    _operands.check_kinds(q, k, v)
    _operands.check_shapes(q, k, v, layout)
    recorded = [isinstance(x, torch.Tensor) and x.requires_grad for x in (q, k, v, *read)]
    digest = hashlib.sha256(repr(options).encode()).digest()

    def extent(x: torch.Tensor, dim: str) -> int:
        return x.shape[layout.index(dim)] if dim in layout else 1

    return Shape(1, _DTYPES.index(q.dtype), extent(q, "b"), extent(q, "h"), extent(k, "h"), extent(q, "d"),
                 extent(v, "d"), extent(q, "s"), extent(k, "s"), int.from_bytes(digest[:7], "little"),
                 sum(1 << place for place, is_recorded in enumerate(recorded[:62])
                     if is_recorded and has_grad))


def captured(function: Any) -> list[torch.Tensor] | None:
    """The tensors that a score, mask or weight function reads; None if its variables are not known."""
    function = function.function if isinstance(function, (Score, Mask)) else function
    if function is None:
        return []
    found = fingerprint(function)
    return None if found is None else [x for x in found.tensors if isinstance(x, torch.Tensor)]
