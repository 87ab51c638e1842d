"""All-to-all over heads (DeepSpeed-Ulysses, Jacobs et al. 2023): for the time of a call, every process holds some heads
of the whole sequence instead of all heads of a part of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

import saccade
from saccade import _operands
from saccade.masks import Mask
from saccade.scores import Score
from saccade.torch.distributed.agreement import Shape, agree, captured, shape_of
from saccade.torch.distributed.placement import Segments, all_segments, check_placement, rank_of

_Slices = list[tuple[int, int]]  # the first head and the number of heads of each process


def all_to_all_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    group: Any = None,
    placement: str = "contiguous",
    score: Callable[..., Any] | None = None,
    mask: Callable[..., Any] | None = None,
    weight: Callable[..., Any] | None = None,
    sink: float | torch.Tensor | None = None,
    layout: str | None = None,
    return_lse: bool = False,
    **options: Any,
) -> Any:
    """`saccade.attention` over a sequence of which every process of a group holds a part.

    Heads are redistributed before and after the call, so that every process computes some heads of the whole sequence:
    the results are those of one process, bit for bit, and the work is equal under any mask. All processes of the group
    make the call.

    Args:
        q, k, v: this process's part along the sequence, torch tensors in the given layout; cut by `shard`, or with
            placement="contiguous" of any length, also 0. The number of query heads is a multiple of the number of
            processes; that of KV heads is a multiple or a divisor of it.
        group: the process group; None is the default one.
        placement: the parts that a process holds, as in `shard`.
        score, mask, weight: as in `saccade.attention`, for the whole sequence and all heads.
        sink: a number, or a tensor with one for each of all query heads.
        options: causal, window, kv_len, cu_seqlens_q, cu_seqlens_k, scale and target of `saccade.attention`, for the
            whole sequence. The same on all processes.

    Returns:
        The output of this process's queries, and with return_lse the tuple (output, lse).

    Raises:
        TypeError, ValueError: as `saccade.attention`; ValueError also without a process group, for heads that cannot be
            distributed, and on all processes if they disagree, or if one of them refuses its arguments.
    """
    rank, ranks = rank_of(group, "all_to_all_attention")
    unknown = set(options) - {"causal", "window", "kv_len", "cu_seqlens_q", "cu_seqlens_k", "scale", "target"}
    if unknown:
        raise TypeError(f"all_to_all_attention has no argument {min(unknown)!r}")
    is_ragged = options.get("cu_seqlens_q") is not None
    layout = layout or ("shd" if is_ragged else "bhsd")

    has_grad = torch.is_grad_enabled()

    def prepare() -> tuple[None, Shape]:
        _operands.check_layout(layout, is_ragged)
        check_placement(placement)
        if "h" not in layout:
            raise ValueError(f"layout is {layout!r}, expected one with h: heads are distributed")
        if not isinstance(q, torch.Tensor):
            raise TypeError(f"q is a {type(q).__name__}, expected a torch tensor")
        values = {name: x.tolist() if isinstance(x, torch.Tensor) else x for name, x in options.items()}
        given = placement, layout, sorted(values.items()), sink is None, return_lse, score is None, mask is None
        read = [sink, *[x for function in (score, mask, weight) for x in captured(function) or ()]]
        shape = shape_of(q, k, v, layout, given, read, has_grad)
        if shape.heads % ranks or shape.kv_heads % ranks and ranks % shape.kv_heads:
            raise ValueError(
                f"q has {shape.heads} heads and k {shape.kv_heads}, expected multiples of the {ranks} processes, or a "
                "divisor for k: every process computes the same number of heads; ring_attention takes any number")
        return None, shape

    _, shapes = agree(group, q, prepare)
    q_parts = all_segments("q", [shape.queries for shape in shapes], placement)
    k_parts = all_segments("k", [shape.keys for shape in shapes], placement)
    heads, kv_heads = shapes[rank].heads, shapes[rank].kv_heads
    count, kv_count = heads // ranks, max(kv_heads // ranks, 1)
    of_q = [(r * count, count) for r in range(ranks)]
    of_k = [(r * kv_heads // ranks, kv_count) for r in range(ranks)]
    mine, keys, values = _to_heads([q, k, v], [of_q, of_k, of_k], [q_parts, k_parts, k_parts], layout, rank, group)
    if isinstance(sink, torch.Tensor):
        sink = sink[rank * count : (rank + 1) * count]
    functions = {"score": score, "mask": mask, "weight": weight}
    first = rank * count
    result = saccade.attention(mine, keys, values, sink=sink, layout=layout, return_lse=return_lse, **options,
                               **{role: _of_all_heads(role, x, first) for role, x in functions.items()})
    rows = "".join(dim for dim in "bhs" if dim in layout)
    given = dict(zip((layout, rows), result if return_lse else (result,)))
    found = _to_sequence(list(given.values()), list(given), of_q, q_parts, rank, group)
    return tuple(found) if return_lse else found[0]


def _of_all_heads(role: str, function: Any, first: int) -> Any:
    """A function that gets the index among all heads. All processes have one kernel: captured numbers are operands."""
    if function is None:
        return None
    inner = function.function if isinstance(function, (Score, Mask)) else function
    if role == "mask":
        return lambda b, h, i, j: inner(b, h + first, i, j)
    return lambda x, b, h, i, j: inner(x, b, h + first, i, j)


def _to_heads(arrays: list[torch.Tensor], slices: list[_Slices], parts: list[list[Segments]], layout: str, rank: int,
              group: Any) -> list[torch.Tensor]:
    """This process's heads of whole sequences, given all heads of its parts."""
    h, s = layout.index("h"), layout.index("s")
    sent = [[x.narrow(h, first, count) for first, count in each] for x, each in zip(arrays, slices)]
    shapes = [[_shape(x.shape, {h: own[rank][1], s: sum(n for _, n in part)}) for part in each]
              for x, own, each in zip(arrays, slices, parts)]
    return [_in_order(received, each, s) for received, each in zip(_all_to_all(sent, shapes, group), parts)]


