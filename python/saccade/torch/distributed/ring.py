"""Ring attention (Liu et al. 2023): keys and values travel around the processes, and every process merges the parts.

Every part is computed and merged by one compiled program (`Form.is_part`): exactly, by log-sum-exp, in the
precision of scores.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from saccade import _operands
from saccade.torch.distributed.agreement import Shape, agree, captured, shape_of
from saccade.torch.distributed.part import Part, State
from saccade.torch.distributed.placement import all_segments, check_placement, rank_of
from saccade.torch.distributed.reach import Reach, limits_of
from saccade.torch.distributed.ring_gradient import Ring, differentiable
from saccade.torch.distributed.transfers import Neighbours


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
    times for W processes; no process ever holds more than two parts of them. All processes of the group make the call,
    and the backward pass, in which they travel once more with their gradients.

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
            they disagree, or if one of them refuses its arguments. TypeError for a score or mask that reads other
            objects than tensors, numbers and functions in a call with gradients.

    Example:
        >>> q, k, v = (shard(x, 2, placement="zigzag") for x in (q, k, v))
        >>> out = ring_attention(q, k, v, causal="top_left", placement="zigzag")
    """
    rank, ranks = rank_of(group, "ring_attention")
    is_ragged = cu_seqlens_q is not None or cu_seqlens_k is not None
    layout = layout or ("shd" if is_ragged else "bhsd")

    has_grad = torch.is_grad_enabled()

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
        read = [sinks, *(captured(score) or ()), *(captured(mask) or ())]
        return (reach, sinks), shape_of(q, k, v, layout, options, read, has_grad)

    (reach, sinks), shapes = agree(group, q, prepare)
    q_parts = all_segments("q", [shape.queries for shape in shapes], placement)
    k_parts = all_segments("k", [shape.keys for shape in shapes], placement)
    queries, keys = (sum(count for part in parts for _, count in part) for parts in (q_parts, k_parts))
    limits = limits_of(reach, score, mask, queries, keys)
    ring = Ring(Neighbours(group, rank, ranks), shapes, q_parts, k_parts, limits, layout, scale, sinks)
    if shapes[rank].gradients:
        out, lse = differentiable(ring, lambda: _compute(ring, q, k, v), q, k, v)
    else:
        out, lse, _ = _compute(ring, q, k, v)
    return (out, lse) if return_lse else out


def _compute(ring: Ring, q: torch.Tensor, k: torch.Tensor,
             v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The output, the log-sum-exp and its low part of this process's queries."""
    rank, ranks, shapes = ring.neighbours.rank, ring.neighbours.ranks, ring.shapes
    part = Part(q, v, ring.layout, ring.scale, ring.limits)
    parts = ring.q_parts[rank]
    states = {first: part.empty(q, shapes[rank].head_dim_v, count, ring.sink) for first, count in parts if count}
    empty = [] if states else [part.empty(q, shapes[rank].head_dim_v, 0, ring.sink)]
    block = [k, v]
    for step in range(ranks):
        owner = (rank - step) % ranks
        pending = None
        if step < ranks - 1:  # the previous process has the keys of the process before `owner` now
            block = [x.contiguous() for x in block]
            pending = ring.neighbours.start(block, shapes[(owner - 1) % ranks].keys, part.axis)
        for q_at, first_query, queries, k_at, first_key, keys in ring.pairs(owner):
            k_here, v_here = (x.narrow(part.axis, k_at, keys) for x in block)
            states[first_query].add(q.narrow(part.axis, q_at, queries), k_here, v_here, first_query, first_key)
        if pending is not None:
            block = pending.wait()
    merged: list[State] = [*states.values(), *empty]
    out, lse, lse_low = zip(*[state.parts for state in merged])
    return torch.cat(out, part.axis).to(q.dtype), torch.cat(lse, -1), torch.cat(lse_low, -1)
