"""`saccade.attention` on NumPy arrays, in a process that has no torch: options, layouts, types, strides, functions.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import itertools
import sys

sys.modules["torch"] = None  # importing it fails from here on
sys.modules["tvm_ffi"] = None

import numpy as np

import saccade

random = np.random.default_rng(3)


def plain(q, k, v, score=None, sees=True, scale=None):
    """The formula in float64 for q [b, h, s, d]; `sees` is what a query sees, broadcast to the scores."""
    k, v = (np.repeat(x.astype(np.float64), q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.einsum("bhid,bhjd->bhij", q.astype(np.float64), k) * (q.shape[-1] ** -0.5 if scale is None else scale)
    b, h, i, j = np.ogrid[tuple(map(slice, scores.shape))]
    scores = scores if score is None else score(scores, b, h, i, j)
    scores = np.where(sees, scores, -np.inf)
    with np.errstate(divide="ignore", invalid="ignore"):
        top = np.nan_to_num(scores.max(-1, keepdims=True, initial=-np.inf), neginf=0)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        return np.nan_to_num(weights / total) @ v, (np.log(total) + top)[..., 0]


def operands(dtype=np.float32, batch=2, heads=4, key_heads=2, queries=5, keys=9, depth=16, value_depth=16):
    normal = lambda *shape: random.standard_normal(shape).astype(dtype)
    return (normal(batch, heads, queries, depth), normal(batch, key_heads, keys, depth),
            normal(batch, key_heads, keys, value_depth))  # fmt: skip


def check(found, expected, tolerance=5e-6):
    for one, other in zip(found, expected):
        assert one.shape == other.shape and np.allclose(one, other, tolerance, tolerance), np.abs(one - other).max()


i, j = np.ogrid[:5, :9]
q, k, v = operands()
lengths = np.array([7, 3])
ends = lengths[:, None, None, None]
for options, sees, scale in [
    ({}, True, None),
    ({"scale": 0.4}, True, 0.4),
    ({"causal": "top_left"}, j <= i, None),
    ({"causal": "bottom_right"}, j <= i + 4, None),
    ({"causal": np.int64(2), "window": 3}, (j <= i + 2) & (i - 1 < j), None),
    ({"window": (1, 2)}, (i - 1 <= j) & (j <= i + 2), None),
    ({"kv_len": 4}, j < 4, None),
    ({"kv_len": lengths}, j < ends, None),
    ({"kv_len": lengths.astype(np.int32), "causal": "bottom_right"}, (j < ends) & (j <= i + ends - 5), None),
    ({"kv_len": 0}, j < 0, None),
]:
    check(saccade.attention(q, k, v, return_lse=True, **options), plain(q, k, v, sees=sees, scale=scale))

for dtype, tolerance in ((np.float64, 1e-12), (np.float32, 5e-6), (np.float16, 2e-3)):
    q, k, v = operands(dtype, value_depth=24)
    output, lse = saccade.attention(q, k, v, return_lse=True)
    assert type(output) is np.ndarray and output.dtype == dtype
    assert lse.dtype == (np.float64 if dtype == np.float64 else np.float32)
    check((output, lse), plain(q, k, v), tolerance)

# Layouts, strides that step back, lists of arrays cut out of others; the caller's memory.
q, k, v = operands()
expected = plain(q, k, v)
check([saccade.attention(*(x.transpose(0, 2, 1, 3) for x in (q, k, v)), layout="bshd").transpose(0, 2, 1, 3)], expected)
check([saccade.attention(q[0, 0], k[0, 0], v[0, 0], layout="sd")], [expected[0][0, 0]])
back = [np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in (q, k, v)]
assert back[0].strides[2] < 0
check(saccade.attention(*back, return_lse=True), expected)
memory = np.full((2, 4, 5, 32), 7, np.float32)
assert saccade.attention(q, k, v, out=memory[..., ::2]) is not None
check([memory[..., ::2]], expected)
assert (memory[..., 1::2] == 7).all()

# Functions of index scalars, and the arrays they read, as they are at each call.
slopes = np.array([0.5, 0.25, 0.125, 0.0625], np.float32)
alibi = lambda s, b, h, i, j: np.tanh(s) + slopes[h] * (j - i)
far = lambda b, h, i, j: (j > i) | (j % 4 == 0)
check(saccade.attention(q, k, v, score=alibi, mask=far, return_lse=True), plain(q, k, v, alibi, (j > i) | (j % 4 == 0)))
before = saccade.cache_info()
slopes *= 2
check(saccade.attention(q, k, v, score=alibi, mask=far, return_lse=True), plain(q, k, v, alibi, (j > i) | (j % 4 == 0)))
assert saccade.cache_info() == before

for sizes in itertools.product((0, 1), (0, 3), (0, 3)):
    empty = operands(batch=sizes[0], queries=sizes[1], keys=sizes[2])
    check(saccade.attention(*empty, return_lse=True), plain(*empty))

readonly = np.zeros((2, 4, 5, 16), np.float32)
readonly.flags.writeable = False
check([saccade.attention(readonly, k, v)], plain(readonly, k, v))
for operands, options, words in [
    ((q, k.astype(np.float64), v), {}, "k has element type float64"),
    ((q.tolist(), k, v), {}, "q is a list"),
    ((q, k, np.ma.masked_array(v)), {}, "v is a masked array"),
    ((q, k, v.astype(">f4")), {}, "v has dtype >f4"),
    ((q, k, v), {"out": readonly}, "out is a read-only NumPy array"),
]:
    try:
        saccade.attention(*operands, **options)
    except (TypeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"not refused: {words}")
