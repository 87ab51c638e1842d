"""The tiles of a call's mask are those that an evaluation of all pairs gives."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from saccade import masks
from saccade.observe.calls import Call
from saccade.observe.mask_tiles import mask_tiles

IDS = np.searchsorted([100, 230], np.arange(300), side="right")
i, j = np.mgrid[:300, :300]


def call(visible, queries=300, keys=300, batch=2, heads=2):
    query, key = torch.zeros(batch, heads, queries, 8), torch.zeros(batch, heads, keys, 8)
    return Call(query, key, key, visible, visible, query)


def evaluated(kept, size):
    """0 for tiles without a pair of `kept`, 2 for those with all pairs, otherwise 1."""
    starts = [range(0, extent, size) for extent in kept.shape[-2:]]
    reduced = [np.logical_and.reduceat, np.logical_or.reduceat]
    full, visible = [reduce(reduce(kept, starts[0], axis=-2), starts[1], axis=-1) for reduce in reduced]
    lead = tuple(range(kept.ndim - 2))
    return full.all(lead).astype(np.uint8) + visible.any(lead)


@pytest.mark.parametrize(("visible", "kept"), [
    pytest.param({}, np.full((300, 300), True), id="none"),
    pytest.param({"causal": "top_left"}, j <= i, id="causal"),
    pytest.param({"window": (20, 0)}, (j <= i) & (i - j <= 20), id="window"),
    pytest.param({"mask": masks.documents(IDS), "causal": "top_left"}, (IDS[i] == IDS[j]) & (j <= i), id="documents"),
    pytest.param({"mask": lambda b, h, i, j: i >= 150}, i >= 150, id="rows"),
    pytest.param({"mask": masks.padding(torch.tensor([300, 170], dtype=torch.int32))},
                 j < np.array([300, 170])[:, None, None, None], id="padding"),
    pytest.param({"mask": lambda b, h, i, j: (h == 0) | (j < 64)}, np.stack([np.full((300, 300), True), j < 64]), id="heads"),
])  # fmt: skip
def test_tiles_are_those_of_all_pairs(visible, kept):
    size, found = mask_tiles(call(visible))
    assert (size, found.dtype) == (16, np.uint8)
    np.testing.assert_array_equal(found, evaluated(kept, 16))


def test_short_calls_have_tiles_of_one_pair():
    size, found = mask_tiles(call({"causal": "top_left"}, 5, 9))
    assert size == 1
    np.testing.assert_array_equal(found, 2 * np.tri(5, 9))
