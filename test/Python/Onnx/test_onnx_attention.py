"""ONNX's Attention where its function body, its reference evaluator and ONNX Runtime differ, or masks are unusual."""

import pytest

pytest.importorskip("onnx")

import numpy as np
import onnx
import onnx.inliner
from onnx import helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.onnx import backend

pytestmark = pytest.mark.filterwarnings("ignore")
RAND = np.random.default_rng(0)
Q, K = (RAND.standard_normal((2, heads, length, 8)).astype(np.float32) for heads, length in ((4, 3), (2, 6)))
V = np.broadcast_to(np.arange(6, dtype=np.float32)[:, None], (2, 2, 6, 8)).copy()  # values are numbers of keys
BASE = {"q": Q, "k": K, "v": V}


def attention(arrays, opset=24, outputs=("y",), shapes=None, **attributes):
    """A model of one Attention. `shapes`: with open extents, by name."""
    names = [name if name in arrays else "" for name in ("q", "k", "v", "m", "pk", "pv", "n")]
    while not names[-1]:
        names.pop()
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype),
                                            (shapes or {}).get(name, each.shape)) for name, each in arrays.items()]
    results = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs if name]
    graph = helper.make_graph([helper.make_node("Attention", names, outputs, **attributes)], "g", values, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def by_function_body(model, arrays):
    expanded = onnx.inliner.inline_selected_functions(model, [("", "Attention")], exclude=False,
                                                      inline_schema_functions=True)
    return ReferenceEvaluator(expanded).run(None, arrays)


def expect_function_body(arrays, **settings):
    model = attention(arrays, **settings)
    for x, y in zip(backend.run_model(model, arrays), by_function_body(model, arrays), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


MASKS = [(1,), (4,), (6,), (3, 1), (3, 4), (1, 4), (4, 3, 1), (4, 1, 5), (1, 1, 3, 6), (2, 4, 3, 1), (2, 1, 1, 4)]


@pytest.mark.parametrize("is_causal", [0, 1])
@pytest.mark.parametrize("is_bool", [False, True], ids=["float", "bool"])
@pytest.mark.parametrize("shape", MASKS, ids=str)
def test_short_mask_hides_the_other_keys(shape, is_bool, is_causal):
    mask = RAND.random(shape) < 0.8 if is_bool else RAND.standard_normal(shape).astype(np.float32)
    expect_function_body({**BASE, "m": mask}, is_causal=is_causal)


@pytest.mark.parametrize("opset", [24, 25])
def test_mask_of_one_column_shows_the_first_key_alone(opset):
    arrays = {**BASE, "m": np.ones((3, 1), bool)}
    assert (backend.run_model(attention(arrays, opset), arrays)[0] == 0).all()


def test_mask_of_one_column_is_broadcast_in_operator_set_23():
    arrays = {**BASE, "m": RAND.standard_normal((4, 3, 1)).astype(np.float32)}
    expect_function_body(arrays, opset=23)
    assert (backend.run_model(attention(arrays, 23), arrays)[0] > 1).any()


@pytest.mark.parametrize(("opset", "sees"), [(23, V.mean()), (24, 0)])
def test_mask_of_open_length_treats_one_column_as_one_of_known_length(opset, sees):
    arrays = {"q": 0 * Q, "k": K, "v": V, "m": np.ones((3, 6), bool)}
    model = backend.prepare(attention(arrays, opset, shapes={"m": [3, "columns"]}))
    np.testing.assert_allclose(model.run(arrays)[0], V.mean())
    np.testing.assert_allclose(model.run({**arrays, "m": np.ones((3, 1), bool)})[0], sees)
    np.testing.assert_allclose(model.run({**arrays, "m": np.ones((3, 3), bool)})[0], 1)


def test_mask_of_one_row_is_for_every_query_of_a_causal_mask():
    """ONNX's reference evaluator takes every query for the first one here."""
    arrays = {**BASE, "m": np.ones((1, 6), bool)}
    expect_function_body(arrays, is_causal=1)
    assert not np.allclose(ReferenceEvaluator(attention(arrays, is_causal=1)).run(None, arrays)[0],
                           backend.run_model(attention(arrays, is_causal=1), arrays)[0])


@pytest.mark.parametrize("shape", [(3, 9), (5, 6), (3, 3, 6), (3, 1, 3, 6), (2, 2, 3, 6)], ids=str)
def test_mask_that_does_not_broadcast_is_refused(shape):
    with pytest.raises(saccade.CompileError) as error:
        backend.prepare(attention({**BASE, "m": np.zeros(shape, np.float32)}))
    assert "expected a shape that broadcasts to 2x4x3x6, batch x query heads x queries x keys" in str(error.value)


def test_empty_mask_hides_all_keys():
    arrays = {**BASE, "m": np.zeros((3, 0), np.float32)}
    for mode in range(4):
        outputs = backend.run_model(attention(arrays, outputs=("y", "", "", "s"), qk_matmul_output_mode=mode), arrays)
        assert (outputs[0] == 0).all()


@pytest.mark.parametrize("shift", [1e4, -1e4, 1e9, -1e9, 1e30, -1e30, float(np.finfo(np.float32).min)])
def test_weights_of_shifted_rows_have_the_sum_1(shift):
    arrays = {**BASE, "m": np.full((3, 6), shift, np.float32)}
    y, weights = backend.run_model(attention(arrays, outputs=("y", "", "", "s"), qk_matmul_output_mode=3), arrays)
    np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-6)
    np.testing.assert_allclose(weights @ np.repeat(V, 2, axis=1), y, rtol=1e-5)


def test_soft_capped_scores_are_not_those_of_mode_0():
    expect_function_body(BASE, outputs=("y", "", "", "s"), softcap=0.5, qk_matmul_output_mode=0)
    expect_function_body(BASE, outputs=("y", "", "", "s"), softcap=0.5, qk_matmul_output_mode=1)


@pytest.mark.parametrize("name", ["scale", "softcap"])
@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_parameter_that_is_not_finite_is_refused(name, number):
    with pytest.raises(saccade.CompileError, match=f"{name} is .*, expected a finite number"):
        backend.prepare(attention(BASE, **{name: number}))
