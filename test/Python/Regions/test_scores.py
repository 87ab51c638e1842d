"""`saccade.scores` against what each score is by definition, evaluated in float64 with NumPy."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade
from saccade import masks, scores
from saccade.regions import fingerprint

HEADS, DEPTH = 3, 16
SIZES = ((1, 75, 75), (2, 1, 40), (1, 130, 301))  # batch, queries, keys


def expected(q, k, v, change, sees=None):
    """The softmax over what `change` makes of [batch, heads, queries, keys] scores, in float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (q, k, v))
    places = np.ogrid[tuple(map(slice, (*q.shape[:3], k.shape[2])))]
    s = change(np.einsum("bhid,bhjd->bhij", q, k) / math.sqrt(q.shape[-1]), *places)
    if sees is not None:
        s = np.where(sees(*places), s, -np.inf)
    weights = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("bhij,bhjd->bhid", weights / weights.sum(-1, keepdims=True), v)


def inputs(batch, queries, keys, size=1.0):
    random = np.random.default_rng(7)
    shapes = [(batch, HEADS, count, DEPTH) for count in (queries, keys, keys)]
    return [(size * random.standard_normal(shape)).astype(np.float32) for shape in shapes]


def table(*shape, seed=8):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def check_numpy(make, sizes=SIZES, sees=None, size=1.0, **options):
    """`make(convert, batch, queries)` gives the score and its definition. Every length is one kernel."""
    compilations = None
    for batch, queries, keys in sizes:
        q, k, v = inputs(batch, queries, keys, size)
        score, change = make(lambda x: x, batch, queries)
        assert fingerprint(getattr(score, "function", score)), "traced at each call"
        output = saccade.attention(q, k, v, score=score, **options)
        np.testing.assert_allclose(output, expected(q, k, v, change, sees), rtol=1e-4, atol=1e-5)
        now = saccade.cache_info().compilations
        assert compilations in (None, now), "compiled again for another length"
        compilations = now
        # Called with numbers, it is the same function.
        place = (0, HEADS - 1, queries - 1, keys // 2)
        if keys == queries:
            assert abs(float(score(1.5, *place)) - np.broadcast_to(change(np.float64(1.5), *place), ())) < 1e-4, place


def check_bfloat16(make, sizes=SIZES, sees=None, size=1.0, **options):
    """The same of torch's bfloat16 tensors, for the first of the sizes."""
    batch, queries, keys = sizes[0]
    q, k, v = (torch.from_numpy(x).bfloat16() for x in inputs(batch, queries, keys, size))
    score, change = make(torch.from_numpy, batch, queries)
    output = saccade.attention(q, k, v, score=score, **options).float().numpy()
    exact = expected(*(x.float().numpy() for x in (q, k, v)), change, sees)
    np.testing.assert_allclose(output, exact, rtol=2e-2, atol=2e-2 * np.abs(exact).max())


# --- scores: make(convert, batch, queries) gives one and its definition


def of_slopes(convert, batch, queries):
    slopes = scores.alibi_slopes(HEADS)
    return scores.alibi(convert(slopes)), lambda s, b, h, i, j: s + slopes[h] * (j - i)


def of_symmetric_slopes(convert, batch, queries):
    slopes = np.array([0.88, -0.27, -0.73], np.float32)
    return scores.alibi(convert(slopes), symmetric=True), lambda s, b, h, i, j: s - slopes[h] * abs(j - i)


def of_caps(cap):
    """A number, an array without dimensions or one a head."""

    def make(convert, batch, queries):
        each = (lambda h: cap[h]) if np.ndim(cap) else lambda h: cap
        given = convert(cap) if isinstance(cap, np.ndarray) else cap
        return scores.soft_cap(given), lambda s, b, h, i, j: each(h) * np.tanh(s / each(h))

    return make


def of_temperatures(warm):
    def make(convert, batch, queries):
        return scores.temperature(convert(warm)), lambda s, b, h, i, j: s / (warm[h] if warm.ndim else 7)

    return make


def of_buckets(bidirectional, offset):
    def make(convert, batch, queries):
        rows, bucket = table(32, HEADS), scores.t5_buckets(32, 128, bidirectional)
        return (scores.t5_bias(convert(rows), bidirectional=bidirectional, offset=offset),
                lambda s, b, h, i, j: s + rows[bucket[np.clip(j - i - offset, -128, 128) + 128], h])  # fmt: skip

    return make


def of_distances(convert, batch, queries):
    rows = table(HEADS, 21)
    return scores.relative_bias(convert(rows)), lambda s, b, h, i, j: s + rows[h, np.clip(j - i, -10, 10) + 10]


def of_pairs(convert, batch, queries):
    rows = table(HEADS, 130, 301)
    return scores.bias(convert(rows)), lambda s, b, h, i, j: s + rows[h, i, j]


def of_shaw(convert, batch, queries):
    products = table(batch, HEADS, queries, 9)
    return (scores.shaw_bias(convert(products), 0.25),
            lambda s, b, h, i, j: s + 0.25 * products[b, h, i, np.clip(j - i, -4, 4) + 4])  # fmt: skip


# Each window's tokens see each other, with a bias for the distance in rows and columns, looked up as Swin's own code
# does it.
SIDE = 4
swin = table((2 * SIDE - 1) ** 2, HEADS)
axes = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE), indexing="ij")).reshape(2, -1)
relative = axes[:, :, None] - axes[:, None, :] + SIDE - 1
spread = swin[relative[0] * (2 * SIDE - 1) + relative[1]]


