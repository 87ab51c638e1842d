"""`saccade.masks` against what each mask is by definition, evaluated pair by pair with NumPy.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import itertools

import numpy as np
import torch

import saccade
from saccade import masks

random = np.random.default_rng(3)
HEADS = 2


def dense(shape, sees):
    """[batch, heads, queries, keys] of a definition (b, h, i, j) -> bool."""
    table = np.zeros(shape, bool)
    for place in itertools.product(*map(range, shape)):
        table[place] = sees(*place)
    return table


def check(mask, sees, queries=75, keys=75, batch=1, convert=lambda x: x):
    """What attention gives with `mask` is the softmax over the keys that the definition `sees` lets through."""
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


for offset in (0, -7, 5):
    check(masks.causal(offset), lambda b, h, i, j: j <= i + offset)
check(masks.causal(torch.tensor(20)), lambda b, h, i, j: j <= i + 20, queries=55, convert=torch.from_numpy)
check(masks.window(5), lambda b, h, i, j: i - 5 <= j <= i)
check(masks.window(3, 9), lambda b, h, i, j: i - 3 <= j <= i + 9)
check(masks.dilated(3, 4, 2), lambda b, h, i, j: any(j == i + 3 * n for n in range(-4, 3)))
check(masks.strided(7), lambda b, h, i, j: j <= i and (i - j < 7 or (i - j) % 7 == 0))
check(masks.strided(7, 3), lambda b, h, i, j: j <= i and (i - j < 3 or (i - j) % 7 == 0))
check(masks.global_tokens(4), lambda b, h, i, j: i < 4 or j < 4)
check(masks.longformer(6, 2), lambda b, h, i, j: abs(i - j) <= 6 or i < 2 or j < 2)
check(masks.longformer(6, 2, 4), lambda b, h, i, j: abs(i - j) <= 24 and (i - j) % 4 == 0 or i < 2 or j < 2)

layout = random.random((10, 10)) < 0.3
check(masks.block_sparse(layout, 8), lambda b, h, i, j: layout[i // 8, j // 8])
wide = random.random((HEADS, 5, 10)) < 0.3
check(masks.block_sparse(torch.from_numpy(wide), 16, 8), lambda b, h, i, j: wide[h, i // 16, j // 8],
      convert=torch.from_numpy)

check(masks.prefix_lm(11), lambda b, h, i, j: j <= i or j < 11)
prefixes, lengths = np.array([3, 40]), np.array([75, 31])
check(masks.prefix_lm(prefixes), lambda b, h, i, j: j <= i or j < prefixes[b], batch=2)
check(masks.padding(lengths), lambda b, h, i, j: j < lengths[b], batch=2)

ids = random.integers(0, 4, (2, 75)).astype(np.int32)
check(masks.documents(ids), lambda b, h, i, j: ids[b, i] == ids[b, j], batch=2)
check(masks.documents(ids[0], ids[1]), lambda b, h, i, j: ids[0, i] == ids[1, j])
offsets = [0, 10, 10, 11, 40, 75]
document = np.searchsorted(offsets, np.arange(75), "right")
for given in (offsets, np.array(offsets), torch.tensor(offsets)):
    convert = torch.from_numpy if isinstance(given, torch.Tensor) else lambda x: x
    check(masks.ragged(given), np.broadcast_to(document[:, None] == document, (1, HEADS, 75, 75)), convert=convert)


def sees_shifted(height, width, size, shift):
    """By rolling an image of labels, as Swin's code makes its mask."""
    rows, columns = np.zeros(height, int), np.zeros(width, int)
    for axis, extent in ((rows, height), (columns, width)):
        place = np.arange(extent)
        axis[:] = place // size
        axis[extent - shift :] += 100 if shift else 0
    labels = rows[:, None] * 1000 + columns
    return np.roll(labels, (shift, shift), (0, 1)).reshape(-1)


for shift in (0, 2):
    labels = sees_shifted(8, 12, 4, shift)
    check(masks.swin(8, 12, 4, shift), np.broadcast_to(labels[:, None] == labels, (1, HEADS, 96, 96)), 96, 96)


