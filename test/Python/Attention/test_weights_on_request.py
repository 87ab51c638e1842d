"""saccade.attention_weights: the softmax weights of chosen batches, heads and queries."""

import itertools

import numpy as np
import pytest

import saccade
from saccade import masks, scores

RNG = np.random.default_rng(7)
BATCHES, HEADS, KV_HEADS, QUERIES, KEYS, DEPTH = 2, 6, 2, 11, 17, 8


def operands(dtype=np.float32, layout="bhsd"):
    sizes = {"b": BATCHES, "d": DEPTH}
    shapes = [[(sizes | extents)[dim] for dim in layout] for extents in ({"h": HEADS, "s": QUERIES}, {"h": KV_HEADS, "s": KEYS})]
    return [RNG.standard_normal(shape).astype(dtype) for shape in shapes]


def definition(q, k, score=None, visible=True, scale=None, sink=-np.inf):
    """The weights in float64, for operands in the layout bhsd. `score` maps scores; `visible` broadcasts to them."""
    q, k = np.asarray(q, np.float64), np.repeat(np.asarray(k, np.float64), q.shape[1] // k.shape[1], 1)
    s = np.einsum("bhqd,bhkd->bhqk", q, k) * (1 / np.sqrt(q.shape[-1]) if scale is None else scale)
    s = np.where(visible, s if score is None else score(s), -np.inf)
    most = np.maximum(np.max(s, -1, keepdims=True), np.reshape(sink, (1, -1, 1, 1)))
    with np.errstate(invalid="ignore"):
        terms = np.exp(s - np.where(np.isinf(most), 0, most))
        total = terms.sum(-1, keepdims=True) + np.exp(np.reshape(sink, (1, -1, 1, 1)) - np.where(np.isinf(most), 0, most))
    return terms / np.where(total == 0, 1, total)


def index(choice):
    return slice(None) if choice is None else slice(choice.start, choice.stop) if isinstance(choice, range) else choice


def chosen(whole, batches, heads, queries):
    return whole[:, :, index(queries)][:, index(heads)][index(batches)]


@pytest.mark.parametrize("heads", [None, 0, 4, -1, np.int64(4), slice(1, 5), range(3, 6), slice(2, 2), slice(1, 2)])
def test_what_is_chosen_is_that_part_of_all_weights(heads):
    q, k = operands()
    slopes, table = np.linspace(0.1, 1, HEADS, dtype=np.float32), RNG.standard_normal((BATCHES, QUERIES)).astype(np.float32)

    def score(s, b, h, i, j):
        return s + slopes[h] * (j - i) + table[b, i]

    i, j = np.arange(QUERIES)[:, None] + KEYS - QUERIES, np.arange(KEYS)
    bias = slopes[:, None, None] * (j - np.arange(QUERIES)[:, None])
    whole = definition(q, k, lambda s: s + bias + table[:, None, :, None], (j <= i) & (j > i - 9))
    options = {"score": score, "causal": "bottom_right", "window": 9}
    lse = saccade.attention(q, k, k, return_lse=True, **options)[1]
    for batches, queries, given in itertools.product([None, 1], [None, -1, slice(3, 7)], [None, lse]):
        part = saccade.attention_weights(q, k, given, batches=batches, heads=heads, queries=queries, **options)
        expected = chosen(whole, batches, heads, queries)
        assert part.shape == expected.shape and part.dtype == np.float32
        np.testing.assert_allclose(part, expected, atol=2e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-14), (np.float16, 2e-6)])
@pytest.mark.parametrize("layout", ["bshd", "hsd", "sd"])
def test_layouts_and_types(dtype, tolerance, layout):
    q, k = operands(dtype, layout)
    whole = [x.transpose([layout.index(dim) for dim in "bhsd" if dim in layout]) for x in (q, k)]
    expected = definition(*[x[(None,) * (4 - x.ndim)] for x in whole], scale=0.3)
    found = saccade.attention_weights(q, k, queries=slice(2, None), layout=layout, scale=0.3)
    np.testing.assert_allclose(found, expected[:, :, 2:].reshape(found.shape), atol=tolerance)


def test_lengths_sinks_and_masks_by_functions():
    q, k = operands()
    sink, lengths = RNG.standard_normal(HEADS).astype(np.float32), np.array([5, 17])
    documents = np.arange(KEYS) // 6

    def mask(b, h, i, j):
        return documents[j] == documents[i]

    within = np.arange(KEYS) < lengths[:, None, None, None]
    visible = (documents == documents[:QUERIES, None]) & within
    expected = definition(q, k, visible=visible, sink=sink)
    options = {"mask": mask, "kv_len": lengths}
    found = saccade.attention_weights(q, k, batches=range(2), heads=slice(2, 6), sink=sink, **options)
    np.testing.assert_allclose(found, expected[:, 2:], atol=2e-6)
    lse = saccade.attention(q, k, k, sink=sink, return_lse=True, **options)[1]
    found = saccade.attention_weights(q, k, lse, batches=0, heads=slice(2, 6), **options)
    np.testing.assert_allclose(found, expected[0, 2:], atol=2e-6)
    # Of sequence 0 no key is visible for queries 6 and later.
    assert not found[:, 6:].any() and found[:, :6].any()


