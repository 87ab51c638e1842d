"""`sink`, `weight` and `return_max` of `saccade.attention`: against the formula, and what is refused."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from plain_attention import expect_close, plain_attention
from programs import refused

import saccade

generator = torch.Generator().manual_seed(9)
q, k, v = (torch.randn(shape, generator=generator) for shape in ((2, 4, 13, 16), (2, 2, 21, 16), (2, 2, 21, 16)))
wide = [x.double() for x in (q, k, v)]
sinks = torch.tensor([0.5, -1.0, 7.0, -math.inf])
gate = torch.rand(4, 13, 21, generator=generator)


def check(q=q, k=k, v=v, **options):
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    expected, expected_lse = plain_attention(q, k, v, **options)
    expect_close(output, expected, options)
    expect_close(lse, expected_lse, options)
    expect_close(saccade.attention(q, k, v, **options), expected, options)


# One a head, one for all, beside all that masks; −∞ is none.
SINKS = {
    "heads": {"sink": sinks},
    "float": {"sink": 1.5},
    "none": {"sink": -math.inf},
    "int": {"sink": 2},
    "masked": {"sink": sinks, "causal": -3, "kv_len": torch.tensor([20, 0]), "scale": 0.3},
}


@pytest.mark.parametrize("options", SINKS.values(), ids=SINKS)
def test_sinks_equal_the_formula(options):
    check(**options)


def test_sinks_of_float64_equal_the_formula():
    check(*wide, sink=sinks.double())


@pytest.mark.parametrize("sink", ["float32", "same", 0.25])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_sinks_of_half_precision_operands_equal_the_formula(dtype, sink):
    halves = [x.to(dtype) for x in (q, k, v)]
    check(*halves, sink=sinks if sink == "float32" else sinks.to(dtype) if sink == "same" else sink)


def test_sink_of_one_head_without_batch_equals_the_formula():
    check(q[0, 0], k[0, 0], v[0, 0], sink=sinks[:1], layout="sd")


def test_other_sinks_and_head_counts_do_not_compile_again():
    check(sink=sinks)
    before = saccade.cache_info().compilations
    for sink in (sinks + 1, sinks[::2].repeat_interleave(2), torch.zeros(8)[::2]):
        check(sink=sink)
    check(q[:, :2], k[:, :1], v[:, :1], sink=sinks[:2])
    assert saccade.cache_info().compilations == before, "sinks are arguments, and heads are counted at run time"


def test_another_number_as_sink_does_not_compile_again():
    check(sink=1.5)
    before = saccade.cache_info().compilations
    for sink in (3.0, -3.0):
        saccade.attention(q, k, v, sink=sink)
    assert saccade.cache_info().compilations == before


# Proportional ones, others, with captured tensors, after a score.
WEIGHTS = {
    "gate": {"weight": lambda p, b, h, i, j: p * gate[h, i, j]},
    "every other": {"weight": lambda p, b, h, i, j: torch.where((i + j) % 2 == 0, p, 0.0), "causal": "bottom_right"},
    "square": {"weight": lambda p, b, h, i, j: p * p, "sink": sinks, "causal": "top_left"},
    "root": {
        "weight": lambda p, b, h, i, j: p.sqrt() + gate[h, i, j], "score": lambda s, b, h, i, j: 3 * s, "kv_len": 17
    },
}  # fmt: skip


@pytest.mark.parametrize("options", WEIGHTS.values(), ids=WEIGHTS)
def test_functions_of_weights_equal_the_formula(options):
    check(**options)


def test_functions_of_float64_weights_equal_the_formula():
    check(*wide, weight=lambda p, b, h, i, j: torch.clamp(p - 0.01, min=0.0))


def test_functions_of_weights_on_numpy_arrays_equal_the_formula():
    found = saccade.attention(*(x.numpy() for x in (q, k, v)), weight=lambda p, b, h, i, j: np.minimum(p, 0.1))
    expect_close(torch.from_numpy(found), plain_attention(q, k, v, weight=lambda p, *_: p.clamp(max=0.1))[0])


# --- the largest score and its key


@pytest.mark.parametrize(
    "options",
    [{}, {"sink": sinks}, {"causal": -2}, {"score": lambda s, b, h, i, j: s - 0.1 * (j - i).abs()}],
    ids=["none", "sink", "causal", "score"],
)
def test_largest_score_and_its_key_equal_the_formula(options):
    output, lse, top, where = saccade.attention(q, k, v, return_lse=True, return_max=True, **options)
    formula, formula_lse = plain_attention(q, k, v, **options)
    expect_close(output, formula)
    expect_close(lse, formula_lse)
    scores = q @ k.repeat_interleave(2, 1).transpose(2, 3) / 4
    i, j = torch.arange(13)[:, None], torch.arange(21)
    if "score" in options:
        scores = scores - 0.1 * (j - i).abs()
    expected = scores.masked_fill(~(j <= i + options.get("causal", 21)), -math.inf).max(-1)
    expect_close(top, expected.values.double())
    assert where.dtype == torch.int64
    assert torch.equal(where, expected.indices.masked_fill(expected.values.isneginf(), -1))
    output, top, where = saccade.attention(q, k, v, return_max=True, **options)
    expect_close(top, expected.values.double())


def test_out_takes_output_and_lse_beside_the_largest_score():
    pair = torch.empty_like(q), torch.empty(2, 4, 13)
    found = saccade.attention(q, k, v, return_lse=True, return_max=True, out=pair)
    assert found[0] is pair[0]
    assert found[1] is pair[1]
    assert len(found) == 4


# --- refusals

REFUSED = [
    (ValueError, "sink has 3 numbers, expected 4: one for each head of q", {"sink": sinks[:3]}),
    (TypeError, "sink has 2 dimensions, expected 1: a number for each head of q", {"sink": sinks.reshape(2, 2)}),
    (TypeError, "sink has element type float64, expected float32", {"sink": sinks.double()}),
    (TypeError, "sink is a NumPy array, expected a torch tensor, as q is", {"sink": sinks.numpy()}),
    (TypeError, "return_max is 1, expected True or False", {"return_max": 1}),
    (TypeError, "weight is 0.5, expected a function (p, b, h, i, j) -> weight", {"weight": 0.5}),
    (saccade.TraceError, "weight function takes (p, j), expected (p, b, h, i, j)", {"weight": lambda p, j: p}),
]


@pytest.mark.parametrize(("kind", "words", "options"), REFUSED, ids=[words for _, words, _ in REFUSED])
def test_values_that_an_option_does_not_have_are_refused(kind, words, options):
    refused(kind, [words], saccade.attention, q, k, v, **options)


def test_a_table_of_weights_too_short_for_the_queries_is_refused():
    short = torch.ones(12)
    words = ["'short', which weight reads by query length, is too small for it"]
    refused(ValueError, words, saccade.attention, q, k, v, weight=lambda p, b, h, i, j: p * short[i])
