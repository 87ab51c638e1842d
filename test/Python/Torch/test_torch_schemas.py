"""Every argument of every overload of PyTorch's operators: drawn from the schemas, compared with PyTorch.

A failure names its case. test/Fuzz/frontend_operators.py repeats it, and draws other cases.
"""

import functools

import pytest

pytest.importorskip("torch")

import torch
from drawn_operators import run
from interpreter import Refused, difference, interpret
from torch_calls import program_of
from torch_targets import REFUSALS, array, targets

pytestmark = pytest.mark.filterwarnings("ignore")


@functools.cache
def outcome():
    return run(targets(), REFUSALS)


def test_drawn_calls_agree_with_torch():
    assert outcome().failures == []


def test_every_argument_is_left_out_and_has_two_values():
    assert outcome().missing == {}


def test_every_refusal_that_is_listed_comes():
    assert {name for name in REFUSALS if not outcome().refused[name]} == set()


aten = torch.ops.aten
x, flags, one, i = torch.randn(2, 3), torch.tensor([True, False, True]), torch.tensor(1.5), torch.arange(-3, 3)
half = torch.randn(2, 4).bfloat16()
# Calls that were wrong or refused before.
CALLS = {
    "position in a whole tensor": (aten.argmax.default, {"self": x, "keepdim": True}),
    "hardtanh of integers": (aten.hardtanh.default, {"self": i, "min_val": -1.5, "max_val": 1.5}),
    "flags filled with a fraction": (aten.fill.Scalar, {"self": flags, "value": -0.5}),
    "square of flags": (aten.square.default, {"self": flags}),
    "integer as a scalar tensor": (aten.scalar_tensor.default, {"s": 3}),
    "sum to flags": (aten.sum.dim_IntList, {"self": i, "dim": [0], "dtype": torch.bool}),
    "softmax of one number": (aten.softmax.int, {"self": one, "dim": -1}),
    "largest of one number": (aten.max.dim, {"self": one, "dim": 0, "keepdim": True}),
    "transpose of one number": (aten.transpose.int, {"self": one, "dim0": 0, "dim1": -1}),
    "type of an empty part": (aten.cat.default, {"tensors": [torch.zeros(0, dtype=torch.float64), x[0]]}),
    "attention of one KV head": (aten.scaled_dot_product_attention.default, {
        "query": torch.randn(2, 3, 5, 4), "key": torch.randn(2, 1, 6, 4), "value": torch.randn(2, 1, 6, 4), "enable_gqa": True}),
    "attention of as many KV heads": (aten.scaled_dot_product_attention.default, {
        "query": torch.randn(2, 3, 5, 4), "key": torch.randn(2, 3, 6, 4), "value": torch.randn(2, 3, 6, 4), "enable_gqa": True}),
    "mean of 16 bits": (aten.native_layer_norm.default, {"input": half, "normalized_shape": [4], "weight": half[0], "bias": None,
                                                         "eps": 1e-5}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_call_agrees_with_torch(name):
    overload, given = CALLS[name]
    results = overload(**given)
    text, inputs = program_of(overload, given, results)
    found = interpret(text, [array(each) for each in inputs])
    for each, expected in zip(found, results if isinstance(results, tuple) else [results], strict=True):
        assert difference(each, array(expected)) == ""


@pytest.mark.parametrize("heads", [(0, 0), (3, 0), (3, 2), (1, 3)])
def test_heads_that_do_not_divide_are_refused(heads):
    query, key = torch.randn(2, heads[0], 5, 4), torch.randn(2, heads[1], 6, 4)
    given = {"query": query, "key": key, "value": key, "enable_gqa": True}
    text, inputs = program_of(aten.scaled_dot_product_attention.default, given, query)
    with pytest.raises(Refused, match="the query heads a multiple of the KV heads"):
        interpret(text, [array(each) for each in inputs])

