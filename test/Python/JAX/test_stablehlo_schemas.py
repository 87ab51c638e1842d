"""Every attribute of every op of StableHLO: drawn by its builders, compared with StableHLO's own interpreter.

A failure names its case. test/Fuzz/frontend_operators.py repeats it, and draws other cases.
"""

import functools

import pytest

pytest.importorskip("jax")

import numpy as np
from drawn_operators import run
from interpreter import interpret
from stablehlo_drawn import Op, i64s, region_of, text_of
from stablehlo_targets import REFUSALS, targets, unknown

pytestmark = pytest.mark.filterwarnings("ignore")


@functools.cache
def outcome():
    return run(targets(), REFUSALS, least=2)


def test_drawn_ops_agree():
    assert outcome().failures == []


def test_every_attribute_is_left_out_and_has_two_values():
    assert outcome().missing == {}


def test_every_refusal_that_is_listed_comes():
    assert {name for name in REFUSALS if not outcome().refused[name]} == set()


def test_every_claimed_operator_is_drawn_or_shown_elsewhere():
    assert unknown() == set()


def test_window_without_padding():
    x, zero = np.arange(3, dtype=np.float32)[:, None], (np.float32(0), True)
    op = Op("reduce_window", [x, zero], {"window_dimensions": i64s([1, 1])}, [([3, 1], "f32")], region_of(["add"], ["f32"]))
    np.testing.assert_array_equal(interpret(*text_of(op))[0], x)
