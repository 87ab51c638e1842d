#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Sinks, weight regions, tallies, max and argmax against NumPy, with several tiles of keys.

Usage: softmax-weights.py [OPTION OF saccade-run ...]. On the simulator extents are smaller, with several tiles nonetheless.
"""

import functools
import pathlib
import sys

import numpy as np

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
import program
from program import assert_close, normal

run = functools.partial(program.run, options=sys.argv[1:])
SIMULATED = "--device=ptxsim" in sys.argv
rng = np.random.default_rng(11)
PROGRAM = INPUTS.resolve() / "softmax-weights.mlir"
B = 2


def tensors(heads, kv_heads, queries, keys, depth=32, value_depth=24, batches=B):
    return (normal(rng, batches, heads, queries, depth), normal(rng, batches, kv_heads, keys, depth),
            normal(rng, batches, kv_heads, keys, value_depth))


def sizes(*cases):
    """The queries and keys of cases, with what else they have. The simulator has at most 20 queries and 300 keys."""
    return [(min(queries, 20), min(keys, 300), *others) if SIMULATED else (queries, keys, *others)
            for queries, keys, *others in cases]


def bf16(x):
    """Rounded to nearest even, as the compiled program rounds its arguments."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def weights(q, k, keep=True, sink=-np.inf, scale=None):
    """Scores (−inf where masked), probabilities and log-sum-exp. `sink` goes along heads."""
    k = np.repeat(k, q.shape[1] // k.shape[1], 1)
    scale = 1 / np.sqrt(q.shape[-1]) if scale is None else scale
    s = np.where(keep, np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) * scale, -np.inf)
    sinks = np.broadcast_to(np.reshape(np.asarray(sink, float), (1, -1, 1, 1)), (*s.shape[:3], 1))
    everything = np.concatenate([s, sinks], -1)
    top = np.max(everything, -1, keepdims=True)
    powers = np.exp(everything - np.where(np.isfinite(top), top, 0))
    total = powers.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = (np.where(np.isfinite(top), top, 0) + np.log(total))[..., 0]
    return s, (powers / np.where(total == 0, 1, total))[..., :-1], lse