def test_named_masks_and_scores():
    q, k = operands()
    found = saccade.attention_weights(q, k, heads=5, queries=10, score=scores.soft_cap(2.0), mask=masks.causal(3), kv_len=12)
    s = 2 * np.tanh(np.einsum("bd,bkd->bk", q[:, 5, 10].astype(float), k[:, 1].astype(float)) / np.sqrt(DEPTH) / 2)
    s[:, 12:] = -np.inf
    expected = np.exp(s) / np.exp(s).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=2e-6)


def test_torch_tensors_without_gradient():
    torch = pytest.importorskip("torch")
    q, k = (torch.from_numpy(x).bfloat16().requires_grad_() for x in operands())
    with pytest.raises(ValueError, match="q requires grad, and this function has no backward"):
        saccade.attention_weights(q, k)
    q, k = q.detach(), k.detach()
    _, lse = saccade.attention(q, k, k, return_lse=True, causal=2)
    found = saccade.attention_weights(q, k, lse, heads=slice(1, 4), causal=2)
    assert found.dtype == torch.float32
    visible = np.arange(KEYS) <= np.arange(QUERIES)[:, None] + 2
    whole = definition(q.float().numpy(), k.float().numpy(), visible=visible)
    np.testing.assert_allclose(found.numpy(), whole[:, 1:4], atol=2e-6)
    compiled = torch.compile(lambda q, k: saccade.attention_weights(q, k, queries=0) * 2, backend="eager")
    torch.testing.assert_close(compiled(q, k), saccade.attention_weights(q, k, queries=0) * 2)


def test_arrays_of_jax():
    jax = pytest.importorskip("jax")
    q, k = operands()
    found = saccade.attention_weights(jax.numpy.asarray(q), jax.numpy.asarray(k), heads=3, score=lambda s, b, h, i, j: s * 2)
    assert isinstance(found, jax.Array)
    np.testing.assert_allclose(found, definition(q, k, lambda s: s * 2)[:, 3], atol=2e-6)


def test_one_program_serves_all_choices():
    q, k = operands()
    saccade.attention_weights(q, k, heads=0)
    before = saccade.cache_info().compilations
    saccade.attention_weights(q, k[:, :, :9], heads=range(4), queries=3, batches=1)
    assert saccade.cache_info().compilations == before


def test_one_row_of_many_keys_takes_memory_of_one_row():
    """All weights of these operands would take 64 GiB."""
    q, k = np.ones((1, 1, 1 << 17, 8), np.float32), np.ones((1, 1, 1 << 17, 8), np.float32)
    found = saccade.attention_weights(q, k, queries=range(70000, 70002), causal="top_left")
    assert found.shape == (1, 1, 2, 1 << 17) and np.isclose(found[0, 0, 0, :70001].sum(), 1) and not found[0, 0, 0, 70001:].any()


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"heads": 6}, IndexError, "heads is 6, expected -6 to 5"),
    ({"queries": range(3, 12)}, IndexError, r"queries is range\(3, 12\), expected positions 0 to 10"),
    ({"queries": slice(0, 8, 2)}, ValueError, r"queries is slice\(0, 8, 2\), expected a step of 1"),
    ({"batches": "all"}, TypeError, "batches is 'all', expected an int, a slice or a range"),
    ({"heads": True}, TypeError, "heads is True, expected an int"),
    ({"kv_len": 18}, ValueError, "kv_len is 18, expected 0 to 17, the length of k"),
    ({"lse": np.zeros((2, 6, 10), np.float32)}, ValueError, r"lse has shape \(2, 6, 10\), expected \(2, 6, 11\)"),
    ({"lse": np.zeros((2, 6, 11))}, TypeError, "lse has element type float64, expected float32"),
    ({"lse": np.zeros((2, 6, 11), np.float32), "sink": 1.0}, ValueError, "sink is given, expected None: lse includes it"),
    ({"layout": "hsd"}, TypeError, 'q has 4 dimensions'),
    ({"causal": True}, TypeError, "causal is True, expected an alignment"),
])  # fmt: skip
def test_errors(options, error, message):
    q, k = operands()
    with pytest.raises(error, match=message):
        saccade.attention_weights(q, k, **options)


def test_a_choice_of_a_dimension_that_the_layout_lacks():
    q, k = operands(layout="sd")
    with pytest.raises(ValueError, match="heads is 0, expected None: layout 'sd' has no h"):
        saccade.attention_weights(q, k, heads=0, layout="sd")


def test_a_captured_table_that_is_too_small_is_named():
    q, k = operands()
    table = np.zeros(QUERIES - 1, np.float32)
    with pytest.raises(ValueError, match="'table', which score reads by query position in dimension 0, is too small for it"):
        saccade.attention_weights(q, k, queries=slice(5, None), score=lambda s, b, h, i, j: s + table[i])
