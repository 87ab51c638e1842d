"""`score` and `mask` of `saccade.attention` are Python functions of index scalars; what they close over is read anew at
each call, and a function made anew is compiled again only where it computes something else.
"""

import gc
import math
import weakref

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from plain_attention import expect_close, plain_attention
from programs import refused

import saccade

generator = torch.Generator().manual_seed(6)


def normal(*shape):
    return torch.randn(shape, generator=generator)


q, k, v = normal(2, 4, 13, 16), normal(2, 2, 21, 16), normal(2, 2, 21, 16)
slopes, documents = torch.tensor([0.5, 0.25, 0.125, 0.0625]), torch.randint(0, 3, (2, 21), generator=generator)
bias, cap = normal(4, 13, 21), 5.0
alibi = lambda s, b, h, i, j: s + slopes[h] * (j - i)
capped = lambda s, b, h, i, j: cap * torch.tanh(s / cap)
same_document = lambda b, h, i, j: documents[b, i] == documents[b, j]
dilated = lambda b, h, i, j: (j - i) % 3 == 0
SCORES = {"none": None, "ALiBi": alibi, "soft cap": capped, "bias": lambda s, b, h, i, j: s + bias[h, i, j]}
MASKS = {"none": None, "documents": same_document, "dilated": dilated, "nothing": lambda b, h, i, j: j < 0}


def check(**options):
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    expected, expected_lse = plain_attention(q, k, v, **options)
    expect_close(output, expected, options)
    expect_close(lse, expected_lse, options)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("score", SCORES.values(), ids=SCORES)
def test_scores_and_masks_equal_the_formula(score, mask):
    check(score=score, mask=mask)


# Scale, score, mask, softmax, with all that masks at once.
@pytest.mark.parametrize(
    "options",
    [
        {"score": capped, "mask": dilated, "causal": "bottom_right", "window": (9, 3), "kv_len": torch.tensor([20, 15])},
        {"score": alibi, "mask": same_document, "causal": 4, "window": 5, "kv_len": 17},
    ],
    ids=["capped and dilated", "ALiBi and documents"],
)
def test_functions_join_all_other_options(options):
    check(scale=0.4, **options)


def test_scores_of_float64_operands_are_float64():
    wide = [x.double() for x in (q, k, v)]
    third = lambda s, b, h, i, j: s * (1 / 3) + math.pi * 1e-9
    output = saccade.attention(*wide, score=third)
    assert output.dtype == torch.float64
    expect_close(output, plain_attention(*wide, score=third)[0])


@pytest.mark.parametrize("first", [torch.float32, torch.float64])
def test_one_function_serves_operands_of_both_precisions(first):
    third = lambda s, b, h, i, j: s * (1 / 3) + math.pi * 1e-9
    second = torch.float64 if first == torch.float32 else torch.float32
    for dtype in (first, second):
        operands = [x.to(dtype) for x in (q, k, v)]
        output = saccade.attention(*operands, score=third)
        assert output.dtype == dtype
        expect_close(output, plain_attention(*operands, score=third)[0])


# --- functions made anew


@pytest.fixture
def nothing_compiled():
    """What counts compilations starts from an empty cache."""
    saccade.cache_clear()


def biased(table, factor):
    return lambda s, b, h, i, j: s + factor * table[h]


def compilations():
    return saccade.cache_info().compilations


def test_the_same_code_on_other_tensors_compiles_once(nothing_compiled):
    check(score=biased(slopes, 2.0))
    before = saccade.cache_info()
    for _ in range(5):
        table = normal(4)
        check(score=biased(table, 2.0))
    table.fill_(3.0)
    check(score=biased(table, 2.0))
    assert saccade.cache_info() == before


def test_another_number_does_not_compile_again(nothing_compiled):
    check(score=biased(slopes, 2.0))
    before = compilations()
    for factor in (3.0, -0.5, 0.0):
        check(score=biased(slopes, factor))
    assert compilations() == before


def test_a_table_of_another_element_type_compiles_again(nothing_compiled):
    check(score=biased(slopes, 3.0))
    before = compilations()
    check(score=biased(slopes.double(), 3.0))
    assert compilations() == before + 1


def test_another_number_in_a_tensor_compiles_once(nothing_compiled):
    check(score=biased(slopes, torch.tensor(2.0)))
    before = saccade.cache_info()
    for factor in (0.5, 3.0):
        check(score=biased(slopes, torch.tensor(factor)))
    assert saccade.cache_info() == before


def test_captured_tensors_are_freed_after_the_call():
    check(score=biased(slopes, 3.0))
    table = normal(4)
    check(score=biased(table, 3.0))
    gone = weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None, "a captured tensor is kept after the call"


def test_numpy_arrays_are_captured_beside_torch_operands():
    def added(table):
        return lambda s, b, h, i, j: s + table[h]

    constant = slopes.numpy().copy()
    constant.flags.writeable = False
    expected = saccade.attention(q, k, v, score=added(slopes))
    assert torch.equal(saccade.attention(q, k, v, score=added(constant)), expected)


class Slopes:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, s, b, h, i, j):
        return s + slopes[h] * self.factor


# Functions without a fingerprint are traced at each call.
def test_an_object_compiles_again_where_its_state_changes_the_function(nothing_compiled):
    scorer = Slopes(2.0)
    check(score=scorer)
    before = compilations()
    check(score=scorer)
    assert compilations() == before
    scorer.factor = 4.0
    check(score=scorer)
    assert compilations() == before + 1


def test_random_numbers_are_drawn_anew_at_each_call():
    drawn = lambda s, b, h, i, j: s + np.random.uniform(1, 9) * (j % 3)
    assert not torch.equal(saccade.attention(q, k, v, score=drawn), saccade.attention(q, k, v, score=drawn))


# It is a number of that call.
def test_numbers_read_of_a_tensor_while_tracing_are_read_anew():
    def shifted(table):
        return lambda s, b, h, i, j: s * float(table[0]) + table.shape[0]

    for table in (torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([2.0, 0.0])):
        check(score=shifted(table))


# --- reads outside of captured tensors


def test_a_table_too_short_for_the_keys_is_refused():
    short = normal(4, 13, 20)
    refused(ValueError, ["20", "21"], saccade.attention, q, k, v, score=lambda s, b, h, i, j: s + short[h, i, j])


def test_a_mask_table_too_short_for_the_keys_is_refused():
    padding = torch.ones(2, 20).bool()
    words = ["'padding', which mask reads", "20", "21"]
    refused(ValueError, words, saccade.attention, q, k, v, mask=lambda b, h, i, j: padding[b, j])


@pytest.fixture
def by_kind():
    """A score that reads one place of a table outside of it, at key 11."""
    slope, kinds = torch.ones(3), torch.zeros(21, dtype=torch.int32)
    kinds[11] = 3
    return lambda s, b, h, i, j: s + slope[kinds[j]]


def test_an_index_out_of_another_table_is_refused_where_it_leaves_its_table(by_kind):
    words = ["'slope', which score reads by an index out of 'kinds'", "found 3, expected at least 4"]
    refused(ValueError, words, saccade.attention, q, k, v, score=by_kind)


def test_an_index_out_of_another_table_is_not_read_where_no_query_sees_the_key(by_kind):
    saccade.attention(q, k, v, score=by_kind, mask=lambda b, h, i, j: j < 11)
