"""Kernels visit few more query-key pairs than the mask keeps, counted from their results.

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

# Masks that compare floats are not analysed: all pairs are visited, and counted.
keep = np.ones(300, np.float32)
assert visited.visited_by_values(lambda b, h, i, j: (keep[j] > 0.5) & (keep[i] > 0.5), 300).all()

ids = mask_cases.document_ids(2048, 16)
MAX_RATIO = {
    "causal, 512": (masks.causal(), 512, 1.15),
    "causal, 1024": (masks.causal(), 1024, 1.15),
    "window": (masks.window(127), 1024, 1.2),
    "documents": (masks.documents(ids), 2048, 1.35),
    "documents, causal": (masks.documents(ids) & masks.causal(), 2048, 1.35),
    "documents in reverse order": (masks.documents(ids[::-1].copy()), 2048, 1.35),
    "longformer": (masks.longformer(128, 4), 1024, 1.35),
    "bigbird": (masks.bigbird(2048, 32), 2048, 1.25),
}  # fmt: skip
failed = []
for name, (mask, length, maximum) in MAX_RATIO.items():
    found = visited.count(mask, length)
    print(f"{name}: {found.needed} needed, {found.ratio:.3f} visited per needed pair")
    assert found.ratio >= 1, name
    if found.ratio > maximum:
        failed.append(name)
assert not failed, failed