def of_windows(convert, batch, queries):
    return scores.swin_bias(convert(swin), SIDE), lambda s, b, h, i, j: s + spread[i, j, h]


warm = np.array([0.5, 2.0, 7.0], np.float32)
LIBRARY = {
    "ALiBi": (of_slopes, {"sees": lambda b, h, i, j: j <= i + 5, "mask": masks.causal(5)}),
    "ALiBi, symmetric": (of_symmetric_slopes, {}),
    # The cap bends large scores, so that they are not nearly what they were.
    "soft cap": (of_caps(5.0), {"size": 3.0}),
    "soft cap, run time": (of_caps(np.array(2.5, np.float32)), {"size": 3.0}),
    "soft cap, heads": (of_caps(np.array([1.0, 20.0, 50.0], np.float32)), {"size": 3.0}),
    "temperature, heads": (of_temperatures(warm), {}),
    "temperature, run time": (of_temperatures(warm[2:].reshape(())), {}),
    "T5": (of_buckets(True, 0), {}),
    "T5, one direction": (of_buckets(False, 0), {}),
    "T5, offset": (of_buckets(False, 7), {}),
    "distances": (of_distances, {}),
    "pairs": (of_pairs, {}),
    "Shaw": (of_shaw, {}),
    "Swin, windows as batches": (of_windows, {"sizes": ((6, 16, 16), (1, 16, 16))}),
}


@pytest.mark.parametrize(("make", "options"), LIBRARY.values(), ids=LIBRARY)
def test_score_equals_its_definition_for_all_lengths(make, options):
    check_numpy(make, **options)


@pytest.mark.parametrize(("make", "options"), LIBRARY.values(), ids=LIBRARY)
def test_score_of_bfloat16_tensors_equals_its_definition(make, options):
    check_bfloat16(make, **options)


def test_alibi_slopes_are_those_of_the_paper():
    assert np.allclose(scores.alibi_slopes(8), 0.5 ** np.arange(1, 9))
    assert np.allclose(scores.alibi_slopes(12)[:8], 0.5 ** np.arange(1, 9))
    assert np.allclose(scores.alibi_slopes(12)[8:], 0.5 ** np.arange(0.5, 4, 1))


def buckets_by_definition(distance, count, most, bidirectional):
    """As T5's code has it, number by number."""
    result, n = 0, -distance
    if bidirectional:
        count //= 2
        result, n = count * (n < 0), abs(n)
    n, exact = max(n, 0), count // 2
    if n < exact:
        return result + n
    ratio = torch.log(torch.tensor(float(n)) / exact) / math.log(most / exact) * (count - exact)
    return result + min(exact + int(ratio.to(torch.long)), count - 1)


@pytest.mark.parametrize(
    ("count", "most", "bidirectional"), [(32, 128, True), (32, 128, False), (8, 20, True), (16, 64, False)]
)
def test_t5_buckets_are_those_of_its_code(count, most, bidirectional):
    found = scores.t5_buckets(count, most, bidirectional)
    for distance in range(-2 * most, 2 * most + 1):
        place = min(max(distance, -most), most) + most
        assert found[place] == buckets_by_definition(distance, count, most, bidirectional), distance


