#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""attn.linear against the recurrence written in NumPy, with the four update rules of ONNX's LinearAttention in its
layout [B, T, H·D]: grouped and single KV heads, decay per head and per key dimension, beta per head and for all heads,
initial and final state. Two runs that pass on the state equal one long run. Strong decays stay accurate."""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from linear_program import program
from program import assert_close, normal, run

rng = np.random.default_rng(3)


def recurrence(q, k, v, decay=None, beta=None, past=None, scale=None):
    """ONNX's definition. q [B, T, Hq, d_k], k, v [B, T, Hk, ...], decay [B, T, Hk, 1 or d_k], beta [B, T, 1 or Hk]."""
    (batch, length, heads, depth), (kv_heads, width) = q.shape, v.shape[2:]
    state = np.zeros((batch, kv_heads, depth, width)) if past is None else past.astype(float)
    output = np.zeros((batch, length, heads, width))
    for t in range(length):
        if decay is not None:
            state = state * np.exp(decay[:, t].astype(float))[..., None]
        value = v[:, t].astype(float)
        if beta is not None:
            value = beta[:, t, :, None] * (value - np.einsum("bhdm,bhd->bhm", state, k[:, t]))
        state = state + k[:, t, :, :, None] * value[:, :, None, :]
        own = np.repeat(state, heads // kv_heads, 1)
        output[:, t] = (scale or depth**-0.5) * np.einsum("bhd,bhdm->bhm", q[:, t], own)
    return output, state


def both(q, k, v, decay=None, beta=None, past=None, scale=None, element="f32"):
    """The results of the program and of NumPy."""
    heads, (kv_heads, width), depth = q.shape[2], v.shape[2:], q.shape[3]
    kind = None if decay is None else "hd" if decay.shape[-1] > 1 else "h"
    rates = None if beta is None else beta.shape[-1] > 1 or kv_heads == 1
    text = program(element, heads, kv_heads, depth, width, kind, rates, past is not None, scale)
    merged = [x.reshape(*x.shape[:2], -1) for x in (q, k, v, decay) if x is not None]
    arguments = merged + [x for x in (beta, past) if x is not None]
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "linear.mlir"
        file.write_text(text)
        output, state = run(file, "linear", *[(x, element) for x in arguments], results=2)
    return (output.reshape(*q.shape[:3], width), state), recurrence(q, k, v, decay, beta, past, scale)


def draw(batch, length, heads, kv_heads, depth, width):
    """Queries, normalized keys, values, log decays and betas."""
    q, k, v = (normal(rng, batch, length, n, d) for n, d in ((heads, depth), (kv_heads, depth), (kv_heads, width)))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    decay = -np.abs(normal(rng, batch, length, kv_heads, depth)) * 0.1
    return q, k, v, decay, rng.random((batch, length, kv_heads), np.float32)


for shape in ((2, 5, 4, 4, 8, 8), (1, 70, 4, 2, 16, 24), (2, 130, 3, 1, 32, 16), (1, 1, 2, 2, 8, 8)):
    q, k, v, g, beta = draw(*shape)
    past = normal(rng, shape[0], shape[3], shape[4], shape[5])
    rules = {"linear": {}, "gated": {"decay": g}, "gated head": {"decay": g[..., :1]}, "delta": {"beta": beta},
             "gated delta": {"decay": g, "beta": beta}, "gated delta head": {"decay": g[..., :1], "beta": beta},
             "one beta": {"decay": g[..., :1], "beta": beta[..., :1]}}  # fmt: skip
    for rule, factors in rules.items():
        for more in ({}, {"past": past, "scale": 0.3}):
            found, expected = both(q, k, v, **factors, **more)
            for one, other in zip(found, expected):
                assert_close(one, other, 2e-5)
found, expected = both(q, k, v, decay=g, beta=beta, element="f16")
assert_close(found[0], expected[0], 2e-2)

# A run equals the runs of its parts, each with the final state of the one before.
q, k, v, g, beta = draw(1, 150, 2, 2, 16, 16)
for factors in ({}, {"decay": g}, {"decay": g[..., :1], "beta": beta}):
    (whole, last), _ = both(q, k, v, **factors)
    outputs, state = [], None
    for part in (slice(0, 1), slice(1, 90), slice(90, 150)):
        mine = {name: x[:, part] for name, x in factors.items()}
        (output, state), _ = both(q[:, part], k[:, part], v[:, part], past=state, **mine)
        outputs.append(output)
    assert_close(np.concatenate(outputs, 1), whole, 2e-6)
    assert_close(state, last, 2e-6)

# Decays from 1 to e^-300 and 0 within a chunk.
q, k, v, g, beta = draw(1, 100, 2, 2, 16, 16)
for decay in (g[..., :1], g):
    for strength in (3000.0, np.inf):
        strong = np.where(rng.random(decay.shape) < 0.2, np.float32(-strength), decay).astype(np.float32)
        for rates in (None, beta):
            found, expected = both(q, k, v, decay=strong, beta=rates)
            for one, other in zip(found, expected):
                assert np.isfinite(one).all()
                assert_close(one, other, 2e-5)