def window_of(x, extent, size):
    first = min(max(x - size // 2, 0), extent - size)
    return range(first, first + size)


for extents, sizes in (((75,), 7), ((75,), 1), ((9, 8), (3, 5)), ((4, 5, 4), 3), ((3, 5, 5), (3, 5, 1))):
    each = (sizes,) * len(extents) if isinstance(sizes, int) else sizes
    count = int(np.prod(extents))

    def sees(b, h, i, j):
        one, other = np.unravel_index(i, extents), np.unravel_index(j, extents)
        return all(y in window_of(x, extent, size) for x, y, extent, size in zip(one, other, extents, each))

    check(masks.neighborhood(extents, sizes), sees, count, count)

parents = [-1, 0, 0, 2, 7, 1, 2, 3, -1, 8, 3]


def is_ancestor(node, other):
    while node != other and node >= 0:
        node = parents[node]
    return node == other


check(masks.tree(parents), lambda b, h, i, j: is_ancestor(i, j), 11, 11)

# BigBird has what it promises, and what it draws depends on the seed only.
big = masks.bigbird(150, 10, radius=1, num_global_blocks=2, num_random_blocks=3, seed=5)
table = dense((1, HEADS, 150, 150), lambda b, h, i, j: bool(big(b, h, i, j)))
blocks = table[0, 0, ::10, ::10]
assert blocks[:2].all() and blocks[:, :2].all() and (np.abs(np.subtract.outer(range(15), range(15))) <= 1)[~blocks].sum() == 0
assert (blocks[5:10].sum(1) == 2 + 3 + 3).all(), blocks.sum(1)
again = masks.bigbird(150, 10, radius=1, num_global_blocks=2, num_random_blocks=3, seed=5)
assert all(bool(again(0, 0, i, 77)) == table[0, 0, i, 77] for i in range(150))
check(big, table, 150, 150)

# And, or, not, also with functions of one's own.
own = lambda b, h, i, j: (i + j) % 3 == h
for joined, sees in (
    (masks.causal() & masks.window(9, 9), lambda b, h, i, j: j <= i and i - 9 <= j <= i + 9),
    (masks.causal() & own | masks.global_tokens(3), lambda b, h, i, j: j <= i and (i + j) % 3 == h or i < 3 or j < 3),
    (own & ~masks.causal(), lambda b, h, i, j: (i + j) % 3 == h and j > i),
    (own | masks.documents(ids[0]), lambda b, h, i, j: (i + j) % 3 == h or ids[0, i] == ids[0, j]),
    (~(masks.prefix_lm(20) | masks.window(5, 5)), lambda b, h, i, j: j > i + 5 and j >= 20),
):
    check(joined, sees)

# Behind an image or a grid there is nothing to see.
images = lambda labels: lambda b, h, i, j: i < 24 and j < 24 and labels[i] == labels[j]
check(masks.swin(4, 6, 2, 1), images(sees_shifted(4, 6, 2, 1)), 30, 29)
check(masks.neighborhood((30,), 3), lambda b, h, i, j: i < 30 and j < 30 and j in window_of(i, 30, 3), 33, 33)

# Lists are as good as tensors.
check(masks.documents(list(document)), np.broadcast_to(document[:, None] == document, (1, HEADS, 75, 75)))
check(masks.documents([[0] * 40 + [1] * 35, [5] * 75]), lambda b, h, i, j: b == 1 or (i < 40) == (j < 40), batch=2)
check(masks.padding([75, 31]), lambda b, h, i, j: j < lengths[b], batch=2)
check(masks.prefix_lm([3, 40]), lambda b, h, i, j: j <= i or j < prefixes[b], batch=2)
check(masks.block_sparse(layout.tolist(), 8), lambda b, h, i, j: layout[i // 8, j // 8])


def refuse(words, make):
    """Making or using the mask that `make` gives is refused with these words."""
    x = np.zeros((1, HEADS, 75, 8), np.float32)
    try:
        saccade.attention(x, x, x, mask=make())
    except (ValueError, TypeError) as error:
        assert all(word in str(error) for word in words.split(" | ")), (error, words)
    else:
        raise AssertionError(f"not refused: {words}")


# What does not fit the sequence is refused in the words of who made the mask.
refuse("'ids of masks.documents', which mask reads | found 74, expected at least 75", lambda: masks.documents([0] * 74))
refuse("'parents of masks.tree' | found 74, expected at least 75", lambda: masks.tree([-1] * 74))
refuse("'cu_seqlens of masks.ragged' | found 74", lambda: masks.ragged([0, 30, 74]) | masks.causal())
refuse("'layout of masks.bigbird' | found 7, expected at least 8", lambda: masks.bigbird(70, 10))
refuse("'layout of masks.block_sparse' | found 9, expected at least 10", lambda: masks.block_sparse([[1] * 9] * 9, 8))
refuse("lengths is 7, expected a tensor with 1", lambda: masks.padding(7))
refuse("ids has 3 dimensions, expected 1 or 2", lambda: masks.documents(np.zeros((1, 2, 3), np.int32)))
refuse("dilation is 0, expected an integer of at least 1", lambda: masks.dilated(0, 3))
refuse("shift_size is 4, expected 0 to 3", lambda: masks.swin(8, 8, 4, 4))
refuse("both the torch tensor 'lengths of masks.padding' and the NumPy array 'ids of masks.documents'",
       lambda: masks.documents([0] * 75) & masks.padding(torch.tensor([5])))

# Masks of other tables are the same kernel.
before = saccade.cache_info().compilations
check(masks.documents(ids[1]), lambda b, h, i, j: ids[1, i] == ids[1, j])
first = saccade.cache_info().compilations
for _ in range(3):
    others = np.sort(random.integers(0, 9, 90)).astype(np.int32)
    check(masks.documents(others), lambda b, h, i, j: others[i] == others[j], 90, 90)
assert saccade.cache_info().compilations == first, (before, first, saccade.cache_info())

for wrong, words in (
    (lambda: masks.ragged([1, 5]), "ascending integers from 0"),
    (lambda: masks.ragged([0, 5, 3]), "ascending integers from 0"),
    (lambda: masks.neighborhood((8, 8), 4), "odd numbers"),
    (lambda: masks.neighborhood((2,) * 4, 1), "one, two or three"),
    (lambda: masks.tree([1, 0]), "its own ancestor"),
    (lambda: masks.tree([4]), "expected -1 to 0"),
    (lambda: masks.window(-1), "left is -1 and right is 0, which masks out all keys"),
    (lambda: masks.longformer(-3), "radius is -3, expected an integer of at least 0"),
    (lambda: masks.global_tokens(-1), "count is -1"),
    (lambda: masks.bigbird(64, 8, num_random_blocks=-1), "num_random_blocks is -1"),
    (lambda: masks.strided(4, -1), "local is -1"),
):
    try:
        wrong()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)

# `and`, `or` and `not` would drop a mask without a word.
try:
    masks.causal() and masks.window(3)
except TypeError as error:
    assert "with &, | and ~" in str(error), error
else:
    raise AssertionError("a mask was true")
