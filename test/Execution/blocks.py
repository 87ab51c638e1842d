#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Whole blocks against NumPy: the ViT-Base block, a Transformer encoder of two layers with padding, rotary
positions.

Usage: blocks.py [--full] [--seed N]. --full runs the ViT-Base block with 32×196×768 inputs only, which takes a minute.
"""

import argparse
import math
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import assert_close, glorot, normal, run, softmax

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--full", action="store_true")
parser.add_argument("--seed", type=int, default=2)
options = parser.parse_args()
rng = np.random.default_rng(options.seed)
erf = np.vectorize(math.erf, otypes=[float])


def norm(x, gamma, beta, epsilon):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + epsilon) * gamma + beta


def self_attention(x, wqkv, bqkv, wo, bo, heads, keep=True):
    batch, sequence, width = x.shape
    qkv = (x @ wqkv.T + bqkv).reshape(batch, sequence, 3, heads, width // heads).transpose(2, 0, 3, 1, 4)
    scores = np.where(keep, qkv[0] @ qkv[1].transpose(0, 1, 3, 2) / math.sqrt(width // heads), -np.inf)
    joined = (softmax(scores) @ qkv[2]).transpose(0, 2, 1, 3).reshape(batch, sequence, width)
    return joined @ wo.T + bo


# ViT-Base. 32×196×768 is the usual input (--full); otherwise the test uses fewer and smaller images. Two images of 196
# tokens take the same path as 32: several work items of rows for each matmul, and one for each head of an image.
attention = [glorot(rng, 2304, 768), normal(rng, 2304), glorot(rng, 768, 768), normal(rng, 768)]
first = [normal(rng, 768), normal(rng, 768)]
second = [normal(rng, 768), normal(rng, 768), glorot(rng, 3072, 768), normal(rng, 3072), glorot(rng, 768, 3072),
          normal(rng, 768)]  # fmt: skip
assert attention[0].size + attention[2].size == 2_359_296, "about 2.4 M parameters"
for batch, sequence in [(32, 196)] if options.full else [(2, 196), (3, 17), (2, 1)]:
    x = normal(rng, batch, sequence, 768)
    # The reference samples rows of the full size.
    found = run("vit-base-block.mlir", "vit_base_block", x, *first, *attention, *second)
    half = x.astype(float)
    half = half + self_attention(norm(half, *first, 1e-6), *attention, heads=12)
    gamma, beta, w1, b1, w2, b2 = second
    hidden = norm(half, gamma, beta, 1e-6) @ w1.T + b1
    expected = half + hidden * (1 + erf(hidden / math.sqrt(2))) / 2 @ w2.T + b2
    assert_close(found, expected, 5e-6)

found = run("vit-base-block.mlir", "vit_base_attention", x, *attention)
assert_close(found, self_attention(x.astype(float), *attention, heads=12), 5e-6)
if options.full:
    sys.exit()

# The encoder: sinusoidal positions, two layers whose weights are stacked, sequences of different lengths.
W, WIDE = 256, 1024
for batch, sequence in [(3, 50), (1, 1), (2, 129)]:
    x = normal(rng, batch, sequence, W)
    angles = np.arange(sequence)[:, None] / 10000 ** (np.arange(0, W, 2) / W)
    positions = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(sequence, W).astype(np.float32)
    lengths = rng.integers(1, sequence + 1, batch).astype(np.int32)
    weights = [glorot(rng, 2, 3 * W, W), normal(rng, 2, 3 * W), glorot(rng, 2, W, W), normal(rng, 2, W),
               normal(rng, 2, W), normal(rng, 2, W), glorot(rng, 2, WIDE, W), normal(rng, 2, WIDE),
               glorot(rng, 2, W, WIDE), normal(rng, 2, W), normal(rng, 2, W), normal(rng, 2, W)]  # fmt: skip
    found = run("encoder-stack.mlir", "encoder_stack", x, positions, lengths, *weights)
    keep = (np.arange(sequence) < lengths[:, None])[:, None, None]
    y = x.astype(float) + positions
    for wqkv, bqkv, wo, bo, gamma1, beta1, w1, b1, w2, b2, gamma2, beta2 in zip(*(w.astype(float) for w in weights)):
        y = norm(y + self_attention(y, wqkv, bqkv, wo, bo, heads=4, keep=keep), gamma1, beta1, 1e-5)
        y = norm(y + np.maximum(y @ w1.T + b1, 0) @ w2.T + b2, gamma2, beta2, 1e-5)
    assert_close(found, y, 5e-6)

# Rotary positions as complex multiplication: pairs are rotated by position × frequency.
for queries in (1, 50):
    q, k, v = (normal(rng, heads, queries, 64) for heads in (8, 2, 2))
    angles = np.arange(queries)[:, None] * 10000.0 ** (-np.arange(32) / 32)
    turned = [(x[..., :32] + 1j * x[..., 32:]) * np.exp(1j * angles) for x in (q.astype(float), k.astype(float))]
    scores = np.einsum("hqd,hkd->hqk", turned[0], np.repeat(turned[1], 4, 0).conj()).real / 8
    keep = np.arange(queries) <= np.arange(queries)[:, None]
    expected = softmax(np.where(keep, scores, -np.inf)) @ np.repeat(v, 4, 0)
    tables = (np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    assert_close(run("rope.mlir", "rope_attention", q, k, v, *tables), expected, 2e-6)
