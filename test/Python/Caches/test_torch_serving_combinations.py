"""Combinations of the arguments of saccade.torch.flash_attn_with_kvcache that say which tokens a query attends to: each
one is as attention in float64, or refused by name."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

from cache_layers import DEPTH, KV_HEADS
from cached_sequences import DEPTH_V, Sequences, lengths

from saccade.torch import append_kvcache, flash_attn_with_kvcache

CAPACITY, LEFT = 16, 5
BEFORE = {"in part": (2, 6), "over": (33, 17)}  # tokens before the call, in a ring
COMBINATIONS = [each for each in itertools.product([None, 0, 3], [False, True], [False, True], [1, 4], [False, True],
                                                   [False, True])]  # fmt: skip


def refusal(ring, causal, has_new, n, has_window, has_count):
    """What the message of a refused call begins with; None for a call that is served."""
    if has_window and n > 1 and not causal:
        return "window_size is"
    if ring is not None and has_new and n > 1 and (has_window or not causal):
        return f"with a ring and {n} queries"
    if ring is not None and has_window:
        return "ring and window_size are given"
    if ring is not None and not has_new and n > 1 and causal:
        return f"causal is True with a ring and {n} queries without k and v"
    return "seqlens_new is given" if has_count and not has_new else None


@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize(("ring", "causal", "has_new", "n", "has_window", "has_count"), COMBINATIONS)
def test_each_combination_is_exact_or_refused(before, ring, causal, has_new, n, has_window, has_count):
    sequences, rows = Sequences(3, 2), CAPACITY if ring is not None else 40
    caches = [torch.full((2, rows, KV_HEADS, depth), torch.nan) for depth in (DEPTH, DEPTH_V)]
    count = (n, n - 1) if has_count else (n, n)
    for new in (BEFORE[before], count):
        at = sequences.length
        q, k, v = sequences.draw(new)
        sequences.extend(k, v, new)
        if not has_new or new != count:
            append_kvcache(k, v, *caches, at, seqlens_new=lengths(*new), ring=ring)
    given = {"cache_seqlens": sequences.length, "causal": causal, "ring": ring, "return_softmax_lse": True}
    given |= {"k": k, "v": v, "cache_seqlens": sequences.length - lengths(*count)} if has_new else {}
    given |= {"window_size": (LEFT, 0)} if has_window else {}
    given |= {"seqlens_new": lengths(*count)} if has_count else {}
    refused = refusal(ring, causal, has_new, n, has_window, has_count)
    if refused is not None:
        with pytest.raises((TypeError, ValueError), match=f"flash_attn_with_kvcache: {refused}"):
            flash_attn_with_kvcache(q, *caches, **given)
        return
    out, lse = flash_attn_with_kvcache(q, *caches, **given)

    def visible(i, j):
        last = i if causal or has_window else torch.full_like(i, j.max())
        seen = (j <= last) & (j >= i - LEFT) if has_window else j <= last
        return seen if ring is None else seen & ((j < ring) | (j > last - (CAPACITY - ring)))

    sequences.check(q, count, out, lse, visible)
