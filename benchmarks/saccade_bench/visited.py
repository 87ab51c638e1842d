"""Which pairs of a query and a key a kernel really works on, found out from its results.

Nothing in the kernel counts. A NaN among the values makes every sum NaN that it is multiplied into, even with the weight 0
of a key that a query does not see. So one call tells, for as many keys as there are columns, which rows work on them.
"""

import dataclasses

import numpy as np

import saccade

COLUMNS = 64


@dataclasses.dataclass
class Visits:
    """Pairs of one head: how many the mask lets through, and how many each of the two products multiplies."""

    needed: int
    scores: int
    values: int

    @property
    def ratio(self):
        """Multiplications done for each one needed."""
        return (self.scores + self.values) / (2 * self.needed)


def lanes():
    """Numbers of 32 bits in a register of this processor."""
    with open("/proc/cpuinfo") as file:
        return 16 if "avx512f" in file.read() else 8


def visited_by_values(mask, length, to_type=lambda array: array):
    """[queries, keys]: whether the product of weights and values multiplies this pair. `to_type` makes the arrays that
    the kernel is called with of f32."""
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
    """The visits of one head. Scores are multiplied in panels of two registers of keys, of which the last one of a row may be
    half a panel; their pairs are those of the values, rounded to these."""
    visited = visited_by_values(mask, length, to_type)
    register = lanes()
    padded = np.pad(visited, ((0, 0), (0, -length % (2 * register))))
    halves = padded.reshape(length, -1, 2, register).any(axis=3)
    scores = (halves.any(axis=2) + halves[:, :, 1].astype(int)).sum() * register
    return Visits(needed(mask, length), int(scores), int(visited.sum()))


def needed(mask, length):
    """The pairs that the mask lets through."""
    position = np.arange(length)
    zero = np.zeros(1, int)
    return sum(int(np.broadcast_to(mask(zero, zero, i[:, None], position), (len(i), length)).sum())
               for i in np.array_split(position, -(-length // 512)))
