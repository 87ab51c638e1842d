"""The gradients of ring attention: keys, values and the gradients of both travel around the processes once more.

Every part of the attention is computed again by `saccade.attention`, whose output and log-sum-exp have gradients. The
output of the whole is a sum over parts, so their gradients follow from the output and log-sum-exp of the whole, which
are kept (`_of_part`). A process keeps its own queries, keys, values and outputs only.
"""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable
from typing import Any

import torch

import saccade
from saccade.masks import Mask
from saccade.torch.compiled_gradients import once
from saccade.torch.distributed.agreement import Shape, captured
from saccade.torch.distributed.placement import Segments
from saccade.torch.distributed.reach import Limits
from saccade.torch.distributed.transfers import Neighbours
from saccade.torch.gradients import lse_low_of


@dataclasses.dataclass(frozen=True)
class Ring:
    """What all steps of one call share."""

    neighbours: Neighbours
    shapes: list[Shape]  # of every process
    q_parts: list[Segments]
    k_parts: list[Segments]
    limits: Limits
    layout: str
    scale: float | None
    sink: Any  # what `_operands.check_sink` returns

    @property
    def axis(self) -> int:
        return self.layout.index("s")

    def pairs(self, owner: int) -> list[tuple[int, int, int, int, int, int]]:
        """The parts that may attend to each other, of this process's queries and the keys of process `owner`: for both
        where they begin in the process, in the whole sequence, and their length."""
        found = []
        q_at = 0
        for first_query, queries in self.q_parts[self.neighbours.rank]:
            k_at = 0
            for first_key, keys in self.k_parts[owner]:
                if queries and keys and self.limits.may_attend(first_query, queries, first_key, keys):
                    found.append((q_at, first_query, queries, k_at, first_key, keys))
                k_at += keys
            q_at += queries
        return found


