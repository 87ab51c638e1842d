"""Which regions are reused by functions with equal fingerprints, and how their captures are found again."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from saccade.regions import fingerprint, trace

slopes, scale = torch.rand(8), torch.tensor(2.0)
values = np.random.rand(8)
ARRAYS = {"torch": torch.rand, "numpy": np.random.rand}


@pytest.mark.parametrize("library", ARRAYS)
def test_region_reads_the_arrays_of_another_function(library):
    x, y, x2, y2 = [ARRAYS[library](8) for _ in range(4)]
    order = lambda x, y: lambda s, b, h, i, j: s + y[h] * x[j] + y[i]
    region = trace(order(x, y), "score", "f32")
    assert region.is_reusable
    assert set(map(id, region.captures)) == {id(x), id(y)}
    found = fingerprint(order(x2, y2))
    rebound = region.captures_of(found.tensors, found.numbers)
    assert [id(c) for c in rebound] == [id({id(x): x2, id(y): y2}[id(c)]) for c in region.captures]
    again = trace(order(x2, y2), "score", "f32")
    names = ["%s", "%b", "%h", "%i", "%j"], ["%c0", "%c1"]
    assert region.body(*names) == again.body(*names)
    assert list(map(id, again.captures)) == list(map(id, rebound))


@pytest.mark.parametrize("library", ARRAYS)
def test_what_is_read_but_not_needed_is_not_captured(library):
    x = ARRAYS[library](8)
    assert trace(lambda s, b, h, i, j: (x[h], s)[1], "score", "f32").captures == ()


# What was computed from numbers or extents while tracing holds for one call only.
FOR_ONE_CALL = {
    "float of torch": lambda s, b, h, i, j: s * float(scale),
    "product of torch": lambda s, b, h, i, j: s + (slopes * 2)[h],
    "sum of torch": lambda s, b, h, i, j: s + slopes.sum(),
    "length of torch": lambda s, b, h, i, j: s / len(slopes),
    "shape of torch": lambda s, b, h, i, j: s / slopes.shape[0],
    "numel of torch": lambda s, b, h, i, j: s / slopes.numel(),
    "flip of torch": lambda s, b, h, i, j: s + slopes.flip(0)[h],
    "slice of torch": lambda s, b, h, i, j: s + slopes[1:][h],
    "branch of torch": lambda s, b, h, i, j: s if slopes[-1].item() < 2 else -s,
    "item of torch": lambda s, b, h, i, j: s * slopes[0].item(),
    "tolist of torch": lambda s, b, h, i, j: s + slopes.tolist()[0],
    "two steps of torch": lambda s, b, h, i, j: s + (slopes * 2 + 1)[h],
    "number of two steps of torch": lambda s, b, h, i, j: s + (slopes * 2).sum() * 3,
    "cast of torch": lambda s, b, h, i, j: s + slopes.to(torch.float64)[h],
    "float of numpy": lambda s, b, h, i, j: s * float(values[0]),
    "product of numpy": lambda s, b, h, i, j: s + (values * 2)[h],
    "sum of numpy": lambda s, b, h, i, j: s + values.sum(),
    "length of numpy": lambda s, b, h, i, j: s / len(values),
    "shape of numpy": lambda s, b, h, i, j: s / values.shape[0],
    "slice of numpy": lambda s, b, h, i, j: s + values[::-1][h],
    "flip of numpy": lambda s, b, h, i, j: s + np.flip(values)[h],
    "two steps of numpy": lambda s, b, h, i, j: s + (values * 2 + 1)[h],
    "cast of numpy": lambda s, b, h, i, j: s + values.astype(np.float32)[h],
}
FOR_ALL_CALLS = {
    "scalar": lambda s, b, h, i, j: s * scale,
    "first": lambda s, b, h, i, j: s + slopes[0],
    "last": lambda s, b, h, i, j: s + slopes[-1],
    "made inside": lambda s, b, h, i, j: s + torch.tensor([1.0, 2.0])[h],
    "cast of an element": lambda s, b, h, i, j: s + slopes[h].to(slopes.dtype),
    "rank": lambda s, b, h, i, j: s * slopes.dim(),
    "first of numpy": lambda s, b, h, i, j: s + values[0],
}


@pytest.mark.parametrize("name", FOR_ONE_CALL)
def test_region_with_numbers_computed_while_tracing_is_not_reusable(name):
    assert not trace(FOR_ONE_CALL[name], "score", "f32").is_reusable


@pytest.mark.parametrize("name", FOR_ALL_CALLS)
def test_region_that_reads_its_numbers_is_reusable(name):
    assert trace(FOR_ALL_CALLS[name], "score", "f32").is_reusable
