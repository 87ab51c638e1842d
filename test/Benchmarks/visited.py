"""Kernels multiply hardly more pairs of queries and keys than the mask lets through, counted from their results.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s %src
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))

from saccade import masks
from saccade_bench import mask_cases, visited

# A comparison of numbers is not understood, so that everything is visited: the counter sees it.
keep = np.ones(300, np.float32)
assert visited.visited_by_values(lambda b, h, i, j: (keep[j] > 0.5) & (keep[i] > 0.5), 300).all()

ids = mask_cases.document_ids(2048, 16)
MOST = {
    "causal, 512": (masks.causal(), 512, 1.15),
    "causal, 1024": (masks.causal(), 1024, 1.15),
    "window": (masks.window(127), 1024, 1.2),
    "documents": (masks.documents(ids), 2048, 1.35),
    "documents, causal": (masks.documents(ids) & masks.causal(), 2048, 1.35),
    "documents, the last one first": (masks.documents(ids[::-1].copy()), 2048, 1.35),
    "longformer": (masks.longformer(128, 4), 1024, 1.35),
    "bigbird": (masks.bigbird(2048, 32), 2048, 1.25),
}  # fmt: skip
failed = []
for name, (mask, length, most) in MOST.items():
    found = visited.count(mask, length)
    print(f"{name}: {found.needed} needed, {found.ratio:.3f} times as many visited")
    assert found.ratio >= 1, name
    if found.ratio > most:
        failed.append(name)
assert not failed, failed
