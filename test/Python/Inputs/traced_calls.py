"""Calls of saccade.attention in functions of (q, k, v, slopes, ids) that torch.compile traces, by name. q is
[2, 4, L, 16], k and v are [2, 4, S, 16], slopes [4] and ids [2, L + S + 3]."""

import torch

import saccade
from saccade import masks, scores


def alibi(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i))


def soft_cap(q, k, v, slopes, ids):
    return saccade.attention(q * 2, k, v, score=lambda s, b, h, i, j: torch.tanh(s / 20.0) * 20.0)


def documents(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, mask=lambda b, h, i, j: ids[b, i] == ids[b, j], causal="top_left")


def window(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, window=(3, 1), scale=0.3)


def causal_offset(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, causal=2, return_lse=True)


def lengths_and_sinks(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, kv_len=ids.amax(1) + 2, sink=slopes, return_lse=True, return_max=True)


def library_functions(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, score=scores.alibi(slopes) >> scores.soft_cap(3.0),
                             mask=masks.causal() | masks.documents(ids, ids), return_max=True)


def weights_into_out(q, k, v, slopes, ids):
    return saccade.attention(q, k, v, weight=lambda p, b, h, i, j: p * slopes[h], out=torch.empty_like(q))


def updated_score(q, k, v, slopes, ids):
    def score(s, b, h, i, j):
        x = s * 2
        x += slopes[h]
        return torch.where(i > j, x, -x.abs())

    return saccade.attention(q, k, v, score=score)


def tables(q, k, v, slopes, ids):
    table = torch.outer(slopes, torch.arange(100) / 100)
    return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + table[h][(i - j).clamp(-40, 40) + 50])


def layouts(q, k, v, slopes, ids):
    return saccade.attention(*(x.transpose(1, 2) for x in (q, k, v)), layout="bshd", kv_len=5)


def ragged(q, k, v, slopes, ids):
    starts = torch.tensor([0, 2, 5], dtype=torch.int32)
    return saccade.attention(*(x[0].transpose(0, 1) for x in (q, k, v)), cu_seqlens_q=starts, cu_seqlens_k=starts)


CALLS = {function.__name__: function for function in (
    alibi, soft_cap, documents, window, causal_offset, lengths_and_sinks, library_functions, weights_into_out, updated_score,
    tables, layouts, ragged)}  # fmt: skip


def arguments(batch=2, queries=7, keys=9, seed=0):
    """q, k, v, slopes and ids."""
    torch.manual_seed(seed)
    q, k, v = (torch.randn(batch, 4, length, 16) for length in (queries, keys, keys))
    return q, k, v, torch.rand(4), torch.randint(0, 3, (batch, queries + keys + 3))
