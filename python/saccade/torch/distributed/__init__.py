"""Attention over sequences that are distributed over the processes of a `torch.distributed` group.

Every process holds a part of the queries, keys and values along the sequence, and gets the output of its queries.
`ring_attention` passes keys and values around; `all_to_all_attention` redistributes heads for the time of the call.
Positions in functions, masks and lengths are those of the whole sequence. docs/guides/sequence-parallel.md compares
them. Heads that are distributed (tensor parallelism) need none of this: every process calls `saccade.attention`.
"""

from saccade.torch.distributed.exchange import all_to_all_attention
from saccade.torch.distributed.placement import positions, shard
from saccade.torch.distributed.ring import ring_attention

__all__ = ["all_to_all_attention", "positions", "ring_attention", "shard"]
