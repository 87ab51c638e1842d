"""`saccade.masks` against what each mask is by definition, evaluated pair by pair with NumPy."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade
from saccade import masks

random = np.random.default_rng(3)
HEADS = 2
layout, wide = random.random((10, 10)) < 0.3, random.random((HEADS, 5, 10)) < 0.3
ids = random.integers(0, 4, (2, 75)).astype(np.int32)
prefixes, lengths = np.array([3, 40]), np.array([75, 31])
offsets = [0, 10, 10, 11, 40, 75]
document = np.searchsorted(offsets, np.arange(75), "right")
parents = [-1, 0, 0, 2, 7, 1, 2, 3, -1, 8, 3]
own = lambda b, h, i, j: (i + j) % 3 == h


def dense(shape, sees):
    """[batch, heads, queries, keys] of a definition (b, h, i, j) -> bool."""
    table = np.zeros(shape, bool)
    for place in itertools.product(*map(range, shape)):
        table[place] = sees(*place)
    return table


def check(mask, sees, queries=75, keys=75, batch=1, convert=lambda x: x):
    """What attention gives with `mask` is the softmax over the keys that the definition `sees` lets through."""
    random = np.random.default_rng(4)
    q = random.standard_normal((batch, HEADS, queries, 8)).astype(np.float32)
    k, v = (random.standard_normal((batch, HEADS, keys, 8)).astype(np.float32) for _ in range(2))
    table = dense((batch, HEADS, queries, keys), sees) if callable(sees) else sees
    scores = np.where(table, np.einsum("bhid,bhjd->bhij", q, k, dtype=np.float64) / np.sqrt(8), -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    expected = np.einsum("bhij,bhjd->bhid", weights / np.where(total == 0, 1, total), v)
    output = saccade.attention(convert(q), convert(k), convert(v), mask=mask)
    np.testing.assert_allclose(np.asarray(output), expected, rtol=2e-4, atol=2e-5)
    # The function itself, called with numbers, says the same.
    places = [(random.integers(queries), random.integers(keys)) for _ in range(20)]
    for i, j in places:
        assert bool(mask(0, 1, int(i), int(j))) == table[0, 1, i, j], (i, j)


def alike(labels):
    """Tokens with equal labels see each other."""
    return np.broadcast_to(labels[:, None] == labels, (1, HEADS, len(labels), len(labels)))


LIBRARY = {
    "causal": (masks.causal(0), lambda b, h, i, j: j <= i),
    "causal, back": (masks.causal(-7), lambda b, h, i, j: j <= i - 7),
    "causal, ahead": (masks.causal(5), lambda b, h, i, j: j <= i + 5),
    "window": (masks.window(5), lambda b, h, i, j: i - 5 <= j <= i),
    "window, two sides": (masks.window(3, 9), lambda b, h, i, j: i - 3 <= j <= i + 9),
    "dilated": (masks.dilated(3, 4, 2), lambda b, h, i, j: any(j == i + 3 * n for n in range(-4, 3))),
    "strided": (masks.strided(7), lambda b, h, i, j: j <= i and (i - j < 7 or (i - j) % 7 == 0)),
    "strided, local": (masks.strided(7, 3), lambda b, h, i, j: j <= i and (i - j < 3 or (i - j) % 7 == 0)),
    "global": (masks.global_tokens(4), lambda b, h, i, j: i < 4 or j < 4),
    "longformer": (masks.longformer(6, 2), lambda b, h, i, j: abs(i - j) <= 6 or i < 2 or j < 2),
    "longformer, dilated": (
        masks.longformer(6, 2, 4), lambda b, h, i, j: abs(i - j) <= 24 and (i - j) % 4 == 0 or i < 2 or j < 2
    ),
    "block sparse": (masks.block_sparse(layout, 8), lambda b, h, i, j: layout[i // 8, j // 8]),
    "prefix": (masks.prefix_lm(11), lambda b, h, i, j: j <= i or j < 11),
    "documents": (masks.documents(ids[0], ids[1]), lambda b, h, i, j: ids[0, i] == ids[1, j]),
    "packed, list": (masks.ragged(offsets), alike(document)),
    "packed, array": (masks.ragged(np.array(offsets)), alike(document)),
    # Lists are as good as tensors.
    "documents, list": (masks.documents(list(document)), alike(document)),
    "block sparse, list": (masks.block_sparse(layout.tolist(), 8), lambda b, h, i, j: layout[i // 8, j // 8]),
    # And, or, not, also with functions of one's own.
    "and": (masks.causal() & masks.window(9, 9), lambda b, h, i, j: j <= i and i - 9 <= j <= i + 9),
    "and, or": (
        masks.causal() & own | masks.global_tokens(3),
        lambda b, h, i, j: j <= i and (i + j) % 3 == h or i < 3 or j < 3,
    ),
    "and not": (own & ~masks.causal(), lambda b, h, i, j: (i + j) % 3 == h and j > i),
    "or": (own | masks.documents(ids[0]), lambda b, h, i, j: (i + j) % 3 == h or ids[0, i] == ids[0, j]),
    "not or": (~(masks.prefix_lm(20) | masks.window(5, 5)), lambda b, h, i, j: j > i + 5 and j >= 20),
}  # fmt: skip


@pytest.mark.parametrize(("mask", "sees"), LIBRARY.values(), ids=LIBRARY)
def test_mask_lets_through_what_its_definition_does(mask, sees):
    check(mask, sees)


def until(lengths):
    return lambda b, h, i, j: j < lengths[b]


BATCHES = {
    "prefix": (masks.prefix_lm(prefixes), lambda b, h, i, j: j <= i or j < prefixes[b]),
    "prefix, list": (masks.prefix_lm([3, 40]), lambda b, h, i, j: j <= i or j < prefixes[b]),
    "padding": (masks.padding(lengths), until(lengths)),
    "padding, list": (masks.padding([75, 31]), until(lengths)),
    "documents": (masks.documents(ids), lambda b, h, i, j: ids[b, i] == ids[b, j]),
    "documents, list": (
        masks.documents([[0] * 40 + [1] * 35, [5] * 75]), lambda b, h, i, j: b == 1 or (i < 40) == (j < 40)
    ),
}  # fmt: skip


@pytest.mark.parametrize(("mask", "sees"), BATCHES.values(), ids=BATCHES)
def test_mask_of_a_batch_lets_through_what_its_definition_does(mask, sees):
    check(mask, sees, batch=2)


def test_masks_read_torch_tensors():
    check(masks.causal(torch.tensor(20)), lambda b, h, i, j: j <= i + 20, queries=55, convert=torch.from_numpy)
    check(masks.ragged(torch.tensor(offsets)), alike(document), convert=torch.from_numpy)


def test_block_sparse_layout_of_each_head_with_blocks_of_two_sizes():
    mask = masks.block_sparse(torch.from_numpy(wide), 16, 8)
    check(mask, lambda b, h, i, j: wide[h, i // 16, j // 8], convert=torch.from_numpy)


# --- images, grids, trees


def shifted_labels(height, width, size, shift):
    """By rolling an image of labels, as Swin's code makes its mask."""
    rows, columns = np.zeros(height, int), np.zeros(width, int)
    for axis, extent in ((rows, height), (columns, width)):
        place = np.arange(extent)
        axis[:] = place // size
        axis[extent - shift :] += 100 if shift else 0
    labels = rows[:, None] * 1000 + columns
    return np.roll(labels, (shift, shift), (0, 1)).reshape(-1)


