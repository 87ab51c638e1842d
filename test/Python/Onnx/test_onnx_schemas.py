"""Every attribute of every operator of ONNX, in every version: drawn from the schemas, compared with ONNX's evaluator.

A failure names its case. test/Fuzz/frontend_operators.py repeats it, and draws other cases.
"""

import functools

import pytest

pytest.importorskip("onnx")

import numpy as np
from drawn_operators import run
from interpreter import difference, interpret
from onnx import defs
from onnx.reference import ReferenceEvaluator
from onnx_drawn import Node, model_of
from onnx_targets import REFUSALS, targets, unknown

from saccade.onnx.reader import read_model

pytestmark = pytest.mark.filterwarnings("ignore")


@functools.cache
def outcome():
    return run(targets(), REFUSALS)


def test_drawn_nodes_agree():
    assert outcome().failures == []


def test_every_attribute_is_left_out_and_has_two_values():
    assert outcome().missing == {}


def test_every_refusal_that_is_listed_comes():
    assert {name for name in REFUSALS if not outcome().refused[name]} == set()


def test_every_claimed_operator_is_drawn_or_shown_elsewhere():
    assert unknown() == set()


NUMBERS = np.array([[-1.5, 2.0], [0.25, -3.0]])


@pytest.mark.parametrize("name", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax"])
def test_reduction_over_no_axis_still_computes(name):
    schema = defs.get_schema(name, 18)
    model, given = model_of(schema, Node([np.abs(NUMBERS) if "Log" in name else NUMBERS], {"noop_with_empty_axes": 1}), 18)
    (found,) = interpret(read_model(model).text, [*given.values()])
    assert difference(found, ReferenceEvaluator(model).run(None, given)[0]) == ""


def test_default_of_an_attribute_is_a_number_of_32_bits():
    model, given = model_of(defs.get_schema("LeakyRelu", 16), Node([NUMBERS]), 16)
    (found,) = interpret(read_model(model).text, [*given.values()])
    np.testing.assert_array_equal(found, np.where(NUMBERS < 0, NUMBERS * np.float64(np.float32(0.01)), NUMBERS))
