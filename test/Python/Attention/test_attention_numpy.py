"""`saccade.attention` on NumPy arrays: options, layouts, types, strides, functions; also in a process without torch."""

import itertools
import sys

import numpy as np
import pytest
from programs import refused

import saccade

SLOPES = [0.5, 0.25, 0.125, 0.0625]


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
    random = np.random.default_rng(3)
    normal = lambda *shape: random.standard_normal(shape).astype(dtype)
    return (normal(batch, heads, queries, depth), normal(batch, key_heads, keys, depth),
            normal(batch, key_heads, keys, value_depth))  # fmt: skip


def check(found, expected, tolerance=5e-6):
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        assert np.allclose(one, other, tolerance, tolerance), np.abs(one - other).max()


i, j = np.ogrid[:5, :9]
q, k, v = operands()
readonly = np.zeros((2, 4, 5, 16), np.float32)
readonly.flags.writeable = False
lengths = np.array([7, 3])
ends = lengths[:, None, None, None]
OPTIONS = {
    "none": ({}, True, None),
    "scale": ({"scale": 0.4}, True, 0.4),
    "top left": ({"causal": "top_left"}, j <= i, None),
    "bottom right": ({"causal": "bottom_right"}, j <= i + 4, None),
    "offset and window": ({"causal": np.int64(2), "window": 3}, (j <= i + 2) & (i - 1 < j), None),
    "window": ({"window": (1, 2)}, (i - 1 <= j) & (j <= i + 2), None),
    "length": ({"kv_len": 4}, j < 4, None),
    "lengths": ({"kv_len": lengths}, j < ends, None),
    "lengths, bottom right": (
        {"kv_len": lengths.astype(np.int32), "causal": "bottom_right"}, (j < ends) & (j <= i + ends - 5), None
    ),
    "length 0": ({"kv_len": 0}, j < 0, None),
}  # fmt: skip


@pytest.mark.parametrize(("options", "sees", "scale"), OPTIONS.values(), ids=OPTIONS)
def test_options_equal_the_formula(options, sees, scale):
    check(saccade.attention(q, k, v, return_lse=True, **options), plain(q, k, v, sees=sees, scale=scale))


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 5e-6), (np.float16, 2e-3)])
def test_results_have_the_type_of_the_operands(dtype, tolerance):
    q, k, v = operands(dtype, value_depth=24)
    output, lse = saccade.attention(q, k, v, return_lse=True)
    assert type(output) is np.ndarray
    assert output.dtype == dtype
    assert lse.dtype == (np.float64 if dtype == np.float64 else np.float32)
    check((output, lse), plain(q, k, v), tolerance)


def test_lengths_before_heads_are_a_layout():
    turned = [x.transpose(0, 2, 1, 3) for x in (q, k, v)]
    check([saccade.attention(*turned, layout="bshd").transpose(0, 2, 1, 3)], plain(q, k, v))


def test_one_head_without_batch_is_a_layout():
    check([saccade.attention(q[0, 0], k[0, 0], v[0, 0], layout="sd")], [plain(q, k, v)[0][0, 0]])


def test_negative_strides_equal_the_formula():
    back = [np.ascontiguousarray(x[:, :, ::-1])[:, :, ::-1] for x in (q, k, v)]
    assert back[0].strides[2] < 0
    check(saccade.attention(*back, return_lse=True), plain(q, k, v))


def test_out_takes_the_output_and_nothing_between_its_elements_changes():
    memory = np.full((2, 4, 5, 32), 7, np.float32)
    assert saccade.attention(q, k, v, out=memory[..., ::2]) is not None
    check([memory[..., ::2]], plain(q, k, v))
    assert (memory[..., 1::2] == 7).all()


def test_functions_read_arrays_as_they_are_at_each_call():
    slopes = np.array(SLOPES, np.float32)
    alibi = lambda s, b, h, i, j: np.tanh(s) + slopes[h] * (j - i)
    far = lambda b, h, i, j: (j > i) | (j % 4 == 0)
    sees = (j > i) | (j % 4 == 0)
    check(saccade.attention(q, k, v, score=alibi, mask=far, return_lse=True), plain(q, k, v, alibi, sees))
    before = saccade.cache_info()
    slopes *= 2
    check(saccade.attention(q, k, v, score=alibi, mask=far, return_lse=True), plain(q, k, v, alibi, sees))
    assert saccade.cache_info() == before


@pytest.mark.parametrize(("batch", "queries", "keys"), [*itertools.product((0, 1), (0, 3), (0, 3))])
def test_empty_operands_equal_the_formula(batch, queries, keys):
    empty = operands(batch=batch, queries=queries, keys=keys)
    check(saccade.attention(*empty, return_lse=True), plain(*empty))


def test_read_only_operands_equal_the_formula():
    check([saccade.attention(readonly, k, v)], plain(readonly, k, v))


@pytest.mark.parametrize(
    ("exception", "words", "operands", "options"),
    [
        (TypeError, "k has element type float64", (q, k.astype(np.float64), v), {}),
        (TypeError, "q is a list", (q.tolist(), k, v), {}),
        (TypeError, "v is a masked array", (q, k, np.ma.masked_array(v)), {}),
        (TypeError, "v has dtype >f4", (q, k, v.astype(">f4")), {}),
        (ValueError, "out is a read-only NumPy array", (q, k, v), {"out": readonly}),
    ],
    ids=["element type", "list", "masked array", "byte order", "read-only out"],
)
def test_what_is_no_usable_array_is_refused(exception, words, operands, options):
    refused(exception, [words], saccade.attention, *operands, **options)


@pytest.mark.skipif(sys.modules.get("torch", "") is None, reason="this is the process without torch")
def test_all_of_this_holds_without_torch(run_script):
    report = run_script("without_torch_process.py", __file__)
    assert "passed, 1 skipped" in report, report


def test_results_of_subclasses_are_plain_arrays():
    class Mine(np.ndarray):
        """A subclass, such as one with units."""

    q, k, v = operands()
    output, lse = saccade.attention(q.view(Mine), k, v, return_lse=True)
    assert type(output) is type(lse) is np.ndarray
