#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Multi-head attention against NumPy: three projections with and without bias, one fused projection, einsum layout,
cross-attention. The NumPy reference splits, transposes and concatenates heads with copies, as frameworks do."""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import assert_close, glorot, normal, run, softmax

rng = np.random.default_rng(1)
H, D, WIDTH = 8, 64, 512


def heads(x):
    """[B, S, 512] -> [B, 8, S, 64]"""
    return x.reshape(*x.shape[:2], H, D).transpose(0, 2, 1, 3)


def attention(q, k, v, scale=1 / np.sqrt(D), keep=True):  # noqa: B008
    """[B, 8, S, 64] each -> [B, S, 512]"""
    scores = np.where(keep, q @ k.transpose(0, 1, 3, 2) * scale, -np.inf)
    joined = softmax(scores) @ v
    return joined.transpose(0, 2, 1, 3).reshape(q.shape[0], q.shape[2], WIDTH)


def wide(*arrays):
    return [array.astype(float) for array in arrays]


for batch, sequence in [(1, 1), (2, 5), (3, 33), (1, 130), (2, 0)]:
    x = normal(rng, batch, sequence, WIDTH)
    weights = [glorot(rng, WIDTH, WIDTH) for _ in range(4)]
    biases = [normal(rng, WIDTH) for _ in range(4)]
    x64, (wq, wk, wv, wo), (bq, bk, bv, bo) = x.astype(float), wide(*weights), wide(*biases)

    expected = attention(heads(x64 @ wq.T + bq), heads(x64 @ wk.T + bk), heads(x64 @ wv.T + bv)) @ wo.T + bo
    pairs = [array for pair in zip(weights, biases) for array in pair]
    assert_close(run("multi-head.mlir", "multi_head_attention", x, *pairs), expected, 2e-6)

    # The same weights as one matrix, its rows queries, keys, values.
    fused_weights, fused_biases = np.concatenate(weights[:3]), np.concatenate(biases[:3])
    found = run("multi-head-fused-qkv.mlir", "fused_projection", x, fused_weights, fused_biases, weights[3], biases[3])
    assert_close(found, expected, 2e-6)

    expected = attention(heads(x64 @ wq.T), heads(x64 @ wk.T), heads(x64 @ wv.T)) @ wo.T
    assert_close(run("multi-head.mlir", "multi_head_attention_without_bias", x, *weights), expected, 2e-6)

# einsum("nqhd,nkhd->nhqk"), divided by √512, then einsum("nhql,nlhd->nqhd").
q, k, v = (normal(rng, 2, s, H, D) for s in (19, 45, 45))
energy = np.einsum("nqhd,nkhd->nhqk", *wide(q, k))
expected = np.einsum("nhql,nlhd->nqhd", softmax(energy / WIDTH**0.5), v.astype(float))
assert_close(run("multi-head-fused-qkv.mlir", "einsum_nqhd_nkhd", q, k, v), expected, 2e-6)

# A source of another length and width, padded; the third has no token at all and leaves the output bias.
for queries, keys in [(1, 1), (7, 50), (64, 9)]:
    x, source = normal(rng, 3, queries, WIDTH), normal(rng, 3, keys, 768)
    lengths = np.array([keys, max(keys // 2, 1), 0], np.int32)
    weights = [glorot(rng, WIDTH, width) for width in (WIDTH, 768, 768, WIDTH)]
    biases = [normal(rng, WIDTH) for _ in range(4)]
    x64, s64, (wq, wk, wv, wo), (bq, bk, bv, bo) = x.astype(float), source.astype(float), wide(*weights), wide(*biases)
    keep = (np.arange(keys) < lengths[:, None])[:, None, None]
    expected = attention(heads(x64 @ wq.T + bq), heads(s64 @ wk.T + bk), heads(s64 @ wv.T + bv), keep=keep) @ wo.T + bo
    pairs = [array for pair in zip(weights, biases) for array in pair]
    found = run("cross-attention.mlir", "cross_attention", x, source, lengths, *pairs)
    assert_close(found, expected, 2e-6)
    assert (found[2] == biases[3]).all(), "a source of length 0 adds nothing"
