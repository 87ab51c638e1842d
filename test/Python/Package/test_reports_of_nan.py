"""Comparisons notice a NaN wherever it is: `error > bound` is false for it, and max() loses it unless it comes first."""

import math
import pathlib
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).parents[3]
sys.path[:0] = [str(ROOT / "benchmarks/device"), str(ROOT / "test/Fuzz/Inputs"), str(ROOT / "test/Fuzz")]

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(("found", "expected"), [
    ([1.0, NAN, 2.0], [1.0, 2.0, 2.0]), ([1.0, 2.0], [1.0, NAN]), ([NAN], [NAN]), ([INF], [-INF]), ([1.0], [INF]),
], ids=["found", "expected", "both", "other infinity", "infinity expected"])  # fmt: skip
def test_distance_of_a_device_case_is_infinite(found, expected):
    from saccade_device.cases import distance

    assert distance(found, expected) == INF
    assert max(0.0, distance(found, expected) / 0.1) == INF


def test_distance_of_equal_infinities_is_that_of_the_rest():
    from saccade_device.cases import distance

    assert distance([INF, 1.0], [INF, 1.0]) == 0


@pytest.mark.parametrize("place", ["softmax", "lse"])
def test_regions_with_a_nan_differ(monkeypatch, place):
    import region_reference

    class case:
        name, precision, mask = "planted", "f32", None

    weights, lse = np.full((1, 2, 4), 0.25), np.zeros((1, 2))
    monkeypatch.setattr(region_reference, "by_element", lambda *_: (weights, lse))
    planted = {"softmax": weights.copy(), "lse": lse.copy()}
    monkeypatch.setattr(region_reference, "run", lambda cases: [(planted["softmax"], planted["lse"])])
    assert not region_reference.differences([case], None, None)
    planted[place][0, 1] = NAN
    assert region_reference.differences([case], None, None)


def test_random_calls_with_a_nan_differ():
    torch = pytest.importorskip("torch")
    from random_calls import compare

    exact = torch.ones(4, dtype=torch.float64)
    planted = torch.tensor([1.0, 1.0, NAN, 1.0])
    assert compare("the output", torch.ones(4), exact, [exact]) is None
    assert compare("the output", planted, exact, [exact])
    assert compare("the output", torch.ones(4), planted.double(), [exact])


def test_onnx_calls_with_a_nan_differ():
    pytest.importorskip("onnx")
    from onnx_call import Call
    from onnx_calls import check

    call = next(call for call in map(Call, range(100)) if call.mode == 3 and call.type == "f32")
    arrays = call.arrays(0)
    exact = call.reference(call.follows_body(arrays))

    class Model:
        planted = {name: each.astype(np.float32) for name, each in exact.items()}

        def run(self, _):
            return tuple(self.planted.values())

    assert check(call, Model(), arrays) is None
    for name in exact:
        Model.planted = {other: each.astype(np.float32) for other, each in exact.items()}
        Model.planted[name].flat[-1] = NAN
        assert check(call, Model(), arrays), name