# The same as windows as batches, cut out of the rolled image.
@pytest.mark.parametrize("moved", [0, 2])
def test_swin_as_a_mask_of_the_image_equals_windows_as_batches(moved):
    height, width = 8, 12
    q, k, v = inputs(1, height * width, height * width)
    output = saccade.attention(q, k, v, score=scores.swin_bias(swin, SIDE, width),
                               mask=masks.swin(height, width, SIDE, moved))  # fmt: skip
    image = [np.roll(x.reshape(HEADS, height, width, DEPTH), (-moved, -moved), (1, 2)) for x in (q, k, v)]
    cut = [x.reshape(HEADS, height // SIDE, SIDE, width // SIDE, SIDE, DEPTH) for x in image]
    cut = [x.transpose(1, 3, 0, 2, 4, 5).reshape(-1, HEADS, SIDE * SIDE, DEPTH) for x in cut]
    label = np.zeros((height, width), int)
    for axis, extent in ((0, height), (1, width)):
        place = np.arange(extent)
        part = (place >= extent - SIDE).astype(int) + (place >= extent - moved) * (moved > 0)
        label = label * 3 + (part[:, None] if axis == 0 else part)
    label = label.reshape(height // SIDE, SIDE, width // SIDE, SIDE).transpose(0, 2, 1, 3).reshape(-1, SIDE * SIDE)
    windows = expected(*cut, lambda s, b, h, i, j: s + spread[i, j, h], lambda b, h, i, j: label[b, i] == label[b, j])
    windows = windows.reshape(height // SIDE, width // SIDE, HEADS, SIDE, SIDE, DEPTH).transpose(2, 0, 3, 1, 4, 5)
    exact = np.roll(windows.reshape(HEADS, height, width, DEPTH), (moved, moved), (1, 2)).reshape(output.shape)
    np.testing.assert_allclose(output, exact, rtol=1e-4, atol=1e-5)


halved = lambda s, b, h, i, j: s * 0.5


# In the order of writing, also with functions of one's own.
@pytest.mark.parametrize("target", ["portable", "host"])
@pytest.mark.parametrize("queries", [1, 40])
def test_weights_below_2_to_the_minus_100_are_zero(target, queries):
    # Subnormal products of such weights are slow on Intel's CPUs.
    bias = np.float32([0, -99.5 * math.log(2), -100.5 * math.log(2)])
    zeros = np.zeros((1, 1, queries, 16), np.float32)
    v = np.zeros((1, 1, 3, 16), np.float32)
    v[0, 0, 1], v[0, 0, 2, :8] = 2.0**99, 2.0**99
    output = saccade.attention(zeros, v * 0, v, score=lambda s, b, h, i, j: s + bias[j], target=target)
    np.testing.assert_allclose(output, np.full(zeros.shape, 2**-0.5, np.float32), rtol=1e-4)


def test_scores_follow_one_another():
    slopes, rows = table(HEADS), table(HEADS, 7, seed=9)
    clipped = lambda d: np.clip(d, -3, 3) + 3
    both = scores.alibi(slopes) >> scores.relative_bias(rows) >> scores.soft_cap(4.0)
    definition = lambda s, b, h, i, j: 2 * np.tanh((s / 2 + slopes[h] * (j - i) + rows[h, clipped(j - i)]) / 4)
    check_numpy(lambda convert, batch, queries: (halved >> both >> halved, definition))


def test_scores_of_other_tables_are_the_same_kernel():
    q, k, v = inputs(1, 50, 60)
    counts = []
    for seed in range(4):
        saccade.attention(q, k, v, score=scores.t5_bias(table(32, HEADS, seed=seed)))
        saccade.attention(q, k, v, score=scores.alibi(table(HEADS, seed=seed), symmetric=True))
        counts.append(saccade.cache_info().compilations)
    assert counts[1:] == counts[:1] * 3


# --- refusals


def attend(score):
    return saccade.attention(*inputs(1, 50, 60), score=score)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: scores.alibi(table(2, 2)), "slopes has 2 dimensions, expected 1"),
        (lambda: scores.relative_bias(table(2, 4)), "expected an odd number"),
        (lambda: scores.t5_bias(table(32)), "table has 1 dimension, expected 2"),
        (lambda: scores.t5_buckets(2, 128, True), "expected 4 or more"),
        (lambda: scores.swin_bias(table(48, 3), 4), "expected 49 for a window of 4 × 4"),
        (lambda: scores.shaw_bias(table(1, 2, 3), 1.0), "relative_logits has 3 dimensions"),
        (lambda: scores.alibi_slopes(0), "expected 1 or more"),
        # Tables that are transposed, or those of another model.
        (lambda: attend(scores.relative_bias(table(5, HEADS))), "score has tables for 5 heads, q has 3"),
        (lambda: attend(halved >> scores.alibi(table(8))), "score has tables for 8 heads, q has 3"),
        (lambda: scores.alibi(table(2)) >> scores.soft_cap([1.0] * 3), "one score is for 2 heads, the other for 3"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_tables_that_do_not_fit_are_refused(wrong, words):
    refused(ValueError, [words], wrong)
