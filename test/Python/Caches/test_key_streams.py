"""Decode steps read the keys of a chunk in parts: numbers of keys, windows and head sizes around their limits."""

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(21)
TARGETS = ["portable", "v3", "v4-expanded", "v4-bf16-expanded", "v4-amx-expanded"]
LENGTHS = np.array([1, 2, 3, 5, 130, 1023, 1027], np.int32)


def reference(q, k, v, window):
    """Attention in float64 of queries at the end of `LENGTHS` keys, each of which sees the last `window` keys."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.astype(np.float64) for x in (q, k.repeat(group, 1), v.repeat(group, 1)))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    at, key = np.arange(q.shape[2])[:, None], np.arange(k.shape[2])[None]
    for b, length in enumerate(LENGTHS):
        own = at + length - q.shape[2]
        scores[b, :, (key > own) | (key <= own - (window or 9999))] = -np.inf
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total) @ v


def paged(x, page_size):
    """`x` [sequence, head, position, ...] as a pool of pages in random order and a table."""
    entries = -(-x.shape[2] // page_size)
    table = RNG.permutation(len(x) * entries + 3)[: len(x) * entries].reshape(len(x), entries).astype(np.int32)
    pool = np.full((len(x) * entries + 3, x.shape[1], page_size, *x.shape[3:]), 99, x.dtype)
    for b, row in enumerate(table):
        for entry, page in enumerate(row):
            some = x[b, :, entry * page_size:(entry + 1) * page_size]
            pool[page, :, :some.shape[1]] = some
    return pool, table


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("depth", "page_size", "window"), [(64, None, None), (50, None, 36), (200, None, None), (50, 1, 36), (136, 16, 7)])
@pytest.mark.parametrize("is_quantized", [False, True])
def test_lengths_windows_and_pages(target, depth, page_size, window, is_quantized):
    shape, queries = (len(LENGTHS), 2, LENGTHS.max(), depth), 1 + (window or 0) % 5
    q = RNG.standard_normal((len(LENGTHS), 6, queries, depth), np.float32)
    scales = [RNG.uniform(0.002, 0.03, shape[:3]).astype(np.float32) for _ in "kv"]
    if is_quantized:
        k, v = (RNG.integers(-128, 128, shape, np.int8) for _ in "kv")
        expected = reference(q, k * scales[0][..., None], v * scales[1][..., None], window)
    else:
        k, v = (RNG.standard_normal(shape, np.float32) for _ in "kv")
        expected = reference(q, k, v, window)
    options = {}
    if page_size:
        state = RNG.bit_generator.state
        pools = []
        for x in (k, v, *scales):
            RNG.bit_generator.state = state  # one table for all pools
            pool, options["page_table"] = paged(x, page_size)
            pools.append(pool)
        k, v, *scales = pools
    if is_quantized:
        options.update(k_scale=scales[0], v_scale=scales[1])
    if window:
        options["window"] = window
    out = saccade.attention(q, k, v, kv_len=LENGTHS, causal="bottom_right", target=target, **options)
    np.testing.assert_allclose(out, expected, atol=6e-6)
