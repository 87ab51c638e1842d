"""`saccade.scores` against what each score is by definition, evaluated in float64 with NumPy.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import math

import numpy as np
import torch

import saccade
from saccade import masks, scores
from saccade.regions import fingerprint

random = np.random.default_rng(7)
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
    shapes = [(batch, HEADS, count, DEPTH) for count in (queries, keys, keys)]
    return [(size * random.standard_normal(shape)).astype(np.float32) for shape in shapes]


def check(make, sizes=SIZES, sees=None, size=1.0, types=True, **options):
    """`make(convert, batch, queries)` gives the score and its definition. Every length, NumPy or torch in either type of
    float, is one kernel a type."""
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
    if not types:
        return
    for batch, queries, keys in sizes[:1]:
        q, k, v = (torch.from_numpy(x).bfloat16() for x in inputs(batch, queries, keys, size))
        score, change = make(torch.from_numpy, batch, queries)
        output = saccade.attention(q, k, v, score=score, **options).float().numpy()
        exact = expected(*(x.float().numpy() for x in (q, k, v)), change, sees)
        np.testing.assert_allclose(output, exact, rtol=2e-2, atol=2e-2 * np.abs(exact).max())


def table(*shape):
    return random.standard_normal(shape).astype(np.float32)


def of_slopes(convert, batch, queries):
    slopes = scores.alibi_slopes(HEADS)
    return scores.alibi(convert(slopes)), lambda s, b, h, i, j: s + slopes[h] * (j - i)


def of_symmetric_slopes(convert, batch, queries):
    slopes = table(HEADS)
    return scores.alibi(convert(slopes), symmetric=True), lambda s, b, h, i, j: s - slopes[h] * abs(j - i)


assert np.allclose(scores.alibi_slopes(8), 0.5 ** np.arange(1, 9))
assert np.allclose(scores.alibi_slopes(12)[:8], 0.5 ** np.arange(1, 9))
assert np.allclose(scores.alibi_slopes(12)[8:], 0.5 ** np.arange(0.5, 4, 1))
check(of_slopes, sees=lambda b, h, i, j: j <= i + 5, mask=masks.causal(5))
check(of_symmetric_slopes)

# The cap bends large scores, so that they are not nearly what they were.
capped = lambda cap: lambda s, b, h, i, j: cap * np.tanh(s / cap)
check(lambda convert, batch, queries: (scores.soft_cap(5.0), capped(5.0)), size=3.0)
check(lambda convert, batch, queries: (scores.soft_cap(convert(np.array(2.5, np.float32))), capped(2.5)), size=3.0)
caps = np.array([1.0, 20.0, 50.0], np.float32)
check(lambda convert, batch, queries: (scores.soft_cap(convert(caps)),
                                       lambda s, b, h, i, j: caps[h] * np.tanh(s / caps[h])), size=3.0)
warm = np.array([0.5, 2.0, 7.0], np.float32)
check(lambda convert, batch, queries: (scores.temperature(convert(warm)), lambda s, b, h, i, j: s / warm[h]))
check(lambda convert, batch, queries: (scores.temperature(convert(warm[2:].reshape(()))), lambda s, b, h, i, j: s / 7))


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


for count, most, bidirectional in ((32, 128, True), (32, 128, False), (8, 20, True), (16, 64, False)):
    found = scores.t5_buckets(count, most, bidirectional)
    for distance in range(-2 * most, 2 * most + 1):
        place = min(max(distance, -most), most) + most
        assert found[place] == buckets_by_definition(distance, count, most, bidirectional), (distance, count)

for bidirectional, offset in ((True, 0), (False, 0), (False, 7)):

    def of_buckets(convert, batch, queries):
        rows, bucket = table(32, HEADS), scores.t5_buckets(32, 128, bidirectional)
        return (scores.t5_bias(convert(rows), bidirectional=bidirectional, offset=offset),
                lambda s, b, h, i, j: s + rows[bucket[np.clip(j - i - offset, -128, 128) + 128], h])

    check(of_buckets)


def of_distances(convert, batch, queries):
    rows = table(HEADS, 21)
    return scores.relative_bias(convert(rows)), lambda s, b, h, i, j: s + rows[h, np.clip(j - i, -10, 10) + 10]


check(of_distances)


def of_pairs(convert, batch, queries):
    rows = table(HEADS, 130, 301)
    return scores.bias(convert(rows)), lambda s, b, h, i, j: s + rows[h, i, j]


check(of_pairs)


def of_shaw(convert, batch, queries):
    products = table(batch, HEADS, queries, 9)
    return (scores.shaw_bias(convert(products), 0.25),
            lambda s, b, h, i, j: s + 0.25 * products[b, h, i, np.clip(j - i, -4, 4) + 4])


check(of_shaw)

# Swin: windows as batches, and as a mask on the whole image. Each window's tokens see each other, with a bias for the
# distance in rows and columns, looked up as Swin's own code does it.
side, height, width, shift = 4, 8, 12, 2
swin = table((2 * side - 1) ** 2, HEADS)
axes = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij")).reshape(2, -1)
relative = axes[:, :, None] - axes[:, None, :] + side - 1
spread = swin[relative[0] * (2 * side - 1) + relative[1]]
check(lambda convert, batch, queries: (scores.swin_bias(convert(swin), side),
                                       lambda s, b, h, i, j: s + spread[i, j, h]), ((6, 16, 16), (1, 16, 16)))
for moved in (0, shift):
    q, k, v = inputs(1, height * width, height * width)
    output = saccade.attention(q, k, v, score=scores.swin_bias(swin, side, width),
                               mask=masks.swin(height, width, side, moved))
    image = [np.roll(x.reshape(HEADS, height, width, DEPTH), (-moved, -moved), (1, 2)) for x in (q, k, v)]
    cut = [x.reshape(HEADS, height // side, side, width // side, side, DEPTH).transpose(1, 3, 0, 2, 4, 5) for x in image]
    cut = [x.reshape(-1, HEADS, side * side, DEPTH) for x in cut]
    label = np.zeros((height, width), int)
    for axis, extent in ((0, height), (1, width)):
        place = np.arange(extent)
        part = (place >= extent - side).astype(int) + (place >= extent - moved) * (moved > 0)
        label = label * 3 + (part[:, None] if axis == 0 else part)
    label = label.reshape(height // side, side, width // side, side).transpose(0, 2, 1, 3).reshape(-1, side * side)
    windows = expected(*cut, lambda s, b, h, i, j: s + spread[i, j, h], lambda b, h, i, j: label[b, i] == label[b, j])
    windows = windows.reshape(height // side, width // side, HEADS, side, side, DEPTH).transpose(2, 0, 3, 1, 4, 5)
    exact = np.roll(windows.reshape(HEADS, height, width, DEPTH), (moved, moved), (1, 2)).reshape(output.shape)
    np.testing.assert_allclose(output, exact, rtol=1e-4, atol=1e-5)

# One behind the other, also with functions of one's own, in the order of writing.
slopes, rows = table(HEADS), table(HEADS, 7)
clipped = lambda d: np.clip(d, -3, 3) + 3
both = scores.alibi(slopes) >> scores.relative_bias(rows) >> scores.soft_cap(4.0)
own = lambda s, b, h, i, j: s * 0.5
check(lambda convert, batch, queries: (own >> both >> own, lambda s, b, h, i, j:
      2 * np.tanh((s / 2 + slopes[h] * (j - i) + rows[h, clipped(j - i)]) / 4)), types=False)

# Other tables are the same kernel.
q, k, v = inputs(1, 50, 60)
before = saccade.cache_info().compilations
for _ in range(3):
    saccade.attention(q, k, v, score=scores.t5_bias(table(32, HEADS)))
    saccade.attention(q, k, v, score=scores.alibi(table(HEADS), symmetric=True))
assert saccade.cache_info().compilations == before, (before, saccade.cache_info())

for wrong, words in (
    (lambda: scores.alibi(table(2, 2)), "slopes has 2 dimensions, expected 1"),
    (lambda: scores.relative_bias(table(2, 4)), "expected an odd number"),
    (lambda: scores.t5_bias(table(32)), "table has 1 dimensions, expected 2"),
    (lambda: scores.t5_buckets(2, 128, True), "expected 4 or more"),
    (lambda: scores.swin_bias(table(48, 3), 4), "expected 49 for a window of 4 × 4"),
    (lambda: scores.shaw_bias(table(1, 2, 3), 1.0), "relative_logits has 3 dimensions"),
    (lambda: scores.alibi_slopes(0), "expected 1 or more"),
    # Tables that are transposed, or those of another model.
    (lambda: saccade.attention(q, k, v, score=scores.relative_bias(table(5, HEADS))), "score has tables for 5 heads, q has 3"),
    (lambda: saccade.attention(q, k, v, score=own >> scores.alibi(table(8))), "score has tables for 8 heads, q has 3"),
    (lambda: scores.alibi(table(2)) >> scores.soft_cap([1.0] * 3), "one score is for 2 heads, the other for 3"),
):
    try:
        wrong()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
