"""The program that attends to a part of the keys and merges the result with that of other parts."""

from __future__ import annotations

from typing import Any

import torch

from saccade import _gpu, _operands, _program
from saccade._form import Form
from saccade._functions import read
from saccade.attention import _compile
from saccade.function import Function
from saccade.torch.distributed.reach import Limits


class Part:
    """The program for one call, with the arguments that all parts share."""

    def __init__(self, q: torch.Tensor, v: torch.Tensor, layout: str, scale: float | None, limits: Limits):
        self.axis, self.layout = layout.index("s"), layout
        texts: dict[str, Any] = {}
        shared: list[Any] = []
        for role, function in (("score", limits.score), ("mask", limits.mask)):
            if function is not None:
                texts[role], captures, _ = read(role, function, q)
                shared += captures
        form = Form(
            _operands.element_of(q.dtype), q.shape[layout.index("d")], v.shape[layout.index("d")], layout,
            causal=None if limits.causal is None else "offset", sides=limits.sides, scale=scale is not None,
            kv_len=limits.length_kind, lse=True, is_part=True, **texts)
        operands = {"scale": None if scale is None else _operands.check_scale(scale), "causal": limits.causal,
                    "kv_len": limits.kv_len,
                    **{{"l": "left", "r": "right"}[side]: x for side, x in zip(limits.sides, limits.distances)}}
        self.shared = [*shared, *[operands[name] for name in form.names()]]
        self.function: Function = _compile(_program.program(form), None, _gpu.ordinal_of(q))
        self.dtype = torch.float64 if q.dtype == torch.float64 else torch.float32

    def empty(self, q: torch.Tensor, head_dim_v: int, count: int, sink: Any) -> State:
        """The state of `count` queries without keys."""
        size = dict(zip(self.layout, q.shape))
        size |= {"s": count, "d": head_dim_v}
        out = q.new_zeros([size[dim] for dim in self.layout], dtype=self.dtype)
        rows = [size[dim] for dim in "bhs" if dim in self.layout]
        if isinstance(sink, torch.Tensor):
            lse = sink.to(self.dtype).reshape(-1, 1).expand(rows).contiguous()
        else:
            lse = q.new_full(rows, -torch.inf if sink is None else sink, dtype=self.dtype)
        return State(self, out, lse, torch.zeros_like(lse))


class State:
    """The output, the log-sum-exp and its low part of some queries over the keys so far."""

    def __init__(self, part: Part, out: torch.Tensor, lse: torch.Tensor, lse_low: torch.Tensor):
        self.part, self.parts = part, (out, lse, lse_low)
        self._spare: tuple[torch.Tensor, ...] | None = None

    def add(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, first_query: int, first_key: int) -> None:
        """Adds keys; their position and that of the queries are those of the whole sequence."""
        target = self._spare or tuple(map(torch.empty_like, self.parts))
        self.part.function(q, k, v, *self.part.shared, first_query, first_key, *self.parts, out=target)
        self._spare, self.parts = self.parts, target
