"""Blocks from builders against NumPy: self-attention, cross-attention with padding, layers and stacks of an encoder
with the norm before and behind; and what the initialisers draw.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import math

import numpy as np
from saccade import builders

rng = np.random.default_rng(6)
erf = np.vectorize(math.erf, otypes=[float])


def normal(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def attention(w, name, x, source, heads, causal=False, lengths=None):
    project = lambda role, y: y @ w[f"{name}{role}"].T.astype(float) + w.get(f"{name}{role}_bias", 0)
    split = lambda y: y.reshape(*y.shape[:2], heads, -1).transpose(0, 2, 1, 3)
    q, k, v = split(project("q", x)), split(project("k", source)), split(project("v", source))
    scores = q @ k.transpose(0, 1, 3, 2) / math.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    if lengths is not None:
        scores = np.where(np.arange(scores.shape[-1]) < lengths[:, None, None, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    joined = (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[1], -1)
    return project("o", joined)


def norm(w, name, x):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w[f"{name}_gamma"] + w[f"{name}_beta"]


def encode(w, x, layers, heads, gelu, norm_first, lengths=None):
    for i in range(layers):
        feed = lambda y: y @ w[f"{i}_w1"].T.astype(float) + w[f"{i}_w1_bias"]
        active = lambda y: y * (1 + erf(y / math.sqrt(2))) / 2 if gelu else np.maximum(y, 0)
        parts = (lambda y: attention(w, f"{i}_", y, y, heads, lengths=lengths),
                 lambda y: active(feed(y)) @ w[f"{i}_w2"].T.astype(float) + w[f"{i}_w2_bias"])  # fmt: skip
        for number, part in enumerate(parts, 1):
            name = f"{i}_norm{number}"
            x = x + part(norm(w, name, x)) if norm_first else norm(w, name, x + part(x))
    return x


def check(found, expected, limit=5e-6):
    assert found.shape == expected.shape
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference < limit, difference


x, source = normal(2, 21, 64), normal(2, 13, 40)
lengths = np.array([13, 4], np.int32)
for options in ({}, {"bias": False}, {"causal": True}):
    block = builders.multi_head_attention(64, 4, **options)
    assert ("q_bias" in block.weights) == options.get("bias", True)
    w = block.init_weights(seed=1)
    w = {name: each + normal(*each.shape) * 0.1 for name, each in w.items()}
    check(block(x, **w), attention(w, "", x, x, 4, options.get("causal", False)))
block = builders.cross_attention(64, 40, 4, padding=True)
assert block.inputs == ("x", "source", "lengths")
w = block.init_weights(seed=2)
check(block(x, source, lengths, **w), attention(w, "", x, source, 4, lengths=lengths))

for layers, options in ((1, {}), (2, {"activation": "gelu", "norm_first": True}), (2, {"padding": True})):
    make = builders.encoder_layer if layers == 1 else lambda *sizes, **more: builders.encoder(layers, *sizes, **more)
    block = make(64, 4, 96, **options)
    w = {name: each + normal(*each.shape) * 0.1 for name, each in block.init_weights(seed=3).items()}
    more = [np.array([21, 9], np.int32)] if options.get("padding") else []
    expected = encode(w, x.astype(float), layers, 4, "activation" in options, "norm_first" in options, *more)
    check(block(x, *more, **w), expected)
half = builders.encoder_layer(64, 4, 96, element="f16")
w = half.init_weights(seed=3)
found = half(x.astype(np.float16), **{name: each.astype(np.float16) for name, each in w.items()})
check(found.astype(float), encode(w, x.astype(float), 1, 4, False, False), 2e-2)

# Glorot: the bound of the even distribution, the deviation of both, and other weights for other names and seeds.
even, bell = builders.glorot_uniform((300, 500), 1), builders.glorot_normal((300, 500), 1, gain=2.0)
assert 0.99 * math.sqrt(6 / 800) < np.abs(even).max() <= math.sqrt(6 / 800)
assert abs(even.std() / math.sqrt(2 / 800) - 1) < 0.01 and abs(bell.std() / (2 * math.sqrt(2 / 800)) - 1) < 0.01
w = block.init_weights(seed=4)
assert not np.array_equal(w["0_q"], w["0_k"]) and not np.array_equal(w["0_q"], block.init_weights(seed=5)["0_q"])
assert (w["0_q_bias"] == 0).all() and (w["0_norm1_gamma"] == 1).all()
for call, said in (
    (lambda: builders.multi_head_attention(64, 5), "embed_dim is 64, expected a multiple of the 5 heads"),
    (lambda: builders.encoder(1, 64, 4, 96, activation="tanh"), "activation is 'tanh', expected 'relu' or 'gelu'"),
    (lambda: block(x, **w), "inputs are x, lengths; found 1"),
    (lambda: block(x, lengths), "missing or unknown: 0_k"),
):
    try:
        call()
    except (TypeError, ValueError) as refusal:
        assert said in str(refusal), refusal
    else:
        raise AssertionError(f"not refused: {said}")
