"""Every score of `saccade.scores` with all kinds of parameters, called with arrays of scores and positions, equals its
definition. Nothing is compiled here; test_scores.py compares compiled scores with their definitions."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from saccade import scores

BATCHES, HEADS, QUERIES, KEYS = 2, 3, 11, 13
SHAPE = BATCHES, HEADS, QUERIES, KEYS
random = np.random.default_rng(12)
given = random.standard_normal(SHAPE).astype(np.float32)
KINDS = {"list": lambda x: x.tolist(), "array": lambda x: x, "tensor": torch.from_numpy}
OFFSETS = (-3, 0, 2)


def table(*shape):
    return random.standard_normal(shape).astype(np.float32)


def check(score, change, kind="array", what=""):
    """The scores of all places at once, and the number of heads that the tables have."""
    convert = torch.from_numpy if kind == "tensor" else lambda x: x
    found = score(*map(convert, (given, *np.ogrid[tuple(map(slice, SHAPE))])))
    expected = np.empty(SHAPE)
    for place in itertools.product(*map(range, SHAPE)):
        expected[place] = change(float(given[place]), *place)
    np.testing.assert_allclose(np.broadcast_to(np.asarray(found), SHAPE), expected, rtol=1e-5, atol=1e-5, err_msg=str(what))


def clamped(distance, limit):
    return max(-limit, min(limit, distance)) + limit


# --- functions of the score -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_caps_and_temperatures(kind):
    each = np.array([0.5, 2.0, 7.0], np.float32)
    convert = KINDS[kind]
    check(scores.soft_cap(convert(each)), lambda s, b, h, i, j: each[h] * math.tanh(s / each[h]), kind)
    check(scores.temperature(convert(each)), lambda s, b, h, i, j: s / each[h], kind)
    assert scores.soft_cap(convert(each)).heads == scores.temperature(convert(each)).heads == 3
    for one in (2.5, 3, *([] if kind == "list" else [convert(np.array(2.5, np.float32))])):
        check(scores.soft_cap(one), lambda s, b, h, i, j: float(one) * math.tanh(s / float(one)), kind)
        check(scores.temperature(one), lambda s, b, h, i, j: s / float(one), kind)
        assert scores.soft_cap(one).heads is None
        assert scores.temperature(one).heads is None


# --- functions of the distance ----------------------------------------------------------------------------------------


def slopes_of_the_paper(heads):
    """As the authors' code has it."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**n for n in range(heads)]
    near = 2 ** math.floor(math.log2(heads))
    return slopes_of_the_paper(near) + slopes_of_the_paper(2 * near)[0::2][: heads - near]


@pytest.mark.parametrize("heads", range(1, 21))
def test_slopes(heads):
    np.testing.assert_allclose(scores.alibi_slopes(heads), slopes_of_the_paper(heads), rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_distances(kind):
    convert, slopes = KINDS[kind], table(HEADS)
    check(scores.alibi(convert(slopes)), lambda s, b, h, i, j: s + slopes[h] * (j - i), kind)
    check(scores.alibi(convert(slopes), symmetric=True), lambda s, b, h, i, j: s - slopes[h] * abs(j - i), kind)
    assert scores.alibi(convert(slopes)).heads == scores.alibi(convert(slopes), True).heads == HEADS
    for n, offset in itertools.product((0, 2, 4), OFFSETS):
        rows = table(HEADS, 2 * n + 1)
        check(scores.relative_bias(convert(rows), offset),
              lambda s, b, h, i, j: s + rows[h, clamped(j - i - offset, n)], kind, (n, offset))  # fmt: skip
        check(scores.relative_bias(convert(rows[0]), offset),
              lambda s, b, h, i, j: s + rows[0, clamped(j - i - offset, n)], kind, (n, offset))  # fmt: skip
        assert scores.relative_bias(convert(rows)).heads == HEADS
        assert scores.relative_bias(convert(rows[0])).heads is None
        logits = table(BATCHES, HEADS, QUERIES, 2 * n + 1)
        check(scores.shaw_bias(convert(logits), 0.25, offset),
              lambda s, b, h, i, j: s + 0.25 * logits[b, h, i, clamped(j - i - offset, n)], kind, (n, offset))  # fmt: skip
        assert scores.shaw_bias(convert(logits), 1.0).heads == HEADS


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [True, False])
def test_t5(kind, bidirectional):
    for count, most, offset in ((8, 20, 0), (32, 128, 2), (8, 9, -3), (16, 8 if bidirectional else 12, 1)):
        rows = table(count, HEADS)
        bucket = scores.t5_buckets(count, most, bidirectional)
        assert bucket.shape == (2 * most + 1,)
        score = scores.t5_bias(KINDS[kind](rows), most, bidirectional, offset)
        check(score, lambda s, b, h, i, j: s + rows[bucket[clamped(j - i - offset, most)], h], kind, (count, most))
        assert score.heads == HEADS


