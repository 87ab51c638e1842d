"""Linear attention, Performer and Linformer from Python, in NumPy: the recurrence, the error of random features,
which falls with their number, and the projection along the length; the examples in MLIR compute the same.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import math
import pathlib

import numpy as np
import saccade

rng = np.random.default_rng(5)
EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def softmax_attention(q, k, v, causal=False):
    scores = np.einsum("bhqd,bhkd->bhqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:]) > 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def error(found, expected):
    return np.linalg.norm(found.astype(float) - expected) / np.linalg.norm(expected)


# The op: features and normalization, then the rule with decay and beta, handing a state over.
q, k, v = (normal(2, 2, 90, 16) for _ in range(3))
phi = lambda x: np.where(x > 0, x + 1, np.exp(x.astype(float)))
for causal in (False, True):
    weights = phi(q) @ phi(k).transpose(0, 1, 3, 2) * (np.tri(90) if causal else 1)
    found = saccade.linear_attention(q, k, v, feature_map="elu+1", normalize=True, causal=causal)
    assert error(found, weights / weights.sum(-1, keepdims=True) @ v) < 1e-6
k /= np.linalg.norm(k, axis=-1, keepdims=True)
g, beta = -np.abs(normal(2, 2, 90)), rng.random((2, 2, 90), dtype=np.float32)
whole, last = saccade.linear_attention(q, k, v, causal=True, decay=g, beta=beta, return_state=True)
state = np.zeros((2, 2, 16, 16))
for i in range(90):
    state = state * np.exp(g[:, :, i, None, None])
    answer = np.einsum("bhdm,bhd->bhm", state, k[:, :, i])
    state = state + np.einsum("bhd,bhm->bhdm", k[:, :, i], beta[:, :, i, None] * (v[:, :, i] - answer))
    assert error(whole[:, :, i], np.einsum("bhdm,bhd->bhm", state, q[:, :, i])) < 1e-5
assert error(last, state) < 1e-5
parts, state = [], None
for part in (slice(0, 33), slice(33, 90)):
    factors = {"decay": g[:, :, part], "beta": beta[:, :, part], "state": state}
    mine = [x[:, :, part] for x in (q, k, v)]
    output, state = saccade.linear_attention(*mine, causal=True, return_state=True, **factors)
    parts.append(output)
assert error(np.concatenate(parts, 2), whole) < 1e-6

# Performer: the error to softmax attention falls as 1/√features, over all keys and causal.
q, k, v = (normal(1, 2, 100, 16) for _ in range(3))
q, k = q / 2, k / 2  # the variance of a feature grows as exp(|q + k|²/√d)
for causal in (False, True):
    exact, errors = softmax_attention(q, k, v, causal), []
    for features in (16, 64, 256, 1024):
        draws = [saccade.performer(q, k, v, projection=saccade.orthogonal_features(features, 16, seed), causal=causal)
                 for seed in range(4)]  # fmt: skip
        errors.append(np.mean([error(draw, exact) for draw in draws]))
    assert all(later < 0.85 * before for before, later in zip(errors, errors[1:])), errors
    assert errors[-1] < errors[0] / 3, errors
# Large logits: nothing overflows.
found = saccade.performer(q * 30, k * 30, v, projection=saccade.orthogonal_features(64, 16))
assert np.isfinite(found).all()
projection = saccade.orthogonal_features(64, 16)
half = [x.astype(np.float16) for x in (q, k, v, projection)]
expected = saccade.performer(q, k, v, projection=projection).astype(float)
assert error(saccade.performer(*half[:3], projection=half[3]), expected) < 2e-2
block = projection[:16].astype(float)
block /= np.linalg.norm(block, axis=1, keepdims=True)
assert np.abs(block @ block.T - np.eye(16)).max() < 1e-6, "directions within a block are orthogonal"

# Linformer: exact with the identity as projection, else what NumPy makes of it.
identity = np.eye(100, dtype=np.float32)
found = saccade.linformer(q, k, v, key_projection=identity, value_projection=identity)
assert error(found, softmax_attention(q, k, v)) < 1e-6
e, f = normal(24, 100) / 10, normal(24, 100) / 10
found = saccade.linformer(q, k, v, key_projection=e, value_projection=f)
assert error(found, softmax_attention(q, e @ k, f @ v)) < 1e-5

# The examples.
q, k, v = (normal(2, 2, 70, 64) for _ in range(3))
projection = saccade.orthogonal_features(256, 64)
example = saccade.compile(EXAMPLES / "performer.mlir")
for causal, name in ((False, "performer"), (True, "performer_causal")):
    expected = saccade.performer(q, k, v, projection=projection, causal=causal)
    assert error(example[name](q, k, v, projection), expected.astype(float)) < 1e-6
e, f = normal(24, 70), normal(24, 70)
expected = saccade.linformer(q, k, v, key_projection=e, value_projection=f)
assert error(saccade.compile(EXAMPLES / "linformer.mlir")["linformer"](q, k, v, e, f), expected.astype(float)) < 1e-6

tiny = saccade.linear_attention(q, k, v, scale=1e-5)
assert error(tiny, saccade.linear_attention(q, k, v).astype(float) * 1e-5) < 1e-6

any_state = saccade.compile("""func.func @f(%q: tensor<?x8xf32>, %s: tensor<?x?xf32>) -> tensor<?x8xf32> {
  %o = attn.linear %q[s,d], %q[s,d], %q[s,d] state(%s : tensor<?x?xf32>)
    : (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) -> tensor<?x8xf32>
  return %o : tensor<?x8xf32>
}""")
for call, said in (
    (lambda: any_state.f(normal(5, 8), normal(8, 7)), "another number of columns than the output requires: found 7, expected 8"),
    (lambda: any_state.f(normal(5, 8), normal(9, 8)), "state has another extent of 'd' than key: found 9, expected 8"),
    (lambda: saccade.linear_attention(q, k, v, feature_map="cosine"), "'cosine', expected one of identity, relu, elu+1"),
    (lambda: saccade.linear_attention(q, k[:, :, :9], v[:, :, :9], causal=True), "key has another length than query"),
    (lambda: saccade.linear_attention(q, k, v[:, :, :9]), "value has another length than key"),
    (lambda: saccade.linear_attention(q.astype(np.int32), k, v), "elements of type int32"),
    (lambda: saccade.linear_attention(q, k, v, scale=math.inf), "scale is inf, expected a finite number"),
):
    try:
        call()
    except (TypeError, ValueError) as refusal:
        assert said in str(refusal), refusal
    else:
        raise AssertionError(f"not refused: {said}")
