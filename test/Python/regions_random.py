"""Random functions trace over torch and over NumPy alike, and what is compiled of them equals float64 torch on grids.

REQUIRES: numpy, torch
RUN: %python %s
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))

import numpy as np
import torch
from random_functions import RandomFunctions
from region_reference import DEPTH, SHAPE, Case, inputs, run

query, key, _ = inputs()
scaled = torch.tensor(np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(DEPTH))
first, count = (int(sys.argv[1]), int(sys.argv[2])) if len(sys.argv) > 2 else (0, 200)

cases = []
for seed in range(first, first + count):
    precision = "f64" if seed % 3 == 0 else "f32"
    functions = RandomFunctions(seed, SHAPE, floats=[np.float64] if precision == "f64" else [np.float32, np.float64])
    traced = [Case(f"seed {seed}", *functions.make(library), precision) for library in (torch, np)]
    assert all(region.is_reusable for case in traced for region in (case.score_region, case.mask_region) if region)
    # Running all of them takes a while, tracing does not.
    if len(sys.argv) > 2 or seed % 5 == 0:
        cases.append((traced[seed // 5 % 2], functions))

for at in range(0, len(cases), 40):
    part = cases[at: at + 40]
    for (case, functions), (softmax, lse) in zip(part, run([case for case, _ in part])):
        scores, allowed = functions.on_grid(scaled)
        scores = torch.where(allowed, scores, -torch.inf)
        expected = scores.softmax(-1).nan_to_num().numpy()
        error, limit = np.abs(softmax - expected).max(), 2e-5 if case.precision == "f32" else 1e-12
        is_near = error < limit and np.allclose(lse, scores.logsumexp(-1), limit, limit)
        assert is_near, f"{case.name}: {error}\n{functions.text}"
