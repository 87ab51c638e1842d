"""Random functions trace over torch and over NumPy alike, and what is compiled of them equals float64 torch on grids.

All of 200 functions are traced, every fifth is compiled. SACCADE_SEED and SACCADE_FUNCTIONS select others, of which
every one is compiled.
"""

import functools
import os

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from random_functions import RandomFunctions
from region_reference import DEPTH, QUERIES, Case, inputs, run, shape

FIRST, COUNT = int(os.environ.get("SACCADE_SEED", "0")), int(os.environ.get("SACCADE_FUNCTIONS", "200"))
SEEDS = range(FIRST, FIRST + COUNT)
COMPILED = [seed for seed in SEEDS if "SACCADE_FUNCTIONS" in os.environ or seed % 5 == 0]
PART = 40  # functions in one program


@functools.cache
def traced(seed):
    """The functions of a seed, and their cases over torch and over NumPy."""
    precision = "f64" if seed % 3 == 0 else "f32"
    queries = QUERIES[seed // 10 % 2]
    floats = [np.float64] if precision == "f64" else [np.float32, np.float64]
    functions = RandomFunctions(seed, shape(queries), floats=floats)
    return functions, [Case(f"seed {seed}", *functions.make(library), precision, queries) for library in (torch, np)]


def case_of(seed):
    """The case that is compiled: torch's or NumPy's."""
    return traced(seed)[1][seed // 5 % 2]


@functools.cache
def results(part):
    """(softmax, log-sum-exp) by seed, of one program."""
    seeds = COMPILED[part * PART: (part + 1) * PART]
    return dict(zip(seeds, run([case_of(seed) for seed in seeds])))


@pytest.mark.parametrize("seed", SEEDS)
def test_regions_of_random_functions_are_reusable(seed):
    _, cases = traced(seed)
    assert all(region.is_reusable for case in cases for region in (case.score_region, case.mask_region) if region)


@pytest.mark.parametrize("seed", COMPILED)
def test_compiled_random_function_agrees_with_float64(seed):
    functions, case = traced(seed)[0], case_of(seed)
    softmax, lse = results(COMPILED.index(seed) // PART)[seed]
    query, key, _ = inputs(case.queries)
    scaled = torch.tensor(np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(DEPTH))
    scores, allowed = functions.on_grid(scaled)
    scores = torch.where(allowed, scores, -torch.inf)
    expected = scores.softmax(-1).nan_to_num().numpy()
    error, limit = np.abs(softmax - expected).max(), 2e-5 if case.precision == "f32" else 1e-12
    assert error < limit, functions.text
    assert np.allclose(lse, scores.logsumexp(-1), limit, limit), functions.text
