"""Every operation that regions know, interpreted at extreme scores: NaN, infinities, zeros of both signs, large and tiny
numbers. The results are those of torch and NumPy. test_regions_ops.py compiles the same operations, for ordinary scores."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from node_values import evaluate
from test_regions_ops import GROUPS, NAMES

from saccade.regions import trace

SCORES = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 1e36, -1e36, 2.5, -2.5, 1e-30, 1e-44, 88.8, -104.0, 1e5, -0.5]
PLACES = [(0, 0, 0, 0), (1, 2, 4, 7), (0, 1, 3, 18)]  # of b, h, i and j


def called(library, function, score, place, precision):
    """The result of the function itself."""
    if library is np:
        with np.errstate(all="ignore"):
            return float(function(np.float32(score), *map(np.int64, place)))
    default = torch.get_default_dtype()
    try:
        # Python's floats and quotients of integers have the type of the score.
        torch.set_default_dtype(torch.float32 if precision == "f32" else torch.float64)
        return float(function(torch.tensor(score), *map(torch.tensor, place)))
    finally:
        torch.set_default_dtype(default)


def is_close(found, expected, precision):
    if precision == "f32" and abs(expected) > np.finfo(np.float32).max:  # NumPy computes some of them in float64
        expected = math.copysign(math.inf, expected)
    if math.isfinite(expected) and math.isfinite(found):
        return abs(found - expected) <= (1e-4 if precision == "f32" else 1e-12) * max(abs(expected), 1e-3)
    return math.isnan(found) == math.isnan(expected) and (math.isnan(found) or found == expected)


@pytest.mark.parametrize(("group", "name"), [(group, name) for group in GROUPS for name in GROUPS[group][2] if "mask" not in group])
def test_extreme_scores(group, name):
    library, role, texts, precision = GROUPS[group]
    function = eval(f"lambda s, b, h, i, j: {texts[name]}", NAMES[library])
    region = trace(function, role, precision)
    captures = {number: array.numpy() if isinstance(array, torch.Tensor) and array.dtype != torch.bfloat16 else array
                for number, array in zip(region.names, region.captures)}  # fmt: skip
    wrong = []
    for score in SCORES:
        for place in PLACES:
            expected = called(library, function, score, place, precision)
            given = score if precision == "f64" else float(np.float32(score))
            found = evaluate(region.root, (given, *place), captures)
            if not is_close(found, expected, precision):
                wrong.append(f"{score} at {place}: {found}, expected {expected}")
    assert not wrong, "\n".join([texts[name], *wrong])