def values(p, v):
    return np.einsum("bhqk,bhkd->bhqd", p, np.repeat(v, p.shape[1] // v.shape[1], 1).astype(float))


def assert_lse(found, expected):
    assert (np.isneginf(found) == np.isneginf(expected)).all(), "log-sum-exp of fully masked rows"
    assert_close(np.where(np.isneginf(found), 0, found), np.where(np.isneginf(expected), 0, expected), 3e-6)


def causal(queries, keys, shift=0):
    return np.arange(keys) <= np.arange(queries)[:, None] + shift


# A sink per head, one of them −inf; rows after q_len have no sink.
for queries, keys in sizes((40, 1300), (1, 70), (500, 30)):
    q, k, v = tensors(4, 2, queries, keys)
    sink = np.array([0.5, -np.inf, 30.0, -3.0], np.float32)
    query_lengths, key_lengths = np.array([queries, queries // 2], np.int32), np.array([keys, 0], np.int32)
    inside = (np.arange(keys) < key_lengths[:, None, None, None]) & causal(queries, keys)
    counts = np.arange(queries) < query_lengths[:, None, None]
    s, p, lse = weights(q, k, inside & counts[..., None], sink)
    found, found_lse = run(PROGRAM, "sink", q, k, v, sink, query_lengths, key_lengths, results=2)
    assert_close(found, np.where(counts[..., None], values(p, v), 0), 3e-6)
    assert_lse(found_lse, np.where(counts, lse, -np.inf))

q, k, v = map(bf16, tensors(4, 2, *sizes((40, 1300))[0]))
sink = bf16(np.array([0.5, -1.0, 3.0, 8.0]))
found = run(PROGRAM, "half_sink", *((x, "bf16") for x in (q, k, v, sink)))
assert_close(found, values(weights(q, k, True, sink)[1], v), 1e-2)

(queries, keys), = sizes((5, 2000))
q, k, v = (rng.standard_normal((1, 3, n, 8)) for n in (queries, keys, keys))
for sink in (2.5, -np.inf, -700.0, 700.0):
    s, p, lse = weights(q, k, True, sink)
    found, found_lse = run(PROGRAM, "sink_of_all", q, k, v, sink, results=2)
    assert_close(found, values(p, v), 1e-13)
    assert_close(found_lse, lse, 1e-13)

# max and argmax: the first of equal scores, −1 for fully masked rows. A sink is not a key.
for queries, keys, scale in sizes((60, 1100, 0.25), (60, 1100, -0.25), (60, 1100, 0.0), (9, 3, 1.0)):
    q, k, v = tensors(4, 2, queries, keys)
    k[:, :, keys // 2 :] = k[:, :, : keys - keys // 2]  # every score occurs twice
    sink = np.array([100.0, 0.0, -5.0, -np.inf], np.float32)
    s, p, lse = weights(q, k, causal(queries, keys, keys - queries), sink, scale)
    found, found_lse, top, where = run(PROGRAM, "largest", q, k, v, sink, scale, results=4)
    assert_close(found, values(p, v), 3e-6)
    assert_lse(found_lse, lse)
    expected = s.max(-1)
    assert_lse(top, expected)
    assert (where == np.where(np.isneginf(expected), -1, s.argmax(-1))).all(), "argmax"

q, k, v = (bf16(normal(rng, n, 64)) for n in (30, 700, 700))
s = q.astype(float) @ k.astype(float).T / 8 + (np.arange(700) + 1000) % 3
found, where = run(PROGRAM, "largest_of_biased", *((x, "bf16") for x in (q, k, v)), 1000, results=2)
assert (where == s.argmax(-1) + 1000).all(), "argmax of a part of a sequence"

# Weight regions, which do not change the log-sum-exp.
for queries, keys in sizes((70, 1500), (70, 33), (1, 600)):
    q, k, v = tensors(2, 2, queries, keys)
    keep = causal(queries, keys, keys - queries)
    gate = normal(rng, queries, keys)
    s, p, lse = weights(q, k, keep)
    found, found_lse = run(PROGRAM, "gated", q, k, v, gate, results=2)
    assert_close(found, values(p * (1 - gate / 2), v), 3e-6)
    assert_lse(found_lse, lse)

    s, p, lse = weights(q, k, keep, 0.25)
    found, found_lse = run(PROGRAM, "sparse", q, k, v, 0.25, results=2)
    # Masked keys have weight 0, although the region gives at least 1.
    assert_close(found, values(np.where(keep, np.maximum(p - 0.01, 0) ** 2 + 1, 0), v), 3e-6)
    assert_lse(found_lse, lse)

q, k, v = map(bf16, tensors(2, 2, *sizes((40, 1300))[0]))
found = run(PROGRAM, "half_sparse", *((x, "bf16") for x in (q, k, v)))
assert_close(found, values(weights(q, k)[1] ** 2, v), 1e-2)


def tally(p, bins, count, amounts=1.0):
    """p and bins: [b, h, q, k]."""
    return np.stack([np.where(bins == i, p * amounts, 0).sum(-1) for i in range(count)], -1)


# Entropy is the log-sum-exp without the mean score; pooled weights; weights by clipped distance (Shaw's value side).
for queries, keys in sizes((330, 310), (20, 20), (700, 311)):
    q, k, v = tensors(2, 2, queries, keys)
    lengths = np.array([keys, 11], np.int32)
    keep = causal(queries, keys) & (np.arange(keys) < lengths[:, None, None, None])
    s, p, lse = weights(q, k, keep)
    found, found_lse, mean, pooled, shaw = run(PROGRAM, "tallies", q, k, v, lengths, results=5)
    assert_close(found, values(p, v), 3e-6)
    i, j = np.arange(queries)[:, None], np.arange(keys)
    entropy = -np.sum(np.where(p > 0, p * np.log(np.where(p > 0, p, 1)), 0), -1)
    assert_close(found_lse - mean[..., 0], entropy, 1e-5)
    assert_close(pooled, tally(p, j // 16, 20), 3e-6)
    assert_close(shaw, tally(p, np.clip(i - j, -20, 20) + 20, 41), 3e-6)
    table = rng.standard_normal((41, 24))
    expected = np.einsum("bhqk,qkd->bhqd", p, table[np.clip(i - j, -20, 20) + 20])
    assert_close(shaw @ table, expected, 1e-5)

# Values that are 0 outside of some keys, and bins that depend on nothing but the key, which may change in a register.
for queries, keys, first in sizes((330, 1310, 4), (20, 1310, 1200), (3, 1500, 700), (40, 300, 0), (40, 300, 5000)):
    q, k, v = tensors(4, 2, queries, keys)
    lengths = np.array([keys, keys // 2 + 1], np.int32)
    sink = np.array([1.0, -np.inf, 0.0, 3.0], np.float32)
    i, j = np.arange(queries)[:, None], np.arange(keys)
    ends = lengths[:, None, None, None]
    s, p, lse = weights(q, k, (j < ends) & (j <= i + ends - queries), sink)
    for ids in (np.sort(rng.integers(-1, 8, keys)), rng.integers(-1, 8, keys)):
        found, on_first, on_band, by_id, by_half = run(PROGRAM, "some_keys", q, k, v, lengths, first,
                                                       ids.astype(np.int32), sink, results=5)
        assert_close(found, values(p, v), 3e-6)
        assert_close(on_first[..., 0], np.where(j < first, p, 0).sum(-1), 3e-6)
        assert_close(on_band[..., 0], np.where(abs(i - j) <= 20, p * np.where(p > 0, s, 0), 0).sum(-1), 1e-5)
        assert_close(by_id, tally(p, ids, 6, j >= first), 3e-6)
        assert_close(by_half, tally(p, j // ((ends + 1) // 2), 2), 3e-6)

keys = 300 if SIMULATED else 2100
q, k, v = map(bf16, tensors(2, 2, 64, keys, 64, 64))
sink, table = np.array([1.0, -1.0], np.float32), rng.integers(-2, 9, keys).astype(np.int32)
found, scattered, by_query = run(PROGRAM, "scattered", *((x, "bf16") for x in (q, k, v)), sink, table, results=3)
s, p, lse = weights(q, k, True, sink)
assert_close(found, values(p / 2, v), 1e-2)
assert_close(scattered, tally(p, table, 7, s**2), 1e-5)
assert_close(by_query, p.sum(-1)[..., None] * np.eye(64), 1e-5)

# Shaw et al. (2018), equations 3 and 4, from the formula with one table row for each pair.
for n in (7, 70) if SIMULATED else (7, 150, 900):
    q, k, v = normal(rng, n, 64), normal(rng, n, 64), normal(rng, n, 48)
    key_table, value_table = normal(rng, 33, 64), normal(rng, 33, 48)
    place = np.clip(np.arange(n) - np.arange(n)[:, None], -16, 16) + 16
    s = (q.astype(float) @ k.T + np.take_along_axis(q.astype(float) @ key_table.T, place, 1)) / 8
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    expected = p @ v + np.einsum("qk,qkd->qd", p, value_table[place])
    assert_close(run(PROGRAM, "shaw", q, k, v, key_table, value_table), expected, 1e-5)
