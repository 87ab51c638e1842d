"""`saccade.run` gives the function's results as arrays, and a refusal as an exception with the tool's exit code.

REQUIRES: numpy
RUN: %python %s %src %t
"""

import pathlib
import sys

import numpy as np

import saccade

graph = pathlib.Path(sys.argv[1]) / "examples" / "alibi.mlir"
random = np.random.default_rng(7)
query = random.standard_normal((1, 8, 5, 64)).astype(np.float32)
key, value = random.standard_normal((2, 1, 2, 9, 64)).astype(np.float32)
slope = np.linspace(0.1, 0.8, 8, dtype=np.float32)

(output,), _ = saccade.run(graph, "alibi", [query, key, value, slope])

# The same in NumPy, in float64: 4 query heads a key head, causal from the end.
wide = lambda x: np.repeat(x.astype(np.float64), 4, axis=1)
distance = np.arange(9)[None, :] - np.arange(5)[:, None]
scores = np.einsum("bhqd,bhkd->bhqk", query.astype(np.float64), wide(key)) / 8 + slope[:, None, None] * distance
scores = np.where(distance <= 4, scores, -np.inf)
p = np.exp(scores - scores.max(-1, keepdims=True))
expected = np.einsum("bhqk,bhkd->bhqd", p / p.sum(-1, keepdims=True), wide(value))
assert output.dtype == np.float32 and output.shape == (1, 8, 5, 64), (output.dtype, output.shape)
assert np.abs(output - expected).max() < 1e-5, np.abs(output - expected).max()

# A transposed view is not contiguous in memory; what counts are its elements.
(again,), _ = saccade.run(graph, "alibi", [np.asfortranarray(query), key, value, slope])
assert np.array_equal(again, output)

for arguments, code in [([query, key, value], 2), ([query, key[:, :1], value, slope], 1)]:
    try:
        saccade.run(graph, "alibi", arguments)
    except saccade.ToolError as failure:
        assert failure.code in (1, 2) and str(failure), failure
    else:
        raise AssertionError("a wrong call was not refused")
