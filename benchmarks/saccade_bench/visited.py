"""Counts the query-key pairs that a kernel visits, from its results.

The kernel is not instrumented. A NaN in V makes every sum NaN that it is multiplied into, even with the weight 0 of a
masked key. One call with COLUMNS value columns therefore finds the visiting queries of COLUMNS keys.
"""

import dataclasses

import numpy as np

import saccade

COLUMNS = 64


@dataclasses.dataclass
class Visits:
    """Pairs of one head: those that the mask keeps, and those that Q·Kᵀ and P·V multiply."""

    needed: int
    scores: int
    values: int

    @property
    def ratio(self):
        """Multiplications relative to the needed ones."""
        return (self.scores + self.values) / (2 * self.needed)


def lanes():
    """f32 lanes of a vector register of this processor."""
    with open("/proc/cpuinfo") as file:
        return 16 if "avx512f" in file.read() else 8


def visited_by_values(mask, length, to_type=lambda array: array):
    """[queries, keys]: whether P·V multiplies this pair. `to_type` converts the f32 arrays to the arguments of the
    kernel."""
    random = np.random.default_rng(3)
    query, key = (to_type(random.standard_normal((1, 1, length, COLUMNS), np.float32)) for _ in range(2))
    visited = np.zeros((length, length), bool)
    for first in range(0, length, COLUMNS):
        keys = np.arange(first, min(first + COLUMNS, length))
        values = np.zeros((1, 1, length, COLUMNS), np.float32)
        values[0, 0, keys, keys - first] = np.nan
        result = saccade.attention(query, key, to_type(values), mask=mask)[0, 0]
        result = result if isinstance(result, np.ndarray) else result.float().numpy()
        visited[:, keys] = np.isnan(result[:, : len(keys)])
    return visited


def count(mask, length, to_type=lambda array: array):
    """The visits of one head. Q·Kᵀ works on panels of two vector registers of keys; the last panel of a row may be a
    half. Its pairs are those of P·V, rounded up to panels."""
    visited = visited_by_values(mask, length, to_type)
    register = lanes()
    padded = np.pad(visited, ((0, 0), (0, -length % (2 * register))))
    halves = padded.reshape(length, -1, 2, register).any(axis=3)
    scores = (halves.any(axis=2) + halves[:, :, 1].astype(int)).sum() * register
    return Visits(needed(mask, length), int(scores), int(visited.sum()))


def needed(mask, length):
    """The number of pairs that the mask keeps."""
    position = np.arange(length)
    zero = np.zeros(1, int)
    return sum(int(np.broadcast_to(mask(zero, zero, i[:, None], position), (len(i), length)).sum())
               for i in np.array_split(position, -(-length // 512)))
