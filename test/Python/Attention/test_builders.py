"""Blocks from builders agree with NumPy: self-attention, cross-attention with padding, layers and stacks of an encoder
with the norm before and behind. The initialisers draw what they promise."""

import math

import numpy as np
import pytest

from saccade import builders

RNG = np.random.default_rng(6)
erf = np.vectorize(math.erf, otypes=[float])


def normal(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


X, SOURCE = normal(2, 21, 64), normal(2, 13, 40)
LENGTHS = np.array([13, 4], np.int32)


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


def encode(w, x, layers, heads, gelu=False, norm_first=False, lengths=None):
    for i in range(layers):
        feed = lambda y: y @ w[f"{i}_w1"].T.astype(float) + w[f"{i}_w1_bias"]
        active = lambda y: y * (1 + erf(y / math.sqrt(2))) / 2 if gelu else np.maximum(y, 0)
        parts = (lambda y: attention(w, f"{i}_", y, y, heads, lengths=lengths),
                 lambda y: active(feed(y)) @ w[f"{i}_w2"].T.astype(float) + w[f"{i}_w2_bias"])  # fmt: skip
        for number, part in enumerate(parts, 1):
            name = f"{i}_norm{number}"
            x = x + part(norm(w, name, x)) if norm_first else norm(w, name, x + part(x))
    return x


def disturbed(weights):
    """The weights with noise, so that biases are not 0 and gains not 1."""
    rng = np.random.default_rng(7)
    return {name: each + rng.standard_normal(each.shape).astype(np.float32) * 0.1 for name, each in weights.items()}


def expect_near(found, expected, limit=5e-6):
    assert found.shape == expected.shape
    difference = np.abs(found - expected).max() / np.abs(expected).max()
    assert difference < limit, difference


@pytest.fixture(scope="module")
def padded_stack():
    """Two layers over sequences with padding."""
    return builders.encoder(2, 64, 4, 96, padding=True)


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"causal": True}], ids=["plain", "no-bias", "causal"])
def test_self_attention_agrees(options):
    block = builders.multi_head_attention(64, 4, **options)
    assert ("q_bias" in block.weights) == options.get("bias", True)
    w = disturbed(block.init_weights(seed=1))
    expect_near(block(X, **w), attention(w, "", X, X, 4, options.get("causal", False)))


def test_cross_attention_with_padding_agrees():
    block = builders.cross_attention(64, 40, 4, padding=True)
    assert block.inputs == ("x", "source", "lengths")
    w = block.init_weights(seed=2)
    expect_near(block(X, SOURCE, LENGTHS, **w), attention(w, "", X, SOURCE, 4, lengths=LENGTHS))


def test_encoder_layer_agrees():
    block = builders.encoder_layer(64, 4, 96)
    w = disturbed(block.init_weights(seed=3))
    expect_near(block(X, **w), encode(w, X.astype(float), 1, 4))


def test_encoder_with_gelu_and_the_norm_first_agrees():
    block = builders.encoder(2, 64, 4, 96, activation="gelu", norm_first=True)
    w = disturbed(block.init_weights(seed=3))
    expect_near(block(X, **w), encode(w, X.astype(float), 2, 4, gelu=True, norm_first=True))


def test_encoder_with_padding_agrees(padded_stack):
    lengths = np.array([21, 9], np.int32)
    w = disturbed(padded_stack.init_weights(seed=3))
    expect_near(padded_stack(X, lengths, **w), encode(w, X.astype(float), 2, 4, lengths=lengths))


def test_encoder_layer_in_half_precision_agrees():
    half = builders.encoder_layer(64, 4, 96, element="f16")
    w = half.init_weights(seed=3)
    found = half(X.astype(np.float16), **{name: each.astype(np.float16) for name, each in w.items()})
    expect_near(found.astype(float), encode(w, X.astype(float), 1, 4), 2e-2)


# --- Initial weights.


def test_glorot_has_its_bound_and_deviation():
    even, bell = builders.glorot_uniform((300, 500), 1), builders.glorot_normal((300, 500), 1, gain=2.0)
    assert 0.99 * math.sqrt(6 / 800) < np.abs(even).max() <= math.sqrt(6 / 800)
    assert abs(even.std() / math.sqrt(2 / 800) - 1) < 0.01
    assert abs(bell.std() / (2 * math.sqrt(2 / 800)) - 1) < 0.01


def test_glorot_of_many_matrices_is_that_of_each():
    even, bell = builders.glorot_uniform((100, 30, 50)), builders.glorot_normal((100, 30, 50))
    assert 0.99 * math.sqrt(6 / 80) < np.abs(even).max() <= math.sqrt(6 / 80)
    assert abs(bell.std() / math.sqrt(2 / 80) - 1) < 0.01


def test_other_names_and_seeds_draw_other_weights(padded_stack):
    w = padded_stack.init_weights(seed=4)
    assert not np.array_equal(w["0_q"], w["0_k"])
    assert not np.array_equal(w["0_q"], padded_stack.init_weights(seed=5)["0_q"])


def test_biases_begin_at_0_and_gains_at_1(padded_stack):
    w = padded_stack.init_weights(seed=4)
    assert (w["0_q_bias"] == 0).all()
    assert (w["0_norm1_gamma"] == 1).all()


# --- What is refused.


def refused(said, call, *arguments, **named):
    with pytest.raises((TypeError, ValueError)) as refusal:
        call(*arguments, **named)
    assert said in str(refusal.value)


def test_heads_that_do_not_divide_the_width_are_refused():
    refused("embed_dim is 64, expected a multiple of the 5 heads", builders.multi_head_attention, 64, 5)


def test_unknown_activation_is_refused():
    refused("activation is 'tanh', expected 'relu' or 'gelu'", builders.encoder, 1, 64, 4, 96, activation="tanh")


def test_missing_input_is_refused(padded_stack):
    refused("inputs are x, lengths; found 1", padded_stack, X, **padded_stack.init_weights(seed=4))


def test_missing_weights_are_refused(padded_stack):
    refused("missing or unknown: 0_k", padded_stack, X, LENGTHS)