def differentiable(ring: Ring, compute: Callable[[], tuple[torch.Tensor, torch.Tensor, torch.Tensor]],
                   q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The output and log-sum-exp of those and its low part that `compute` returns, with gradients."""
    read = _read_by(ring.limits.score) + _read_by(ring.limits.mask)
    sinks = [ring.sink] if isinstance(ring.sink, torch.Tensor) else []
    found: tuple[torch.Tensor, torch.Tensor] = _Ring.apply(ring, compute, len(sinks), q, k, v, *sinks, *read)
    return found


def _read_by(function: Callable[..., Any] | None) -> list[torch.Tensor]:
    """The tensors that a function reads. Raises TypeError for a function whose variables are not known."""
    found = captured(function)
    if found is None:
        raise TypeError(f"ring_attention has gradients with functions that read tensors, numbers and other functions, "
                        f"found {function!r:.80}, which reads other objects: call it in torch.no_grad()")
    return found


class _Ring(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, ring: Ring, compute: Any, sinks: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
                *others: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, lse, lse_low = compute()
        ctx.ring, ctx.sinks = ring, sinks
        # Reports tensors that were changed before the backward pass.
        ctx.save_for_backward(q, k, v, out, lse, lse_low, *others)
        return out, lse

    @staticmethod
    def backward(ctx: Any, out_gradient: torch.Tensor, lse_gradient: torch.Tensor) -> Any:
        given = out_gradient, lse_gradient, *ctx.saved_tensors
        return once("saccade.torch.distributed.ring_attention", lambda: _Ring.gradients(ctx, *given), *given)

    @staticmethod
    def gradients(ctx: Any, out_gradient: torch.Tensor, lse_gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor,
                  v: torch.Tensor, out: torch.Tensor, lse: torch.Tensor, lse_low: torch.Tensor,
                  *others: torch.Tensor) -> tuple[Any, ...]:
        """Those of the arguments of `forward`."""
        ring: Ring = ctx.ring
        whole = _Whole(lse, lse_low, out_gradient, lse_gradient, _row_sums(out_gradient, out, ring.layout))
        sink, read = others[: ctx.sinks], others[ctx.sinks :]
        needed = ctx.needs_input_grad[6 + ctx.sinks :]
        requested = [x for x, is_needed in zip(read, needed) if is_needed]
        q_sum, k_sum, v_sum, sums = _travel(ring, q, k, v, whole, requested)
        of_read = iter(sums)
        results = [_sink_gradient(x, whole, ring.layout) for x in sink] + [
            next(of_read).to(x.dtype) if is_needed else None for x, is_needed in zip(read, needed)]
        return (None, None, None, q_sum.to(q.dtype), k_sum.to(k.dtype), v_sum.to(v.dtype), *results)


@dataclasses.dataclass(frozen=True)
class _Whole:
    """The results over all keys, for this process's queries, and their gradients."""

    lse: torch.Tensor  # [.., queries]
    lse_low: torch.Tensor  # what its rounding took
    out_gradient: torch.Tensor
    lse_gradient: torch.Tensor
    row_sums: torch.Tensor  # of the products of the output and its gradient, [.., queries]

    def rows(self, at: int, count: int, axis: int) -> _Whole:
        """Those of some queries."""
        along = self.lse.ndim - 1
        lse, low, lse_gradient, row_sums = (
            x.narrow(along, at, count) for x in (self.lse, self.lse_low, self.lse_gradient, self.row_sums))
        return _Whole(lse, low, self.out_gradient.narrow(axis, at, count), lse_gradient, row_sums)


def _weight(part: torch.Tensor, part_low: torch.Tensor | float, whole: _Whole) -> torch.Tensor:
    """The share of a part in softmax, from its log-sum-exp and that of the whole; 0 for queries without keys. The one
    place that reads a log-sum-exp here."""
    return torch.where(whole.lse == -torch.inf, 0.0, torch.exp((part - whole.lse) + (part_low - whole.lse_low)))


def _of_part(out: torch.Tensor, lse: torch.Tensor, lse_low: torch.Tensor, whole: _Whole,
             layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The gradients of the output and log-sum-exp of a part.

    With w = exp(lse - L) the output of the whole is O = sum of w out over the parts, and L = log of the sum of
    exp(lse): dO/d(out) = w, dO/d(lse) = w (out - O), dL/d(lse) = w.
    """
    weight = _weight(lse, lse_low, whole)
    row_sums = _row_sums(whole.out_gradient, out, layout)
    return (_per_row(weight, layout) * whole.out_gradient).to(out.dtype), weight * (
        row_sums - whole.row_sums + whole.lse_gradient)


def _sink_gradient(sink: torch.Tensor, whole: _Whole, layout: str) -> torch.Tensor:
    """A sink is a part with the output 0, whose log-sum-exp is the sink of its head."""
    rows = [dim for dim in "bhs" if dim in layout]
    by_row = sink.to(whole.lse.dtype).reshape(-1, 1).expand(whole.lse.shape)
    gradient = _weight(by_row, 0.0, whole) * (whole.lse_gradient - whole.row_sums)
    return gradient.sum([axis for axis, dim in enumerate(rows) if dim != "h"]).reshape(sink.shape).to(sink.dtype)


def _row_sums(x: torch.Tensor, y: torch.Tensor, layout: str) -> torch.Tensor:
    """The sums of products over the head size, with the dimensions b, h, s of the layout in this order."""
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    order = [layout.index(dim) for dim in "bhs" if dim in layout]
    return (x.to(wide) * y.to(wide)).permute(*order, layout.index("d")).sum(-1)


def _per_row(x: torch.Tensor, layout: str) -> torch.Tensor:
    """Numbers of rows as an array with the dimensions of the layout."""
    rows = [dim for dim in "bhs" if dim in layout]
    return x.unsqueeze(-1).permute([(*rows, "d").index(dim) for dim in layout])


def _travel(ring: Ring, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, whole: _Whole,
            requested: list[torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, list[torch.Tensor]]:
    """The gradients of this process's queries, keys and values, and of the tensors that functions read, in the
    precision of scores. The gradients of keys and values travel with them, and arrive where they belong."""
    rank, ranks = ring.neighbours.rank, ring.neighbours.ranks
    wide = whole.lse.dtype
    q_sum = torch.zeros_like(q, dtype=wide)
    sums = [torch.zeros_like(x, dtype=torch.float64 if wide == torch.float64 else torch.float32) for x in requested]
    block = [k, v]
    travelling = [torch.zeros_like(x, dtype=wide) for x in block]
    for step in range(ranks):
        owner = (rank - step) % ranks
        coming = ring.shapes[(owner - 1) % ranks].keys
        pending = None
        if step < ranks - 1:
            block = [x.contiguous() for x in block]
            pending = ring.neighbours.start(block, coming, ring.axis)
        for q_at, first_query, queries, k_at, first_key, keys in ring.pairs(owner):
            rows = whole.rows(q_at, queries, ring.axis)
            operands = [q.narrow(ring.axis, q_at, queries), *[x.narrow(ring.axis, k_at, keys) for x in block]]
            found = _gradients_of_part(ring, operands, first_query, first_key, rows, requested)
            q_sum.narrow(ring.axis, q_at, queries).add_(found[0])
            for total, gradient in zip(travelling, found[1:3]):
                total.narrow(ring.axis, k_at, keys).add_(gradient)
            for total, gradient in zip(sums, found[3:]):
                if gradient is not None:
                    total.add_(gradient)
        if pending is not None:
            block = pending.wait()
        # After the last step they are at the process before their owner.
        travelling = ring.neighbours.start([x.contiguous() for x in travelling], coming, ring.axis).wait()
    return q_sum, *travelling, sums


def _gradients_of_part(ring: Ring, operands: list[torch.Tensor], first_query: int, first_key: int, rows: _Whole,
                       requested: list[torch.Tensor]) -> tuple[Any, ...]:
    """The gradients of the queries, keys and values of a part, and of the tensors that functions read."""
    with torch.enable_grad():
        leaves = [x.detach().requires_grad_() for x in operands]
        given = leaves if "b" in ring.layout else [x.unsqueeze(0) for x in leaves]
        layout = ring.layout if "b" in ring.layout else "b" + ring.layout
        out, lse = saccade.attention(*given, layout=layout, scale=ring.scale, return_lse=True,
                                     **_options(ring.limits, first_query, first_key, operands[1].shape[ring.axis]))
        low = lse_low_of(lse)
        if "b" not in ring.layout:
            out, lse, low = out.squeeze(0), lse.squeeze(0), low.squeeze(0)
    gradients = _of_part(out.detach(), lse.detach(), low, rows, ring.layout)
    found: tuple[Any, ...] = torch.autograd.grad((out, lse), [*leaves, *requested], gradients, allow_unused=True)
    return found


def _options(limits: Limits, first_query: int, first_key: int, keys: int) -> dict[str, Any]:
    """The options of `saccade.attention` for a part, in which positions count from the beginning of the part."""
    score, mask, length = limits.score, limits.mask, limits.kv_len
    options: dict[str, Any] = {}
    if score is not None:
        options["score"] = lambda s, b, h, i, j: score(s, b, h, i + first_query, j + first_key)
    masks: list[Callable[..., Any]] = []
    if mask is not None:
        masks.append(lambda b, h, i, j: mask(b, h, i + first_query, j + first_key))
    if limits.causal is not None:
        options["causal"] = limits.causal + first_query - first_key
        if limits.sides:
            options["window"] = (limits.distances[0], None)
    elif limits.sides:
        masks.append(_window(limits, first_query - first_key))
    if length is not None:
        is_tensor = isinstance(length, torch.Tensor)
        options["kv_len"] = (length - first_key).clamp(0, keys) if is_tensor else max(0, min(keys, length - first_key))
    if masks:
        options["mask"] = functools.reduce(operator.and_, map(Mask, masks))
    return options


def _window(limits: Limits, offset: int) -> Callable[..., Any]:
    """The mask of a window without a causal mask; query i has the position i + offset among the keys."""
    left = limits.distances[0] - offset if "l" in limits.sides else 0
    right = limits.distances[-1] + offset if "r" in limits.sides else 0
    if limits.sides == "l":
        return lambda b, h, i, j: j - i >= -left
    if limits.sides == "r":
        return lambda b, h, i, j: j - i <= right
    return lambda b, h, i, j: (j - i >= -left) & (j - i <= right)