@pytest.mark.parametrize("shift", [0, 2])
def test_swin_sees_the_tokens_of_a_window(shift):
    check(masks.swin(8, 12, 4, shift), alike(shifted_labels(8, 12, 4, shift)), 96, 96)


def test_swin_sees_nothing_behind_the_image():
    labels = shifted_labels(4, 6, 2, 1)
    check(masks.swin(4, 6, 2, 1), lambda b, h, i, j: i < 24 and j < 24 and labels[i] == labels[j], 30, 29)


def window_of(x, extent, size):
    first = min(max(x - size // 2, 0), extent - size)
    return range(first, first + size)


@pytest.mark.parametrize(
    ("extents", "sizes"), [((75,), 7), ((75,), 1), ((9, 8), (3, 5)), ((4, 5, 4), 3), ((3, 5, 5), (3, 5, 1))], ids=str
)
def test_neighborhood_sees_a_window_inside_of_the_grid(extents, sizes):
    each = (sizes,) * len(extents) if isinstance(sizes, int) else sizes
    count = int(np.prod(extents))

    def sees(b, h, i, j):
        one, other = np.unravel_index(i, extents), np.unravel_index(j, extents)
        return all(y in window_of(x, extent, size) for x, y, extent, size in zip(one, other, extents, each))

    check(masks.neighborhood(extents, sizes), sees, count, count)


def test_neighborhood_sees_nothing_behind_the_grid():
    mask = masks.neighborhood((30,), 3)
    check(mask, lambda b, h, i, j: i < 30 and j < 30 and j in window_of(i, 30, 3), 33, 33)


def test_tree_sees_ancestors():
    def is_ancestor(node, other):
        while node != other and node >= 0:
            node = parents[node]
        return node == other

    check(masks.tree(parents), lambda b, h, i, j: is_ancestor(i, j), 11, 11)


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
@pytest.mark.parametrize("starts", [[19, 0], [8, 8]])
def test_trees_of_drafts_after_a_cache(starts, convert):
    others = [-1, 0, 1, 1, 1, -1, 5, 5, 7, 2, 0]
    start = starts[0] if starts[0] == starts[1] else convert(starts)
    mask = masks.tree(convert([parents, others]), start)
    sees = [dense((1, 1, 11, 11), masks.tree(each))[0, 0] for each in (parents, others)]
    check(mask, lambda b, h, i, j: j < starts[b] or (j < starts[b] + 11 and sees[b][i, j - starts[b]]), 11, 30, 2,
          torch.tensor if convert is torch.tensor else lambda x: x)


# --- BigBird


def bigbird():
    return masks.bigbird(150, 10, radius=1, num_global_blocks=2, num_random_blocks=3, seed=5)


@pytest.fixture(scope="module")
def table():
    """What it lets through, pair by pair."""
    big = bigbird()
    return dense((1, HEADS, 150, 150), lambda b, h, i, j: bool(big(b, h, i, j)))


def test_bigbird_has_window_global_and_random_blocks(table):
    blocks = table[0, 0, ::10, ::10]
    assert blocks[:2].all()
    assert blocks[:, :2].all()
    assert (np.abs(np.subtract.outer(range(15), range(15))) <= 1)[~blocks].sum() == 0
    assert (blocks[5:10].sum(1) == 2 + 3 + 3).all(), blocks.sum(1)


def test_bigbird_draws_by_the_seed_only(table):
    again = bigbird()
    assert all(bool(again(0, 0, i, 77)) == table[0, 0, i, 77] for i in range(150))


def test_bigbird_lets_through_what_it_says(table):
    check(bigbird(), table, 150, 150)


# --- compilations


def test_masks_of_other_tables_are_the_same_kernel():
    check(masks.documents(ids[1]), lambda b, h, i, j: ids[1, i] == ids[1, j])
    before = saccade.cache_info()
    random = np.random.default_rng(5)
    for _ in range(3):
        others = np.sort(random.integers(0, 9, 90)).astype(np.int32)
        check(masks.documents(others), lambda b, h, i, j: others[i] == others[j], 90, 90)
    assert saccade.cache_info().compilations == before.compilations


# --- refusals

UNFIT = [
    (ValueError, "'ids of masks.documents', which mask reads | found 74, expected at least 75",
     lambda: masks.documents([0] * 74)),
    (ValueError, "'parents of masks.tree' | found 74, expected at least 75", lambda: masks.tree([-1] * 74)),
    (ValueError, "'cu_seqlens of masks.ragged' | found 74", lambda: masks.ragged([0, 30, 74]) | masks.causal()),
    (ValueError, "'layout of masks.bigbird' | found 7, expected at least 8", lambda: masks.bigbird(70, 10)),
    (ValueError, "'layout of masks.block_sparse' | found 9, expected at least 10",
     lambda: masks.block_sparse([[1] * 9] * 9, 8)),
]  # fmt: skip


# In the words of who made the mask.
@pytest.mark.parametrize(("kind", "words", "make"), UNFIT, ids=[words for _, words, _ in UNFIT])
def test_a_mask_that_does_not_fit_the_sequence_is_refused(kind, words, make):
    x = np.zeros((1, HEADS, 75, 8), np.float32)
    mask = make()
    refused(kind, words.split(" | "), saccade.attention, x, x, x, mask=mask)


WRONG = [
    (ValueError, "lengths is 7, expected a tensor with 1", lambda: masks.padding(7)),
    (ValueError, "ids has 3 dimensions, expected 1 or 2", lambda: masks.documents(np.zeros((1, 2, 3), np.int32))),
    (ValueError, "dilation is 0, expected an integer of at least 1", lambda: masks.dilated(0, 3)),
    (ValueError, "shift_size is 4, expected 0 to 3", lambda: masks.swin(8, 8, 4, 4)),
    (ValueError, "ascending integers from 0", lambda: masks.ragged([1, 5])),
    (ValueError, "ascending integers from 0", lambda: masks.ragged([0, 5, 3])),
    (ValueError, "odd numbers", lambda: masks.neighborhood((8, 8), 4)),
    (ValueError, "one, two or three", lambda: masks.neighborhood((2,) * 4, 1)),
    (ValueError, "its own ancestor", lambda: masks.tree([1, 0])),
    (ValueError, "expected -1 to 0", lambda: masks.tree([4])),
    (ValueError, "left is -1 and right is 0, which masks out all keys", lambda: masks.window(-1)),
    (ValueError, "radius is -3, expected an integer of at least 0", lambda: masks.longformer(-3)),
    (ValueError, "count is -1", lambda: masks.global_tokens(-1)),
    (ValueError, "num_random_blocks is -1", lambda: masks.bigbird(64, 8, num_random_blocks=-1)),
    (ValueError, "local is -1", lambda: masks.strided(4, -1)),
]


@pytest.mark.parametrize(("kind", "words", "make"), WRONG, ids=[words for _, words, _ in WRONG])
def test_wrong_arguments_of_a_mask_are_refused(kind, words, make):
    refused(kind, [words], make)


# They would drop a mask without a word.
def test_and_or_and_not_of_python_are_refused():
    refused(TypeError, ["with &, | and ~"], lambda: masks.causal() and masks.window(3))
