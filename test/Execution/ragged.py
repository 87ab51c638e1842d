#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Ragged sequences: each attends only to itself, for any lengths; rows after the last sequence are 0; invalid offsets
are rejected. Every program is checked against the float64 reference and against NumPy."""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from program import assert_close, normal, run, softmax

PROGRAM = pathlib.Path(__file__).parent / "Inputs" / "ragged.mlir"
rng = np.random.default_rng(11)


def offsets(lengths, element=np.int32):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(element)


def one(q, k, v, is_causal):
    """Attention of one sequence, [length, heads, size], and its log-sum-exp [heads, length]."""
    group = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, group, 1), np.repeat(v, group, 1)
    scores = np.einsum("qhd,khd->hqk", q.astype(float), k.astype(float)) / np.sqrt(q.shape[2])
    if is_causal:
        reach = np.arange(len(q))[:, None] + len(k) - len(q)
        scores = np.where(np.arange(len(k)) <= reach, scores, -np.inf)
    top = np.max(scores, -1, initial=-np.inf)
    finite = np.where(np.isfinite(top), top, 0)
    with np.errstate(divide="ignore"):
        lse = np.log(np.exp(scores - finite[..., None]).sum(-1)) + finite
    return np.einsum("hqk,khd->qhd", softmax(scores), v.astype(float)), lse


def ragged_reference(q, k, v, cu_q, cu_k, is_causal=False):
    output = np.zeros((len(q), q.shape[1], v.shape[2]))
    lse = np.full((q.shape[1], len(q)), -np.inf)
    for i in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        output[rows], lse[:, rows] = one(q[rows], k[keys], v[keys], is_causal)
    return output, lse


# Empty sequences, single rows, a sequence of several tasks; with and without rows after the last sequence.
lengths = [(3, 5), (0, 7), (1, 1), (600, 700), (4, 0), (0, 0), (33, 1030), (1, 2000), (130, 64)]
for rest in (0, 45):
    cu_q, cu_k = (offsets([pair[side] for pair in lengths]) for side in (0, 1))
    q, k, v = (normal(rng, n, h, d) for n, h, d in ((cu_q[-1] + rest, 4, 64), (cu_k[-1] + 9, 2, 64), (cu_k[-1] + 9, 2, 40)))
    # Rows after the last sequence must not matter.
    q[cu_q[-1]:], k[cu_k[-1]:], v[cu_k[-1]:] = np.nan, np.nan, np.nan
    output, lse = run(PROGRAM, "plain", q, k, v, cu_q, cu_k, results=2)
    expected, expected_lse = ragged_reference(q, k, v, cu_q, cu_k)
    assert_close(output, expected, 2e-6)
    assert (np.isneginf(lse) == np.isneginf(expected_lse)).all()
    assert_close(np.where(np.isneginf(lse), 0, lse), np.where(np.isneginf(lse), 0, expected_lse), 2e-6)

v = normal(rng, cu_k[-1], 2, 64)
q, k = q[:cu_q[-1]], k[:cu_k[-1]]
assert_close(run(PROGRAM, "causal", q, k, v, cu_q, cu_k), ragged_reference(q, k, v, cu_q, cu_k, True)[0], 2e-6)

# No sequence at all, with rows and without; no heads.
nothing = np.zeros(1, np.int32)
for rows, heads in ((5, 2), (0, 2), (5, 0)):
    x = normal(rng, rows, heads, 64)
    assert (run(PROGRAM, "causal", x, x, x, nothing, nothing) == 0).all()

# Regions count within their own sequence; lengths, sinks, positions, tallies and all results go with it.
lengths = [40, 0, 1, 77, 650]
cu = offsets(lengths, np.int64)
n = cu[-1] + 3
everything = [(normal(rng, n, 4, 33), "bf16"), (normal(rng, 2, n, 33), "bf16"), (normal(rng, n, 2, 24), "bf16"), cu,
              np.array([37, 0, 1, 90, 600], np.int32), np.array([40, 3, 0, 50, 700], np.int32), normal(rng, 9, 4),
              normal(rng, 4)]
for at in (0, 3):
    run(PROGRAM, "everything", *everything, at, results=5)

# Ragged queries with a batched cache, and batched queries with ragged keys.
cu_q = offsets([1, 3, 0, 20])
run(PROGRAM, "cache", normal(rng, 26, 4, 32), normal(rng, 4, 2, 300, 32), normal(rng, 4, 2, 300, 32), cu_q,
    np.array([300, 17, 5, 0], np.int32), results=2)
run(PROGRAM, "packed_keys", rng.standard_normal((3, 3, 20, 16)), rng.standard_normal((90, 16)),
    rng.standard_normal((90, 16)), np.array([0, 50, 50, 80]))

# Computed offsets are not checked: accesses stay in bounds, and every row is written.
x = normal(rng, 50, 2, 64)
for given in ([0, 20, 50], [0, 60, 20, 10], [-5, 7, 3, 1000], [30, 40]):
    output = run(PROGRAM, "computed_offsets", x, np.array(given, np.int32), 1, check=given == [0, 20, 50])
    assert np.isfinite(output).all()


def refusal(q, k, cu_q, cu_k):
    """The diagnostic for these offsets."""
    with tempfile.TemporaryDirectory() as name:
        line = ["saccade-run", PROGRAM, "--entry=causal", f"--arg={q}x2x64:f32:1", f"--arg={k}x2x64:f32:2",
                f"--arg={k}x2x64:f32:3"]
        for i, cu in enumerate((cu_q, cu_k)):
            np.save(f"{name}/{i}.npy", np.array(cu, np.int32))
            line.append(f"--arg={name}/{i}.npy")
        done = subprocess.run(line, capture_output=True, text=True)
        assert done.returncode == 1, (done.returncode, done.stderr)
        return done.stderr


for arguments, expected in (
    ((9, 9, [1, 9], [0, 9]), "cu_seqlens_q has another first element: found 1, expected 0"),
    ((9, 9, [0, 9], [-3, 9]), "cu_seqlens_k has another first element: found -3, expected 0"),
    (
        (9, 9, [0, 6, 5, 9], [0, 1, 2, 3]),
        "cu_seqlens_q has an element below the one before it: found 5, expected at least 6",
    ),
    ((9, 9, [0, -1], [0, 9]), "cu_seqlens_q has an element below the one before it: found -1, expected at least 0"),
    ((9, 9, [0, 9], [0, 12]), "cu_seqlens_k exceeds the rows of key: found 12, expected at most 9"),
    ((9, 9, [0, 4, 9], [0, 9]), "key has another batch size than query: found 1, expected 2"),
    ((9, 9, [], [0, 9]), "cu_seqlens_q has no element: found 0, expected at least 1"),
    ((9, 9, [[0, 9]], [0, 9]), "dimensions, expected 1"),
):
    said = refusal(*arguments)
    assert expected in said, said
