"""Transfers between neighbours in the ring of processes."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
import torch.distributed as dist


@dataclasses.dataclass(frozen=True)
class Neighbours:
    """This process's place in the ring."""

    group: Any
    rank: int
    ranks: int

    def start(self, sent: list[torch.Tensor], count: int, axis: int) -> Pending:
        """Begins to send tensors to the next process, which are kept until then, and to receive such from the previous
        one, with `count` elements along `axis`."""
        arriving = [x.new_empty([*x.shape[:axis], count, *x.shape[axis + 1 :]]) for x in sent]
        if self.ranks == 1:
            return Pending(sent, sent, [])
        following, previous = (
            dist.get_global_rank(self.group or dist.group.WORLD, (self.rank + d) % self.ranks) for d in (1, -1))
        transfers = [dist.P2POp(dist.isend, x, following, self.group) for x in sent if x.numel()]
        transfers += [dist.P2POp(dist.irecv, x, previous, self.group) for x in arriving if x.numel()]
        return Pending(sent, arriving, list(dist.batch_isend_irecv(transfers)) if transfers else [])


@dataclasses.dataclass(frozen=True)
class Pending:
    """Transfers that have begun."""

    sent: list[torch.Tensor]
    arriving: list[torch.Tensor]
    works: list[Any]

    def wait(self) -> list[torch.Tensor]:
        """The tensors that arrived."""
        for work in self.works:
            work.wait()
        return self.arriving
