"""Which parts of a sequence each process holds."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

PLACEMENTS = ("contiguous", "zigzag")
Segments = list[tuple[int, int]]
"""The parts of a sequence that one process holds, one after another: first position and length."""


def shard(x: torch.Tensor, dim: int, *, group: Any = None, placement: str = "contiguous") -> torch.Tensor:
    """This process's part of a whole sequence along `dim`, as a copy.

    Args:
        placement: "contiguous" gives process r of W the r-th of W parts of (almost) equal length. "zigzag" gives it
            parts r and 2W - 1 - r of 2W: an early and a late one. Under a causal mask, where a query at position p
            attends to p + 1 keys, all processes then have equal work.
    """
    rank, ranks = rank_of(group, "shard")
    parts = [x.narrow(dim, first, count) for first, count in segments(x.shape[dim], ranks, rank, placement)]
    return torch.cat(parts, dim)


def positions(length: int, *, group: Any = None, placement: str = "contiguous") -> torch.Tensor:
    """The positions of this process's part of a sequence of `length` elements, as `shard` cuts it: int64, on the CPU.
    """
    rank, ranks = rank_of(group, "positions")
    parts = [torch.arange(first, first + count) for first, count in segments(length, ranks, rank, placement)]
    return torch.cat(parts)


def segments(length: int, ranks: int, rank: int, placement: str) -> Segments:
    """The parts of process `rank`; their number is the same for all processes."""
    check_placement(placement)
    count = ranks if placement == "contiguous" else 2 * ranks
    ends = [length * i // count for i in range(count + 1)]
    chosen = [rank] if placement == "contiguous" else [rank, 2 * ranks - 1 - rank]
    return [(ends[i], ends[i + 1] - ends[i]) for i in chosen]


def all_segments(name: str, lengths: list[int], placement: str) -> list[Segments]:
    """The parts of every process, given the lengths that they hold. Contiguous parts may have any lengths; those of a
    zigzag follow from the sum. Raises ValueError for others."""
    check_placement(placement)
    total, ranks = sum(lengths), len(lengths)
    if placement == "contiguous":
        return [[(sum(lengths[:rank]), lengths[rank])] for rank in range(ranks)]
    parts = [segments(total, ranks, rank, placement) for rank in range(ranks)]
    expected = [sum(count for _, count in part) for part in parts]
    for rank in range(ranks):
        if lengths[rank] != expected[rank]:
            raise ValueError(f"{name} has length {lengths[rank]} on rank {rank}, expected {expected[rank]}: its part "
                             f'of {total} with placement="zigzag", as saccade.torch.distributed.shard cuts it')
    return parts


def check_placement(placement: Any) -> None:
    if placement not in PLACEMENTS:
        raise ValueError(f"placement is {placement!r:.80}, expected one of {', '.join(map(repr, PLACEMENTS))}")


def rank_of(group: Any, function: str) -> tuple[int, int]:
    """This process's rank in the group and the number of processes. Raises ValueError without a process group, as
    torch.distributed does."""
    if not dist.is_available() or not dist.is_initialized():
        raise ValueError(f"saccade.torch.distributed.{function} is called without a process group: call "
                         "torch.distributed.init_process_group first")
    rank = dist.get_rank(group)
    if rank < 0:
        raise ValueError(f"saccade.torch.distributed.{function} is called by a process that is not in the group")
    return rank, dist.get_world_size(group)
