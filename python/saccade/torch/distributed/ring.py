"""Ring attention (Liu et al. 2023): keys and values travel around the processes, and every process merges the parts.

Every part is computed and merged by one compiled program (`_program.Spec.is_part`): exactly, by log-sum-exp, in the
precision of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from saccade import _operands
from saccade.torch.distributed.agreement import Shape, agree, shape_of
from saccade.torch.distributed.part import Part, State
from saccade.torch.distributed.placement import Segments, all_segments, check_placement, rank_of
from saccade.torch.distributed.reach import Limits, Reach, limits_of


def ring_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    group: Any = None,
    placement: str = "contiguous",
    score: Callable[..., Any] | None = None,
    mask: Callable[..., Any] | None = None,
    scale: float | None = None,
    causal: str | int | None = None,
    window: int | tuple[int | None, int | None] | None = None,
    kv_len: int | torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cu_seqlens_k: torch.Tensor | None = None,
    sink: float | torch.Tensor | None = None,
    return_lse: bool = False,
    layout: str | None = None,
) -> Any:
    """`saccade.attention` over a sequence of which every process of a group holds a part.

    Keys and values are sent to the next process and received from the previous one while a process computes, W - 1
    times for W processes; no process ever holds more than two parts of them. All processes of the group make the call.

    Args:
        q, k, v: this process's part along the sequence, torch tensors in the given layout; cut by `shard`, or with
            placement="contiguous" of any length, also 0.
        group: the process group; None is the default one.
        placement: the parts that a process holds, as in `shard`. Use "zigzag" with a causal mask, so that all processes
            have equal work; with "contiguous", the last process has 2W - 1 times the work of the first.
        score, mask, scale, causal, window, kv_len, sink, return_lse, layout: as in `saccade.attention`, for the whole
            sequence: positions i and j, lengths and alignments count from its beginning. The same on all processes.
        cu_seqlens_q, cu_seqlens_k: the offsets of all sequences of a ragged batch that is stored along s; the
            processes hold parts of this storage, which may begin and end within a sequence. In functions b, i and j
            count as in `saccade.attention`.

    Returns:
        The output of this process's queries, and with return_lse the tuple (output, lse).

    Raises:
        TypeError, ValueError: as `saccade.attention`; ValueError also without a process group, and on all processes if
            they disagree, or if one of them refuses its arguments.

    Example:
        >>> q, k, v = (shard(x, 2, placement="zigzag") for x in (q, k, v))
        >>> out = ring_attention(q, k, v, causal="top_left", placement="zigzag")
    """
    rank, ranks = rank_of(group, "ring_attention")
    is_ragged = cu_seqlens_q is not None or cu_seqlens_k is not None
    layout = layout or ("shd" if is_ragged else "bhsd")

    def prepare() -> tuple[Any, Shape]:
        _operands.check_layout(layout, is_ragged)
        check_placement(placement)
        if not isinstance(q, torch.Tensor):
            raise TypeError(f"q is a {type(q).__name__}, expected a torch tensor")
        if is_ragged:
            _operands.check_cu_seqlens(cu_seqlens_q, cu_seqlens_k, q)
        lengths = None if kv_len is None else _operands.check_length(kv_len, q)
        sinks = None if sink is None else _operands.check_sink(sink, q)[1]
        reach = Reach(causal, window, lengths, cu_seqlens_q, cu_seqlens_k)
        options = placement, layout, scale, reach.options(), sink is None, return_lse, score is None, mask is None
        return (reach, sinks), shape_of(q, k, v, layout, options)

    (reach, sinks), shapes = agree(group, q, prepare)
    q_parts = all_segments("q", [shape.queries for shape in shapes], placement)
    k_parts = all_segments("k", [shape.keys for shape in shapes], placement)
    queries, keys = (sum(count for part in parts for _, count in part) for parts in (q_parts, k_parts))
    limits = limits_of(reach, score, mask, queries, keys)
    part = Part(q, v, layout, scale, limits)
    states = [part.empty(q, shapes[rank].head_dim_v, count, sinks) for _, count in q_parts[rank]]

    block = [k, v]
    for step in range(ranks):
        owner = (rank - step) % ranks
        arriving, works = [], []
        if step < ranks - 1:  # the previous process has the keys of the process before `owner` now
            block = [x.contiguous() for x in block]  # kept until they have been sent
            count = shapes[(owner - 1) % ranks].keys
            arriving = [x.new_empty([*x.shape[: part.axis], count, *x.shape[part.axis + 1 :]]) for x in block]
            works = _exchange(block, arriving, group, rank, ranks)
        _attend(limits, states, q, q_parts[rank], block, k_parts[owner], part.axis)
        for work in works:
            work.wait()
        block = arriving
    out = torch.cat([state.out for state in states], part.axis).to(q.dtype)
    return (out, torch.cat([state.lse for state in states], -1)) if return_lse else out


def _exchange(sent: list[torch.Tensor], arriving: list[torch.Tensor], group: Any, rank: int, ranks: int) -> list[Any]:
    """Begins to send tensors to the next process and to receive others from the previous one."""
    following, previous = (dist.get_global_rank(group or dist.group.WORLD, (rank + d) % ranks) for d in (1, -1))
    transfers = [dist.P2POp(dist.isend, x, following, group) for x in sent if x.numel()]
    transfers += [dist.P2POp(dist.irecv, x, previous, group) for x in arriving if x.numel()]
    return list(dist.batch_isend_irecv(transfers)) if transfers else []


def _attend(limits: Limits, states: list[State], q: torch.Tensor, q_part: Segments, block: list[torch.Tensor],
            k_part: Segments, axis: int) -> None:
    """Merges the attention of all queries of this process to a block of keys into their states."""
    q_at = 0
    for i, (first_query, queries) in enumerate(q_part):
        k_at = 0
        for first_key, keys in k_part:
            if queries and keys and limits.may_attend(first_query, queries, first_key, keys):
                k, v = (x.narrow(axis, k_at, keys) for x in block)
                states[i].add(q.narrow(axis, q_at, queries), k, v, first_query, first_key)
            k_at += keys
        q_at += queries
