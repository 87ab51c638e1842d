"""Operators that ONNX's own cases do not show here: convolutions, Einsum, powers of integers, scatters,
loops of known steps, functions with operator sets of their own, gathers in tables that are empty only when they are
called. ONNX's reference evaluator is the oracle."""

import pytest

pytest.importorskip("onnx")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.onnx import backend

pytestmark = pytest.mark.filterwarnings("ignore")
RAND = np.random.default_rng(0)
node = helper.make_node


def random(*shape):
    return RAND.standard_normal(shape).astype(np.float32)


# Drawn on import, so that every test has the same ones whatever runs before it.
IMAGE, FILTERS, BIAS = random(2, 3, 8, 12), random(5, 3, 2, 4), random(5)
A, B, C = random(2, 3, 4), random(2, 4, 5), random(5)
SQUARES, LEFT, RIGHT = random(2, 4, 4), random(5), random(5)
DATA, UPDATES, UPDATES_OF_ONE, UPDATES_OF_ROWS = random(6, 4), random(2, 4), random(3), random(2, 3)
STATE, CUBE, TABLE = random(4), random(2, 3, 4), random(3, 4)


def model(nodes, inputs, outputs=("y",), weights=(), opset=21, **settings):
    """`inputs`: shapes by name, with names for extents that are open; of integers where the name begins with i."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT64 if name[0] == "i" else TensorProto.FLOAT, shape)
              for name, shape in inputs.items()]  # fmt: skip
    graph = helper.make_graph(nodes, "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs],
                              [numpy_helper.from_array(array, name) for name, array in weights])  # fmt: skip
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, **settings)


def check(made, *inputs, rtol=1e-5):
    names = [value.name for value in made.graph.input]
    found = backend.run_model(made, list(inputs))
    expected = ReferenceEvaluator(made).run(None, dict(zip(names, inputs)))
    for x, y in zip(found, expected, strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def refused(words, call, *arguments):
    with pytest.raises((ValueError, saccade.CompileError)) as error:
        call(*arguments)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize("inputs", [["x", "w", "b"], ["x", "w"]], ids=["bias", "no bias"])
def test_convolution_of_patches_takes_any_number_of_images(inputs):
    conv = model([node("Conv", inputs, ["y"], strides=[2, 4], kernel_shape=[2, 4])], {"x": ["n", 3, 8, 12]},
                 weights=[("w", FILTERS), ("b", BIAS)])  # fmt: skip
    check(conv, IMAGE)
    check(conv, IMAGE[:1])


def test_convolution_with_overlapping_windows_takes_images_of_any_size():
    conv = model([node("Conv", ["x", "w", "b"], ["y"], pads=[1, 2, 0, 1], strides=[1, 2])], {"x": ["n", 3, "h", "w"]},
                 weights=[("w", FILTERS), ("b", BIAS)])  # fmt: skip
    check(conv, IMAGE)
    check(conv, IMAGE[:1, :, :3, 1:])


def test_convolution_of_groups_that_do_not_divide_the_channels_is_refused():
    conv = model([node("Conv", ["x", "w"], ["y"], group=2)], {"x": [2, 3, 8, 12]}, weights=[("w", FILTERS)])
    refused(["Conv", "found 2 groups, expected a divisor of the 3 channels"], backend.prepare, conv)


# --- Einsum.


@pytest.mark.parametrize(("equation", "shapes", "arrays"), [
    pytest.param("bij, bjk, k -> ib", {"a": ["n", "m", 4], "b": ["n", 4, 5], "c": [5]}, (A, B, C), id="three"),
    pytest.param("...ij,...jk", {"a": [2, 3, 4], "b": [2, 4, 5]}, (A, B), id="ellipsis"),
    pytest.param("bij->jb", {"a": ["n", 3, "m"]}, (A,), id="sum"),
    pytest.param("...ii->...i", {"a": [2, 4, 4]}, (SQUARES,), id="diagonal"),
    pytest.param("i,i", {"a": [5], "b": [5]}, (LEFT, RIGHT), id="implied"),
    pytest.param("ij,jk->ki", {"a": [3, 1], "b": [4, "n"]}, (A[0, :, :1], B[0]), id="stretch"),
])  # fmt: skip
def test_einsum_agrees(equation, shapes, arrays):
    check(model([node("Einsum", list(shapes), ["y"], equation=equation)], shapes), *arrays)


@pytest.mark.parametrize(("words", "equation", "shapes"), [
    pytest.param(["extents 4 and 5"], "ij,jk", {"a": [3, 4], "b": [5, 6]}, id="extents"),
    pytest.param(["dimensions 0 and 1", "the same extent"], "ii->i", {"a": [4, "n"]}, id="open diagonal"),
])  # fmt: skip
def test_einsum_of_unequal_extents_is_refused(words, equation, shapes):
    refused(["Einsum", *words], backend.prepare,
            model([node("Einsum", list(shapes), ["y"], equation=equation)], shapes))  # fmt: skip


# --- Gemm and Pow.


def test_bias_that_does_not_count_is_not_read():
    # 0 times NaN is NaN.
    gemm = model([node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)], {"a": [3, 4], "b": [4, 5], "c": [5]})
    check(gemm, A[0], B[0], np.full(5, np.nan, np.float32))


def test_powers_of_integers_are_exact_modulo_2_to_the_64():
    power = model([node("Pow", ["i", "i2"], ["y"])], {"i": ["n"], "i2": ["n"]})
    check(power, np.array([3, -3, 2, 7, 10]), np.array([35, 39, 63, 64, 0]), rtol=0)


def test_powers_of_integers_to_a_constant_are_exact():
    power = model([node("Pow", ["i", "p"], ["y"])], {"i": ["n"]}, weights=[("p", np.array(35))])
    check(power, np.array([3, -7]), rtol=0)


# --- Scatters at positions that only the run time knows, negative ones too.


def test_scatter_nd_of_rows():
    scatter = model([node("ScatterND", ["x", "i", "u"], ["y"])], {"x": ["n", 4], "i": [2, 1], "u": [2, 4]})
    check(scatter, DATA, np.array([[3], [0]]), UPDATES)


def test_scatter_nd_of_elements():
    scatter = model([node("ScatterND", ["x", "i", "u"], ["y"])], {"x": [6, 4], "i": ["k", 2], "u": ["k"]})
    check(scatter, DATA, np.array([[3, 1], [0, 0], [5, 3]]), UPDATES_OF_ONE)


def test_scatter_elements_at_negative_positions():
    scatter = model([node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)], {"x": [6, 4], "i": [2, 3], "u": [2, 3]})
    check(scatter, DATA, np.array([[0, 3, 1], [2, -3, 0]]), UPDATES_OF_ROWS)


# --- Loops and functions.


def loop_body():
    steps = [node("Add", ["s", "s"], ["t"]), node("Identity", ["t"], ["row"]), node("Identity", ["go"], ["on"])]
    return helper.make_graph(steps, "body", [helper.make_tensor_value_info("step", TensorProto.INT64, []),
                                             helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                                             helper.make_tensor_value_info("s", TensorProto.FLOAT, [4])],
                             [onnx.ValueInfoProto(name=name) for name in ("on", "t", "row")])  # fmt: skip


def test_loop_of_three_steps_gives_its_state_and_a_row_a_step():
    loop = node("Loop", ["n", "go0", "x"], ["y", "rows"], body=loop_body())
    weights = [("n", np.array(3, np.int64)), ("go0", np.array(True))]
    check(model([loop], {"x": [4]}, ("y", "rows"), weights), STATE)


def test_loop_of_open_trip_count_is_refused():
    loop = node("Loop", ["i", "", "x"], ["y"], body=loop_body())
    refused(["Loop", "trip count"], backend.prepare, model([loop], {"i": [], "x": [4]}))


def test_function_is_of_its_own_operator_set():
    # Before version 13 Softmax took all dimensions from its axis on as one.
    old = helper.make_function("own", "Old", ["a"], ["b"], [node("Softmax", ["a"], ["b"], axis=1)],
                               [helper.make_opsetid("", 11)])  # fmt: skip
    made = model([node("Old", ["x"], ["y"], domain="own")], {"x": [2, 3, 4]}, functions=[old])
    (found,) = backend.run_model(made, [CUBE])
    flat = np.exp(CUBE.reshape(2, 12))
    np.testing.assert_allclose(found, (flat / flat.sum(1, keepdims=True)).reshape(2, 3, 4), rtol=1e-5)


def test_function_of_an_unknown_version_is_refused():
    new = helper.make_function("own", "New", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 99)])
    made = model([node("New", ["x"], ["y"], domain="own", name="New")], {"x": [2]}, functions=[new])
    refused(["version 99", "'New'"], backend.prepare, made)


# --- Tables that are too small only when they are called.


def test_gather_from_a_table_without_rows_is_refused_when_it_reads():
    table = backend.prepare(model([node("Gather", ["x", "i"], ["y"])], {"x": ["n", 4], "i": ["k"]}))
    np.testing.assert_array_equal(table.run([DATA, np.array([5, -1])])[0], DATA[[5, -1]])
    refused(["model.onnx", "Gather", "too small in dimension 0"], table.run, [DATA[:0], np.array([0])])
    assert table.run([DATA[:0], np.zeros(0, np.int64)])[0].shape == (0, 4)


def test_pad_of_a_tensor_without_rows_is_refused():
    pads = [("p", np.array([1, 0, 0, 0], np.int64))]
    padded = backend.prepare(model([node("Pad", ["x", "p"], ["y"])], {"x": ["n", 4]}, weights=pads))
    assert padded.run([DATA])[0].shape == (7, 4)
    refused(["too small in dimension 0"], padded.run, [DATA[:0]])


def test_indices_of_gather_elements_stay_within_the_table_beside_the_axis():
    # Only the call says how far either goes.
    elements = backend.prepare(model([node("GatherElements", ["x", "i"], ["y"])], {"x": [3, "n"], "i": [2, "m"]}))
    i = np.array([[0, 1, 2], [2, 0, 1]])
    np.testing.assert_array_equal(elements.run([TABLE, i])[0], np.take_along_axis(TABLE[:, :3], i, 0))
    refused(["GatherElements", "too small in dimension 1: found 4, expected at least 900"],
            elements.run, [TABLE, np.zeros((2, 900), np.int64)])  # fmt: skip


def test_batches_of_gather_nd_stay_within_those_of_the_table():
    batches = [node("GatherND", ["x", "i"], ["y"], batch_dims=1)]
    batches = backend.prepare(model(batches, {"x": ["n", 4], "i": ["m", 1]}))
    found = batches.run([TABLE, np.array([[3], [0], [1]])])[0]
    np.testing.assert_array_equal(found, TABLE[[0, 1, 2], [3, 0, 1]])
    refused(["GatherND", "too small in dimension 0: found 3, expected at least 7"],
            batches.run, [TABLE, np.zeros((7, 1), np.int64)])  # fmt: skip


# --- Shapes and sizes.


@pytest.mark.parametrize(("extents", "word"), [
    ([1 << 40, 1 << 40], "too many"), ([-2], "is -2"), ([1 << 62], "too many"),
], ids=["product", "negative", "one extent"])  # fmt: skip
def test_constant_of_a_wrong_shape_is_refused(extents, word):
    made = model([node("ConstantOfShape", ["s"], ["y"])], {}, weights=[("s", np.array(extents, np.int64))])
    refused(["ConstantOfShape", word], backend.prepare, made)


def test_sum_of_no_terms():
    made = model([node("ReduceSum", ["x", "a"], ["y"])], {"x": [2, 0, 4]}, weights=[("a", np.array([1], np.int64))])
    check(made, np.zeros((2, 0, 4), np.float32))


def test_attention_with_too_large_a_head_is_refused():
    shapes = {"q": [1, 1, 2, 8], "k": [1, 1, 2, 8], "v": [1, 1, 2, 1 << 20]}
    made = model([node("Attention", ["q", "k", "v"], ["y"])], shapes, opset=23)
    refused(["head size of value is 1048576, expected at most"], backend.prepare, made)


# --- Tile.


def test_tile_repeats_as_often_as_a_shape_says():
    tile = model([node("Shape", ["i"], ["n"]), node("Tile", ["x", "n"], ["y"])], {"x": ["b", 3], "i": ["p", "q"]})
    check(tile, TABLE[:2, :3], np.zeros((3, 2), np.int64))
    check(tile, TABLE[:1, :3], np.zeros((0, 4), np.int64))


@pytest.mark.parametrize(("repeats", "words"), [([2], "found 1 repeats"), ([2, -1], "extent 1 of the shape is -1"),
                                                ([2**40, 2**40], "too many elements")])  # fmt: skip
def test_tile_refuses(repeats, words):
    made = model([node("Tile", ["x", "n"], ["y"])], {"x": [3, 4]}, weights=[("n", np.array(repeats))])
    refused(["Tile", words], backend.prepare, made)
