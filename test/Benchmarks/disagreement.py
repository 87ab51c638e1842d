"""A result that is wrong, or no number at all, ends a benchmark: speed of wrong code counts for nothing.

REQUIRES: numpy
RUN: %python %s %src
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))

from saccade_bench import cases, rounds


class Worker:
    """Computes plain attention and spoils one element of one row."""

    name = "worker"

    def __init__(self, spoil):
        self.spoil = spoil

    def call(self, method, rows):
        query, key, value = (each.astype(np.float64) for each in cases.make_inputs(case))
        shared = np.arange(case.heads) * case.key_heads // case.heads
        scores = np.einsum("bhqd,bhkd->bhqk", query, key[:, shared]) / np.sqrt(case.depth)
        scores += np.triu(np.full((case.length, case.length), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        output = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), value[:, shared])
        found = np.array([output[row] for row in rows])
        found[1, 3] += self.spoil
        return found


case = cases.Case.parse("2x4(2)x21x16 causal f32")
errors = rounds.check(case, [Worker(0)])
assert errors["worker"] < 1e-12, errors
for spoil in (1e-4, np.nan, np.inf):
    try:
        rounds.check(case, [Worker(spoil)])
    except rounds.Disagreement as error:
        assert "worker is wrong in 2x4(2)x21x16 causal f32: row (batch, head, query)" in str(error), error
    else:
        raise AssertionError(f"a result off by {spoil} was accepted")
