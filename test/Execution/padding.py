#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Padding never reaches a result, and a row without any key gives zeros and a log-sum-exp of −inf, never NaN."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import assert_close, normal, run, softmax

rng = np.random.default_rng(7)
B, H, M, N, D = 4, 2, 37, 70, 64
q, k, v = normal(rng, B, H, M, D), normal(rng, B, H, N, D), normal(rng, B, H, N, D)
lengths = np.array([70, 1, 0, 33], np.int32)


def attention(q, k, v, keep):
    scores = np.where(keep, np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(D), -np.inf)
    return np.einsum("bhqk,bhkd->bhqd", softmax(scores), v.astype(float))


# Keys after kv_len do not matter, whatever their values.
inside = np.arange(N) < lengths[:, None, None, None]
expected = attention(q, k, v, inside)
for rubbish in (0.0, 1e30, np.inf, np.nan):
    bad_k, bad_v = k.copy(), v.copy()
    for batch, length in enumerate(lengths):
        bad_k[batch, :, length:] = rubbish
        bad_v[batch, :, length:] = rubbish
    found = run("padding.mlir", "padded_keys", q, bad_k, bad_v, lengths)
    assert_close(found, expected, 1e-6)
    assert (found[2] == 0).all(), "a batch without keys must give zeros"

# Rows after q_len are 0, their log-sum-exp is −inf.
queries, keys = np.array([37, 0, 5, 36]), np.array([70, 3, 9, 0])
bad_q = q.copy()
for batch, length in enumerate(queries):
    bad_q[batch, :, length:] = np.nan
found, lse = run("padding.mlir", "padded_queries_and_keys", bad_q, k, v, queries, keys, results=2)
rows = np.arange(M) < queries[:, None]
expected = np.where(rows[:, None, :, None], attention(q, k, v, np.arange(N) < keys[:, None, None, None]), 0)
assert_close(found, expected, 1e-6)
empty = np.broadcast_to(~rows[:, None] | (keys[:, None, None] == 0), lse.shape)
assert (lse[empty] == -np.inf).all() and np.isfinite(lse[~empty]).all(), "log-sum-exp"
assert (found[empty] == 0).all(), "padded rows must be exactly 0"

# One length for all.
for length in (0, 1, 63, 70):
    found = run("padding.mlir", "partly_filled_cache", q, k, v, length)
    assert_close(found, attention(q, k, v, np.arange(N) < length), 1e-6)

# As a mask: −inf before the softmax, an all-padded row gives zeros.
keep = rng.random((B, N)) < 0.5
keep[3] = False
found = run("padding.mlir", "padding_mask", q, k, v, keep)
assert_close(found, attention(q, k, v, keep[:, None, None]), 1e-6)
assert (found[3] == 0).all() and not np.isnan(found).any(), "all keys are masked"
