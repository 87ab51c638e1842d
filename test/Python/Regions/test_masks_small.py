"""Every mask of `saccade.masks` with all small parameters, called with arrays of positions, equals its definition.

Nothing is compiled here; test_masks.py compares compiled masks with their definitions."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from saccade import masks

BATCHES, HEADS, QUERIES, KEYS = 2, 3, 11, 13
random = np.random.default_rng(11)


def kept(mask, queries=QUERIES, keys=KEYS, convert=lambda x: x):
    """What a mask keeps of [batch, heads, queries, keys], from one call."""
    shape = BATCHES, HEADS, queries, keys
    places = [convert(x) for x in np.ogrid[tuple(map(slice, shape))]]
    return np.broadcast_to(np.asarray(mask(*places)), shape)


def defined(sees, queries=QUERIES, keys=KEYS):
    """The same by a definition of single pairs."""
    shape = BATCHES, HEADS, queries, keys
    return np.array([bool(sees(*place)) for place in itertools.product(*map(range, shape))]).reshape(shape)


def check(mask, sees, *sizes, what=""):
    assert np.array_equal(kept(mask, *sizes), defined(sees, *sizes)), what


# --- bounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("left", range(-3, 5))
def test_windows(left):
    for right in range(-left, 5):
        check(masks.window(left, right), lambda b, h, i, j: i - left <= j <= i + right, what=right)
    if left >= 0:
        check(masks.window(left), lambda b, h, i, j: i - left <= j <= i)
        check(masks.causal(left), lambda b, h, i, j: j - i <= left)
        check(masks.causal(-left), lambda b, h, i, j: j - i <= -left)


@pytest.mark.parametrize("step", range(1, 5))
def test_steps(step):
    for left, right in itertools.product(range(4), range(4)):
        offsets = {step * n for n in range(-left, right + 1)}
        check(masks.dilated(step, left, right), lambda b, h, i, j: j - i in offsets, what=(left, right))
    check(masks.dilated(step, 2), lambda b, h, i, j: i - j in (0, step, 2 * step))
    for local in (None, 0, 1, 2, 5):
        near = range(step if local is None else local)
        check(masks.strided(step, local), lambda b, h, i, j: i - j in near or i - j in range(0, 99, step), what=local)


@pytest.mark.parametrize("dilation", range(1, 4))
def test_longformers(dilation):
    for radius, count in itertools.product(range(4), range(3)):
        near = {dilation * n for n in range(-radius, radius + 1)}
        sees = lambda b, h, i, j: i - j in near or min(i, j) < count
        check(masks.longformer(radius, count, dilation), sees, what=(radius, count))
        check(masks.global_tokens(count), lambda b, h, i, j: min(i, j) < count)


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["list", "array", "tensor"])
def test_tables(kind):
    convert = {"list": lambda x: x.tolist(), "array": lambda x: x, "tensor": torch.from_numpy}[kind]

    def check(mask, sees):
        found = kept(mask, convert=torch.from_numpy if kind == "tensor" else lambda x: x)
        assert np.array_equal(found, defined(sees))

    for query_block, key_block in itertools.product(range(1, 4), (None, 1, 2, 3)):
        size = key_block or query_block
        layout = random.random((HEADS, -(-QUERIES // query_block), -(-KEYS // size))) < 0.4
        check(masks.block_sparse(convert(layout), query_block, key_block),
              lambda b, h, i, j: layout[h, i // query_block, j // size])  # fmt: skip
        check(masks.block_sparse(convert(layout[0]), query_block, key_block),
              lambda b, h, i, j: layout[0, i // query_block, j // size])  # fmt: skip
    ids, others = random.integers(0, 3, (2, BATCHES, KEYS))
    check(masks.documents(convert(ids)), lambda b, h, i, j: ids[b, i] == ids[b, j])
    check(masks.documents(convert(ids), convert(others)), lambda b, h, i, j: ids[b, i] == others[b, j])
    check(masks.documents(convert(ids[0])), lambda b, h, i, j: ids[0, i] == ids[0, j])
    check(masks.documents(convert(ids[0]), convert(others[0])), lambda b, h, i, j: ids[0, i] == others[0, j])
    lengths = np.array([4, 9])
    check(masks.padding(convert(lengths)), lambda b, h, i, j: j < lengths[b])
    check(masks.prefix_lm(convert(lengths)), lambda b, h, i, j: j <= i or j < lengths[b])
    ends = np.array([0, 2, 2, 7, 13])
    check(masks.ragged(convert(ends)), lambda b, h, i, j: ((ends <= i) == (ends <= j)).all())


@pytest.mark.parametrize("number", [6, np.array(6), torch.tensor(6)], ids=["int", "array", "tensor"])
def test_numbers(number):
    convert = torch.from_numpy if isinstance(number, torch.Tensor) else lambda x: x
    for mask, sees in ((masks.prefix_lm(number), lambda i, j: j <= i or j < 6), (masks.causal(number), lambda i, j: j <= i + 6),
                       (masks.window(number, number), lambda i, j: abs(i - j) <= 6),
                       (masks.global_tokens(number), lambda i, j: min(i, j) < 6)):  # fmt: skip
        assert np.array_equal(kept(mask, convert=convert), defined(lambda b, h, i, j: sees(i, j)))


# --- images, grids, trees ---------------------------------------------------------------------------------------------


def swin_labels(extent, size, shift):
    """The window of each row: those of an image that is rolled by the shift, in two parts if they wrap around."""
    rolled = np.arange(extent) // size + 100 * (np.arange(extent) >= extent - shift)
    return np.roll(rolled, shift)


@pytest.mark.parametrize("size", range(1, 5))
def test_swin(size):
    for height, width, shift in itertools.product(range(1, 5), range(1, 6), range(size)):
        if shift < min(height, width):
            rows, columns = swin_labels(height, size, shift), swin_labels(width, size, shift)
            label = [*itertools.product(rows, columns)]
            tokens = height * width
            sees = np.array([[i < tokens and j < tokens and label[i] == label[j] for j in range(tokens + 1)]
                             for i in range(tokens + 2)])  # fmt: skip
            found = kept(masks.swin(height, width, size, shift), tokens + 2, tokens + 1)
            assert (found == sees).all(), (height, width, shift)


GRIDS = [*itertools.product(range(1, 8)), *itertools.product(range(1, 5), range(1, 6)), (2, 3, 2), (3, 2, 3), (1, 3, 3)]


@pytest.mark.parametrize("extents", GRIDS, ids=str)
def test_neighborhoods(extents):
    for sizes in itertools.product(*(range(1, extent + 1, 2) for extent in extents)):
        def window(x, extent, size):
            first = min(max(x - size // 2, 0), extent - size)
            return range(first, first + size)

        count = int(np.prod(extents))
        place = [np.unravel_index(i, extents) for i in range(count)]
        sees = [[i < count and j < count and all(map(lambda x, y, *given: y in window(x, *given), place[i], place[j], extents, sizes))
                 for j in range(count + 2)] for i in range(count + 1)]  # fmt: skip
        assert (kept(masks.neighborhood(extents, sizes), count + 1, count + 2) == np.array(sees)).all(), sizes
        if len(set(sizes)) == 1:
            again = masks.neighborhood(extents[0] if len(extents) == 1 else extents, sizes[0])
            assert (kept(again, count + 1, count + 2) == np.array(sees)).all()


@pytest.mark.parametrize("convert", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
@pytest.mark.parametrize("is_sorted", [True, False])
def test_trees(is_sorted, convert):
    for _ in range(20):
        names = np.arange(9) if is_sorted else random.permutation(9)
        parents = np.full(9, -1)
        for n in range(1, 9):
            parents[names[n]] = -1 if random.random() < 0.2 else names[random.integers(n)]

        def ancestors(node):
            return {node} | (ancestors(parents[node]) if parents[node] >= 0 else set())

        sees = np.array([[j in ancestors(i) for j in range(9)] for i in range(9)])
        places = torch.arange(9) if convert is torch.tensor else np.arange(9)
        found = np.asarray(masks.tree(convert(parents.tolist()))(0, 0, places[:, None], places))
        assert (found == sees).all(), parents


@pytest.mark.parametrize(("radius", "leading", "drawn"), [(0, 0, 0), (1, 1, 3), (0, 2, 1), (2, 0, 2), (1, 1, 50)])
def test_bigbirds(radius, leading, drawn):
    layout = kept(masks.bigbird(35, 4, radius, leading, drawn, seed=2), 36, 36)[0, 0]
    assert all((layout[i : i + 4, j : j + 4] == layout[i, j]).all() for i in range(0, 36, 4) for j in range(0, 36, 4))
    blocks, place = layout[::4, ::4], np.arange(9)
    fixed = (abs(place[:, None] - place) <= radius) | (place < leading) | (place < leading)[:, None]
    assert blocks[fixed].all()
    assert (blocks.sum(1) == np.minimum(fixed.sum(1) + drawn, 9)).all()


# --- combinations -----------------------------------------------------------------------------------------------------


def test_combinations():
    by_hand = lambda b, h, i, j: (i + 2 * j + h) % 3 == b
    library = masks.window(2, 1)
    near = lambda i, j: i - 2 <= j <= i + 1
    for mask, sees in ((library & by_hand, lambda x, y: x and y), (by_hand & library, lambda x, y: x and y),
                       (library | by_hand, lambda x, y: x or y), (by_hand | library, lambda x, y: x or y),
                       (~library, lambda x, y: not x), (~~library, lambda x, y: x),
                       (~(library & by_hand), lambda x, y: not (x and y)), (masks.Mask(library), lambda x, y: x)):  # fmt: skip
        check(mask, lambda b, h, i, j: sees(near(i, j), by_hand(b, h, i, j)))


def test_the_inverse_of_a_mask_by_hand_that_returns_numbers_is_a_boolean():
    inverse = ~masks.Mask(lambda b, h, i, j: (i == j) | (h == 1))
    check(inverse, lambda b, h, i, j: not (i == j or h == 1))


# --- refusals ---------------------------------------------------------------------------------------------------------

CHECKED = [
    ("dilation", 1, lambda n: masks.dilated(n, 3)), ("stride", 1, lambda n: masks.strided(n)), ("local", 0, lambda n: masks.strided(4, n)),
    ("query_block", 1, lambda n: masks.block_sparse([[1]], n, 2)), ("key_block", 1, lambda n: masks.block_sparse([[1]], 2, n)),
    ("count", 0, lambda n: masks.global_tokens(n)), ("radius", 0, lambda n: masks.longformer(n)),
    ("num_global", 0, lambda n: masks.longformer(2, n)), ("dilation", 1, lambda n: masks.longformer(2, 0, n) if n != 1 else None),
    ("length", 0, lambda n: masks.bigbird(n, 4)), ("block_size", 1, lambda n: masks.bigbird(8, n)),
    ("radius", 0, lambda n: masks.bigbird(8, 4, n)), ("num_global_blocks", 0, lambda n: masks.bigbird(8, 4, 1, n)),
    ("num_random_blocks", 0, lambda n: masks.bigbird(8, 4, 1, 1, n)), ("height", 1, lambda n: masks.swin(n, 4, 2)),
    ("width", 1, lambda n: masks.swin(4, n, 2)), ("window_size", 1, lambda n: masks.swin(4, 4, n)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "least", "make"), CHECKED, ids=[f"{name}{i}" for i, (name, _, _) in enumerate(CHECKED)])
def test_numbers_that_are_too_small_or_no_integers_are_refused(name, least, make):
    for wrong in (least - 1, least - 5, least + 0.5):
        with pytest.raises(ValueError, match=rf"^{name} is {wrong}, expected an integer of at least {least}$"):
            make(wrong)
    make(least)


def test_shifts_and_windows_that_do_not_fit_are_refused():
    for shift in (-1, 3, 4):
        with pytest.raises(ValueError, match=f"shift_size is {shift}, expected 0 to 2"):
            masks.swin(8, 8, 3, shift)
    for shape, size in ((8, 9), (8, 2), (8, 0), (8, -1), ((8, 3), (3, 5)), ((3, 8), (5, 3))):
        with pytest.raises(ValueError, match="expected odd numbers up to the shape"):
            masks.neighborhood(shape, size)
    for shape, size in (((8, 8), (3, 3, 3)), ((8, 8, 8), (3, 3)), ((), ()), ((2,) * 4, 1)):
        with pytest.raises(ValueError, match="expected one, two or three of each"):
            masks.neighborhood(shape, size)
    for ends in ([0], [1, 2], [0, 3, 2], [[0, 1]], []):
        with pytest.raises(ValueError, match="expected ascending integers from 0"):
            masks.ragged(ends)
    for left, right in ((-1, 0), (2, -3), (-4, 3)):
        with pytest.raises(ValueError, match="masks out all keys"):
            masks.window(left, right)
    for parents in ([1, 0], [0], [-1, 3, 1, 2]):
        with pytest.raises(ValueError, match="is its own ancestor"):
            masks.tree(parents)
    for parents in ([1], [-2], [-1, 2]):
        with pytest.raises(ValueError, match=r"parent of node \d is -?\d, expected -1 to"):
            masks.tree(parents)


@pytest.mark.parametrize(("make", "ranks"), [
    (lambda x: masks.block_sparse(x, 2), (2, 3)), (masks.padding, (1,)), (masks.documents, (1, 2)),
    (lambda x: masks.documents(np.zeros(3, np.int32), x), (1,)), (lambda x: masks.documents(np.zeros((2, 3), np.int32), x), (2,)),
    (masks.prefix_lm, (0, 1)),
])  # fmt: skip
def test_tables_of_other_ranks_are_refused(make, ranks):
    for rank in range(5):
        for table in (np.zeros((2,) * rank, np.int32), torch.zeros((2,) * rank, dtype=torch.int32)):
            if rank in ranks:
                make(table)
            else:
                with pytest.raises(ValueError, match=rf"has {rank} dimensions?, expected"):
                    make(table)


def test_operators_take_functions_alone():
    mask = masks.causal()
    for wrong in (lambda: mask & 1, lambda: mask | None, lambda: "mask" & mask, lambda: 1 | mask, lambda: 1 & mask):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(TypeError, match=r"combine masks with &, \| and ~"):
        bool(mask)
