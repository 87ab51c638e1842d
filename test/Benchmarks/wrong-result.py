"""A wrong or NaN result of Saccade ends the benchmark; one of a peer gives a blank cell and a reason.

REQUIRES: numpy
RUN: %python %s %src
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))

from saccade_bench import cases, problems, rounds, rows


class Plain:
    """A test double of a worker process: computes plain attention and corrupts one element of one row."""

    def __init__(self, error_added):
        self.error_added = error_added

    def call(self, method, *values):
        if method == "prepare":
            self.case = values[0]
            return 0.001, {}
        if method == "timed_run":
            return 0.001, 2.0
        return self.rows(*values) if method == "rows" else None

    def rows(self, rows):
        case, inputs = self.case, problems.make_inputs(self.case)
        query, key, value = (case.by_row(each.astype(np.float64)) for each in inputs[:3])
        shared = np.arange(case.heads) * case.kv_heads // case.heads
        scores = np.einsum("bhqd,bhkd->bhqk", query, key[:, shared]) / np.sqrt(case.depth)
        if case.has_bias:
            scores += inputs[3]
        i, j = np.ogrid[:case.queries, :case.keys]
        if case.mask != "full":
            scores[..., (j > i) | (i - j >= (case.window or case.keys))] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        output = np.einsum("bhqk,bhkd->bhqd", weights / weights.sum(-1, keepdims=True), value[:, shared])
        found = np.array([output[row] for row in rows])
        found[1, 3] += self.error_added
        return found

    def close(self):
        pass


class Peak:
    def call(self, method, type):
        return 1e9, 1e9


def measured(case, ours, peer):
    row, found = rows.Row(cases.parse(case)), rounds.Measurement()
    contenders = [rounds.Contender("saccade", lambda: Plain(ours), lambda row: row.case, is_peer=False),
                  rounds.Contender("peer", lambda: Plain(peer), lambda row: row.case)]
    rounds.measure(row, contenders, Peak(), 2, found, rounds.References())
    return found


# The reference agrees with plain attention for all masks, layouts and numbers of heads.
for text in ("2x4(2)x21x16 causal", "1x2x9x33x8 bias", "2x4(1)x21x16 window5 bshd", "3x2x17x8 causal bias bshd",
             "2x4(2)x1x19x8"):
    found = measured(text, 0, 0)
    assert max(found.errors.values()) < 1e-6, (text, found.errors)
    assert [sorted(each.rate) for each in found.rounds] == [["peer", "saccade"]] * 2

for error_added in (1e-4, np.nan, np.inf):
    found = measured("2x4(2)x21x16 causal f32", 0, error_added)
    assert "peer is wrong in 2x4(2)x21x16 causal f32: error " in found.failures["peer"], found.failures
    assert all("peer" not in each.rate for each in found.rounds)
    try:
        measured("2x4(2)x21x16 causal f32", error_added, 0)
    except rounds.WrongResult as error:
        assert "saccade is wrong in 2x4(2)x21x16 causal f32: error " in str(error), error
    else:
        raise AssertionError(f"a result with error {error_added} was accepted")
