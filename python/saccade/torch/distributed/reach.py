"""Which keys a query may attend to, in positions of the whole sequence."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from saccade import _operands
from saccade.masks import Mask
from saccade.scores import Score


class Reach:
    """The checked options that bound the keys of a query."""

    def __init__(self, causal: Any, window: Any, kv_len: Any, cu_seqlens_q: Any, cu_seqlens_k: Any):
        """`kv_len` is what `_operands.check_length` returns. Raises as `saccade.attention`."""
        named = isinstance(causal, str) and causal in ("top_left", "bottom_right")
        self.causal = causal if causal is None or named else _operands.check_causal(causal)
        self.sides, self.distances = ("", ()) if window is None else _operands.check_window(window, causal is not None)
        # How many keys before and after its own a query attends to; None for all.
        self.left, self.right = (dict(zip(self.sides, self.distances)).get(side) for side in "lr")
        self.length_kind: str | None = None
        self.kv_len: Any = None
        if kv_len is not None:
            self.length_kind, self.kv_len = kv_len
        self.cu_seqlens = None if cu_seqlens_q is None else (cu_seqlens_q.long(), cu_seqlens_k.long())

    def options(self) -> tuple[Any, ...]:
        """What must be equal on all processes."""
        length = self.kv_len.tolist() if isinstance(self.kv_len, torch.Tensor) else self.kv_len
        offsets = None if self.cu_seqlens is None else [x.tolist() for x in self.cu_seqlens]
        return self.causal, self.sides, self.distances, self.length_kind, length, offsets


@dataclasses.dataclass
class Limits:
    """The options of the programs: bounds, or for a ragged batch a mask that implies them."""

    score: Callable[..., Any] | None
    mask: Callable[..., Any] | None
    causal: int | None = None
    sides: str = ""
    distances: tuple[int, ...] = ()
    length_kind: str | None = None
    kv_len: Any = None
    tables: tuple[torch.Tensor, torch.Tensor] | None = None  # the first and last key of each query

    def may_attend(self, first_query: int, queries: int, first_key: int, keys: int) -> bool:
        """Whether some of these queries may attend to some of these keys, as far as bounds tell."""
        last_query, last_key = first_query + queries - 1, first_key + keys - 1
        if self.tables is not None:
            lowest, highest = (x[first_query : last_query + 1] for x in self.tables)
            has_keys = highest >= lowest
            return bool((has_keys & (lowest <= last_key) & (highest >= first_key)).any())
        own = self.causal or 0
        if self.causal is not None and first_key > last_query + own:
            return False
        if "l" in self.sides and last_key < first_query + own - self.distances[0]:
            return False
        if "r" in self.sides and first_key > last_query + own + self.distances[-1]:
            return False
        return not (self.length_kind == "index" and first_key >= self.kv_len)


def limits_of(reach: Reach, score: Any, mask: Any, queries: int, keys: int) -> Limits:
    """The options of the programs for `queries` and `keys` in all. Raises ValueError for lengths that do not fit."""
    score = score.function if isinstance(score, Score) else score
    mask = mask.function if isinstance(mask, Mask) else mask
    if reach.cu_seqlens is not None:
        return _ragged(reach, score, mask, queries, keys)
    length = reach.kv_len
    _check_lengths(length, keys, "the keys of all processes")
    causal = reach.causal
    if causal == "bottom_right":
        if isinstance(length, torch.Tensor):
            raise ValueError('causal is "bottom_right" with kv_len in a tensor, expected an int: keys - queries')
        causal = (keys if length is None else length) - queries
    causal = 0 if causal == "top_left" else causal
    return Limits(score, mask, causal, reach.sides, reach.distances, reach.length_kind, length)


def _check_lengths(kv_len: Any, most: Any, whose: str) -> None:
    if kv_len is not None:
        values = torch.as_tensor(kv_len)
        if ((values < 0) | (values > most)).any():
            limits = most.tolist() if isinstance(most, torch.Tensor) else most
            raise ValueError(f"kv_len is {values.tolist()!s:.80}, expected 0 to {limits!s:.80}, {whose}")


def _ragged(reach: Reach, score: Any, mask: Any, queries: int, keys: int) -> Limits:
    """A ragged batch as one sequence in which a query attends to a range of keys: those of its own sequence."""
    assert reach.cu_seqlens is not None
    for name, offsets, total in (("cu_seqlens_q", reach.cu_seqlens[0], queries),
                                 ("cu_seqlens_k", reach.cu_seqlens[1], keys)):
        if not len(offsets) or offsets[0] != 0 or (offsets.diff() < 0).any() or offsets[-1] > total:
            raise ValueError(f"{name} is {offsets.tolist()!s:.80}, expected offsets that ascend from 0 to at most "
                             f"{total}, the length of the parts of all processes")
    cu_q, cu_k = (x.cpu() for x in reach.cu_seqlens)
    if len(cu_q) != len(cu_k):
        raise ValueError(f"cu_seqlens_k has {len(cu_k)} offsets, expected {len(cu_q)}, as many as cu_seqlens_q")
    # As in saccade.attention, an int may exceed the length of a sequence, but not that of all.
    if isinstance(reach.kv_len, torch.Tensor):
        _check_lengths(reach.kv_len.cpu(), cu_k.diff(), "the lengths of the sequences")
    else:
        _check_lengths(reach.kv_len, keys, "the keys of all processes")
    used = int(cu_q[-1])
    sequence = torch.repeat_interleave(torch.arange(len(cu_q) - 1), cu_q.diff())
    start_q, start_k, stored = cu_q[sequence], cu_k[sequence], cu_k.diff()[sequence]
    own = torch.arange(used) - start_q
    length = stored
    if reach.kv_len is not None:
        length = torch.as_tensor(reach.kv_len).cpu().long().expand(len(cu_q) - 1)[sequence]
    if reach.causal == "bottom_right":
        own = own + length - cu_q.diff()[sequence]
    elif isinstance(reach.causal, int):
        own = own + reach.causal
    last = torch.minimum(length, stored) - 1
    for right in [0] * (reach.causal is not None) + [reach.right] * (reach.right is not None):
        last = torch.minimum(last, own + right)
    first = torch.zeros_like(own) if reach.left is None else (own - reach.left).clamp(min=0)
    device = reach.cu_seqlens[0].device

    def fill(x: Any, value: int) -> Any:
        """A table of all queries, given that of those in sequences."""
        return torch.cat([x, x.new_full((queries - used,), value)]).int()

    lowest, highest = fill(first + start_k, 0), fill(last + start_k, -1)
    low, high, number, zero_q, zero_k = (
        x.to(device) for x in (lowest, highest, fill(sequence, 0), fill(start_q, 0), fill(start_k, 0)))

    def is_in(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j >= low[i]) & (j <= high[i])

    def all_masks(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (j >= low[i]) & (j <= high[i]) & mask(number[i], h, i - zero_q[i], j - zero_k[i])

    def relative_score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score(s, number[i], h, i - zero_q[i], j - zero_k[i])

    return Limits(None if score is None else relative_score, is_in if mask is None else all_masks,
                  tables=(lowest, highest))