# --- functions of both positions --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_pairs(kind):
    rows, convert = table(*SHAPE), KINDS[kind]
    check(scores.bias(convert(rows)), lambda s, b, h, i, j: s + rows[b, h, i, j], kind)
    check(scores.bias(convert(rows[0])), lambda s, b, h, i, j: s + rows[0, h, i, j], kind)
    check(scores.bias(convert(rows[0, 0])), lambda s, b, h, i, j: s + rows[0, 0, i, j], kind)
    heads = [scores.bias(convert(each)).heads for each in (rows, rows[0], rows[0, 0])]
    assert heads == [HEADS, HEADS, None]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [(2, 3), (3, 2), (1, 4), 2], ids=str)
def test_swin(kind, window):
    rows, columns = window if isinstance(window, tuple) else (window, window)
    entries = table((2 * rows - 1) * (2 * columns - 1), HEADS)
    convert = torch.from_numpy if kind == "tensor" else lambda x: x

    def index(i, j, width):
        """Of the distance from the key to the query in rows and columns."""
        down, right = i // width - j // width, i % width - j % width
        return (down + rows - 1) * (2 * columns - 1) + right + columns - 1

    def check(score, width, count, sees):
        pairs = np.array([pair for pair in itertools.product(range(count), repeat=2) if sees(*pair)])
        h, i, j = np.arange(HEADS)[:, None], pairs[:, 0], pairs[:, 1]
        np.testing.assert_allclose(score(0.0, 0, *map(convert, (h, i, j))), entries[index(i, j, width), h], rtol=1e-6)

    given = KINDS[kind](entries)
    score = scores.swin_bias(given, window)
    assert score.heads == HEADS
    check(score, columns, rows * columns, lambda i, j: True)
    if kind != "list":
        width = 2 * columns + 1  # an image, whose windows the mask tells
        near = lambda i, j: abs(i // width - j // width) < rows and abs(i % width - j % width) < columns
        score = scores.swin_bias(given, window, width)
        assert score.heads == HEADS
        check(score, width, 2 * rows * width, near)


# --- compositions -----------------------------------------------------------------------------------------------------


def test_compositions():
    slopes = table(HEADS)
    doubled, biased, capped = (lambda s, b, h, i, j: 2 * s), scores.alibi(slopes), scores.soft_cap(3.0)
    straight = lambda s, h, i, j: s + slopes[h] * (j - i)
    bent = lambda s: 3 * math.tanh(s / 3)
    check(biased >> capped, lambda s, b, h, i, j: bent(straight(s, h, i, j)))
    check(capped >> biased, lambda s, b, h, i, j: straight(bent(s), h, i, j))
    check(doubled >> biased, lambda s, b, h, i, j: straight(2 * s, h, i, j))
    check(biased >> doubled, lambda s, b, h, i, j: 2 * straight(s, h, i, j))


def test_a_composition_has_the_heads_of_its_parts():
    biased, capped, by_hand = scores.alibi(table(HEADS)), scores.soft_cap(3.0), lambda s, b, h, i, j: s
    for score in (biased, biased >> capped, capped >> biased, by_hand >> biased, biased >> by_hand, scores.Score(biased),
                  biased >> biased, scores.Score(by_hand, HEADS)):  # fmt: skip
        assert score.heads == HEADS
    assert (capped >> by_hand).heads is None
    assert scores.Score(biased, 5).heads == 5
    assert scores.Score(capped).heads is None


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("make", "ranks"), [
    (scores.alibi, (1,)), (scores.relative_bias, (1, 2)), (lambda x: scores.t5_bias(np.concatenate([x] * 8) if x.ndim else x, 9), (2,)),
    (scores.bias, (2, 3, 4)), (lambda x: scores.swin_bias(x, (1, 2)), (2,)), (lambda x: scores.shaw_bias(x, 1.0), (4,)),
    (scores.soft_cap, (0, 1)), (scores.temperature, (0, 1)),
])  # fmt: skip
def test_tables_of_other_ranks_are_refused(make, ranks):
    for rank in range(6):
        given = np.ones((3,) * rank, np.float32)
        if rank in ranks:
            make(given)
        else:
            with pytest.raises(ValueError, match=f"has {rank} dimensions?, expected"):
                make(given)


def test_tables_that_do_not_fit_are_refused():
    for make in (scores.relative_bias, lambda x: scores.shaw_bias(x[None, None], 1.0)):
        with pytest.raises(ValueError, match="has 4 distances, expected an odd number"):
            make(table(2, 4))
    for window in ((2, 3), 3, (3, 2)):
        with pytest.raises(ValueError, match=r"table has 9 entries, expected \d+ for a window"):
            scores.swin_bias(table(9, 2), window)
    for count, most, bidirectional in ((3, 128, True), (1, 128, False), (32, 8, True), (32, 16, False), (0, 9, True)):
        with pytest.raises(ValueError, match=f"found {count} buckets up to distance {most}, expected"):
            scores.t5_buckets(count, most, bidirectional)
    scores.t5_buckets(4, 2, True)
    scores.t5_buckets(2, 2, False)
    for heads in (0, -1):
        with pytest.raises(ValueError, match="expected 1 or more"):
            scores.alibi_slopes(heads)
    with pytest.raises(ValueError, match="one score is for 3 heads, the other for 2"):
        scores.alibi(table(3)) >> scores.alibi(table(2))
    for wrong in (lambda: scores.soft_cap(1.0) >> 1, lambda: None >> scores.soft_cap(1.0)):
        with pytest.raises(TypeError):
            wrong()