def _in_order(received: list[torch.Tensor], parts: list[Segments], axis: int) -> torch.Tensor:
    """The whole sequence, given what every process holds of it."""
    pieces = [(first, each.narrow(axis, at, count)) for each, part in zip(received, parts)
              for (first, count), at in zip(part, _starts(part)) if count]
    ordered = [piece for _, piece in sorted(pieces, key=lambda piece: piece[0])]
    return torch.cat(ordered, axis) if ordered else received[0]


def _to_sequence(arrays: list[torch.Tensor], layouts: list[str], slices: _Slices, parts: list[Segments], rank: int,
                 group: Any) -> list[torch.Tensor]:
    """All heads of this process's part, given its heads of the whole sequence."""
    own = sum(n for _, n in parts[rank])
    sent, shapes = [], []
    for x, layout in zip(arrays, layouts):
        h, s = layout.index("h"), layout.index("s")
        sent.append([torch.cat([x.narrow(s, first, count) for first, count in part], s) for part in parts])
        shapes.append([_shape(x.shape, {h: count, s: own}) for _, count in slices])
    received = _all_to_all(sent, shapes, group)
    return [torch.cat(each, layout.index("h")) for each, layout in zip(received, layouts)]


def _all_to_all(sent: list[list[torch.Tensor]], shapes: list[list[list[int]]], group: Any) -> list[list[torch.Tensor]]:
    """Sends the r-th tensor of each list to process r, and returns those received, of the given shapes. The gradients
    of all lists travel back in one step, so all processes send them in one order."""
    ranks = len(sent[0])
    flat = _AllToAll.apply(shapes, group, *[x for each in sent for x in each])
    return [list(flat[at : at + ranks]) for at in range(0, len(flat), ranks)]


class _AllToAll(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, shapes: list[list[list[int]]], group: Any, *sent: torch.Tensor) -> Any:
        ranks = len(shapes[0])
        lists = [list(sent[at : at + ranks]) for at in range(0, len(sent), ranks)]
        ctx.shapes, ctx.group = [[list(x.shape) for x in each] for each in lists], group
        return tuple([x for each, received in zip(lists, shapes) for x in _exchange(each, received, group)])

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        results: list[Any] = []
        ranks = len(ctx.shapes[0])
        for at, shapes in enumerate(ctx.shapes):
            # All tensors of a list are parts of one.
            if ctx.needs_input_grad[2 + at * ranks]:
                results += _exchange(list(gradients[at * ranks : (at + 1) * ranks]), shapes, ctx.group)
            else:
                results += [None] * ranks
        return (None, None, *results)


def _exchange(sent: list[torch.Tensor], shapes: list[list[int]], group: Any) -> list[torch.Tensor]:
    """As bytes, since not all backends have all element types."""
    flat = torch.cat([x.reshape(-1) for x in sent]).view(torch.uint8)
    size = sent[0].element_size()
    counts = [size * torch.Size(shape).numel() for shape in shapes]
    received = flat.new_empty(sum(counts))
    dist.all_to_all_single(received, flat, counts, [size * x.numel() for x in sent], group=group)
    return [each.view(sent[0].dtype).reshape(shape) for each, shape in zip(received.split(counts), shapes)]


def _shape(shape: Any, changed: dict[int, int]) -> list[int]:
    return [changed.get(axis, extent) for axis, extent in enumerate(shape)]


def _starts(part: Segments) -> list[int]:
    """Where each segment begins among those of its process."""
    return list(itertools.accumulate([count for _, count in part], initial=0))
