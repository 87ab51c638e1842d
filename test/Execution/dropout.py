#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
# RUN: %python %s --target=%{v4}
# RUN: %python %s --device=ptxsim --target=sm_80
"""Dropout against NumPy: the same weights are kept on all targets, for any tiles, positions and numbers of threads.

Usage: dropout.py [OPTION OF saccade-run ...]. On the simulator extents are smaller, and gradients are not computed.
"""

import pathlib
import sys

import numpy as np

from saccade.dropout import dropout_mask, philox

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
import program
from program import assert_close, normal, softmax


def run(entry, *arguments):
    """The result, compared with the reference as well if there are few pairs: its generator takes microseconds a pair."""
    q, k = (x[0] if isinstance(x, tuple) else x for x in arguments[:2])
    return program.run(PROGRAM, entry, *arguments, options=sys.argv[1:], check=q.size * k.shape[-2] < 1.3e6)


SIMULATED = "--device=ptxsim" in sys.argv
rng = np.random.default_rng(17)
PROGRAM, GRADIENTS = INPUTS.resolve() / "dropout.mlir", INPUTS.resolve() / "dropout-gradient.mlir"

# Test vectors of the library Random123, which accompanies the paper.
PI = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)
for counter, key, expected in [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((2**32 - 1,) * 4, (2**32 - 1,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (*PI, (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)),
]:
    assert tuple(map(int, philox(tuple(np.array(each) for each in counter), key))) == expected


def tensors(heads, kv_heads, queries, keys, depth=32, value_depth=24, batches=2):
    return (normal(rng, batches, heads, queries, depth), normal(rng, batches, kv_heads, keys, depth),
            normal(rng, batches, kv_heads, keys, value_depth))


def factors(shape, rate, seed, **position):
    rate = np.clip(rate, 0, 1)
    return dropout_mask(shape, rate, seed, **position) * (1 / (1 - rate) if rate < 1 else 0)


def probabilities(q, k, keep=True):
    k = np.repeat(k, q.shape[1] // k.shape[1], 1).astype(float)
    return softmax(np.where(keep, q.astype(float) @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]), -np.inf))


def values(p, v):
    return p @ np.repeat(v, p.shape[1] // v.shape[1], 1).astype(float)


def causal(queries, keys, shift=0):
    return np.arange(keys) <= np.arange(queries)[:, None] + shift


# Split-KV has at most 8 queries. Only 1 batch on the simulator.
BATCHES = 1 if SIMULATED else 2
SIZES = [(20, 130), (3, 300)] if SIMULATED else [(60, 1300), (5, 2500), (1, 33), (300, 71)]
SEEDS = [2**63 - 1, -(2**63), 12345, -1]
for (queries, keys), seed in zip(SIZES, SEEDS, strict=False):
    q, k, v = tensors(6, 2, queries, keys, batches=BATCHES)
    shape = (BATCHES, 6, queries, keys)
    expected = values(probabilities(q, k) * factors(shape, 0.3, seed), v)
    assert_close(run("run_time_rate", q, k, v, 0.3, seed), expected, 3e-6)
    p = probabilities(q, k, causal(queries, keys, keys - queries))
    found = run("constant_rate", q, k, v, np.array([seed]))
    assert_close(found, values(p * factors(shape, 0.1, seed), v), 3e-6)
    p = probabilities(q, k, (np.arange(keys) <= np.arange(queries)[:, None] + 3)
                      & (np.arange(keys) >= np.arange(queries)[:, None] - 40))
    found = run("weighted", q, k, v, seed)
    assert_close(found, values(2 * p * factors(shape, 0.5, seed), v), 3e-6)

# Every bit. The rates 0 and 1, and run-time rates that are no probability: they are clamped, NaN counts as 0.
identity = np.broadcast_to(np.eye(64, dtype=np.float32), (BATCHES, 6, 64, 64))
queries = 12 if SIMULATED else 70
zeros = [(np.zeros((BATCHES, 6, n, 64), np.float32), "bf16") for n in (queries, 64)]
for rate in (0.5,) if SIMULATED else (0.0, 0.1, 0.5, 2**-24, 1 - 2**-24, 1.0, 1.5, -1.0, float("nan")):
    found = run("bits", *zeros, (identity, "bf16"), rate, np.array(77))
    probability = np.clip(np.nan_to_num(rate), 0, 1)
    kept = dropout_mask((BATCHES, 6, queries, 64), probability, 77)
    assert ((found != 0) == kept).all(), f"rate {rate}"
    deviation = np.sqrt(kept.size * probability * (1 - probability))
    assert abs(kept.sum() - kept.size * (1 - probability)) <= 5 * deviation, f"rate {rate}"

# The number of heads is known at run time. Parts of the attention, of which one begins between blocks of four keys.
queries, keys = (6, 24) if SIMULATED else (24, 270)
q, k, v = (rng.standard_normal((3, 4, n, 16)) for n in (queries, keys, keys))
shape = (3, 4, queries, keys)
found = run("dynamic_heads", q, k, v, np.array(0.25, np.float32), 99)
assert_close(found, values(probabilities(q, k) * factors(shape, 0.25, 99), v), 1e-12)
for b, h, i, j in [(1, 2, 3, 4), (0, 3, 5, 7), (2, 0, 1, 18)]:
    part = q[b:, h:, i:], k[b:, h:, j:], v[b:, h:, j:]
    expected = values(probabilities(*part[:2]) * factors(shape, 0.25, 99)[b:, h:, i:, j:], part[2])
    assert_close(run("part", *part, 99, 4, b, h, i, j), expected, 1e-12)

# Sequences are batches, and positions are relative to their start.
lengths = [(3, 70), (0, 5), (20, 33)] if SIMULATED else [(3, 70), (30, 333), (0, 5), (90, 601)]
cu_q, cu_k = (np.concatenate([[0], np.cumsum(each)]).astype(np.int32) for each in zip(*lengths, strict=True))
q, k, v = normal(rng, cu_q[-1], 4, 64), normal(rng, cu_k[-1], 2, 64), normal(rng, cu_k[-1], 2, 64)
found = run("ragged", q, k, v, cu_q, cu_k, -5)
for i, shape in enumerate(lengths):
    one = [x[None, n[i] : n[i + 1]].swapaxes(1, 2) for x, n in ((q, cu_q), (k, cu_k), (v, cu_k))]
    drop = factors((1, 4, *shape), 0.2, -5, at=(i, 0, 0, 0))
    assert_close(found[cu_q[i] : cu_q[i + 1]], values(probabilities(*one[:2]) * drop, one[2])[0].swapaxes(0, 1), 3e-6)

if SIMULATED:
    sys.exit()

q, k, v = tensors(6, 2, 130, 400)
one, two = (program.run(PROGRAM, "run_time_rate", q, k, v, 0.3, 5, check=False,
                        options=[*sys.argv[1:], f"--threads={n}"])
            for n in (1, 2))  # fmt: skip
assert (one == two).all(), "the bits depend on the number of threads"

for entry, slope in (("default", 1), ("of_a_score", 3), ("differentiated_gradient", 1)):
    for queries, keys, rate in ((150, 170, 0.3), (33, 33, 1.0), (7, 300, 0.0)):
        is_derived = entry == "differentiated_gradient"  # its rate is a constant
        rate = 0.3 if is_derived else rate
        q, k, v = tensors(4, 2, queries, keys, value_depth=32)
        gradient = normal(rng, 2, 4, queries, 32)
        keep, scale = causal(queries, keys), slope / np.sqrt(32)
        p, drop = probabilities(q * slope, k, keep), factors((2, 4, queries, keys), rate, 11)
        wide_k, wide_v = (np.repeat(x, 2, 1).astype(float) for x in (k, v))
        scores = np.where(keep, q @ wide_k.swapaxes(2, 3) * scale, -np.inf)
        exact, output = np.log(np.exp(scores).sum(-1)), values(p * drop, v).astype(np.float32)
        lse = exact.astype(np.float32)
        lse_low = (exact - lse).astype(np.float32)
        delta = (output * gradient).sum(-1).astype(np.float32)
        ds = p * (drop * (gradient @ wide_v.swapaxes(2, 3)) - delta[..., None]) * scale
        given = (11, output, lse, lse_low, gradient) if is_derived else (gradient, lse, delta, rate, 11)
        found = program.run(GRADIENTS, entry, q, k, v, *given, results=3, check=False, options=sys.argv[1:])
        grouped = [(x.swapaxes(2, 3) @ y).reshape(2, 2, 2, keys, 32).sum(2) for x, y in ((ds, q), (p * drop, gradient))]
        for each, expected in zip(found, [ds @ wide_k, *grouped], strict=True):
            assert_close(each, expected, 1e-5)
