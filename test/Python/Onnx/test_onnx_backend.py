"""`saccade.onnx.backend` runs models and single nodes; ONNX's reference evaluator is the oracle."""

import pytest

pytest.importorskip("onnx")

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.onnx import backend

pytestmark = pytest.mark.filterwarnings("ignore")
FLOAT = TensorProto.FLOAT
node, value = helper.make_node, helper.make_tensor_value_info


@pytest.fixture
def random():
    """Draws arrays of normal numbers, the same in every test."""
    rng = np.random.default_rng(1)
    return lambda *shape: rng.standard_normal(shape).astype(np.float32)


def expect_near(found, expected):
    assert len(found) == len(expected)
    for x, y in zip(found, expected):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


# --- Models.


@pytest.fixture(scope="module")
def layer():
    """A layer with weights as arguments, batch and length known at run time only."""
    rng = np.random.default_rng(0)
    random = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    weights = {"qkv": random(32, 96) / 6, "out": random(32, 32) / 6, "scale": random(32), "bias": random(32)}
    nodes = [
        node("LayerNormalization", ["x", "scale", "bias"], ["n"]),
        node("MatMul", ["n", "qkv"], ["p"]),
        node("Split", ["p"], ["q", "k", "v"], axis=-1, num_outputs=3),
        node("Attention", ["q", "k", "v"], ["a"], q_num_heads=4, kv_num_heads=4, is_causal=1),
        node("MatMul", ["a", "out"], ["o"]),
        node("Gelu", ["o"], ["g"]),
        node("Add", ["x", "g"], ["y"]),
    ]
    shape = ["batch", "length", 32]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "layer", [value("x", FLOAT, shape)], [value("y", FLOAT, shape)], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])


@pytest.fixture(scope="module")
def prepared(layer):
    return backend.prepare(layer)


def test_layer_agrees_for_any_batch_and_length(layer, prepared, random):
    for size in ((1, 1, 32), (2, 7, 32), (3, 40, 32)):
        x = random(*size)
        expect_near(prepared.run([x]), ReferenceEvaluator(layer).run(None, {"x": x}))


def test_inputs_are_taken_as_a_list_by_name_and_alone(prepared, random):
    x = random(3, 40, 32)
    expect_near(prepared.run({"x": x}), prepared.run(x))
    expect_near(prepared.run([x]), prepared.run(x))


def test_run_model_prepares_and_runs(layer, prepared, random):
    x = random(3, 40, 32)
    expect_near(backend.run_model(layer, [x]), prepared.run([x]))


def linear_model(rule, factors):
    """Linear attention of any length, with a state before."""
    names = ["q", "k", "v", "past", "decay" if "gated" in rule else "", "beta" if "delta" in rule else ""]
    made = node("LinearAttention", names, ["y", "state"], q_num_heads=4, kv_num_heads=2, update_rule=rule)
    widths = {"q": 32, "k": 16, "v": 12, **factors}
    values = [value(name, FLOAT, ["batch", "length", width]) for name, width in widths.items()]
    values.insert(3, value("past", FLOAT, ["batch", 2, 8, 6]))
    outputs = [value("y", FLOAT, ["batch", "length", 24]), value("state", FLOAT, ["batch", 2, 8, 6])]
    graph = helper.make_graph([made], "linear", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)])


@pytest.mark.parametrize(("rule", "factors"), [
    ("linear", {}), ("gated", {"decay": 2}), ("gated_delta", {"decay": 16, "beta": 1}),
], ids=["linear", "gated", "gated_delta"])  # fmt: skip
def test_linear_attention_agrees_for_more_tokens_than_a_chunk(rule, factors, random):
    linear = linear_model(rule, factors)
    prepared = backend.prepare(linear)
    for batch, length in ((1, 1), (2, 100)):
        given = {"q": random(batch, length, 32), "k": random(batch, length, 16) / 8, "v": random(batch, length, 12),
                 "past": random(batch, 2, 8, 6)}  # fmt: skip
        for name, width in factors.items():
            drawn = random(batch, length, width)
            # Factors of a decay down to nearly 0.
            given[name] = -4 * np.abs(drawn) if name == "decay" else np.float32(0.5) + drawn / 8
        expect_near(prepared.run(given), ReferenceEvaluator(linear).run(None, given))


def convolution_model(width, roles, activation, dtype=FLOAT):
    """A causal convolution of any batch and length, with 6 channels."""
    shapes = {"x": ["batch", 6, "length"], "w": [6, 1, width], "b": [6], "past": ["batch", 6, width - 1]}
    made = node("CausalConvWithState", ["x", "w", *[name if name in roles else "" for name in ("b", "past")]], ["y", "last"],
                activation=activation)  # fmt: skip
    values = [value(name, dtype, shape) for name, shape in shapes.items() if name in ("x", "w", *roles)]
    outputs = [value("y", dtype, shapes["x"]), value("last", dtype, shapes["past"])]
    return helper.make_model(helper.make_graph([made], "convolution", values, outputs), opset_imports=[helper.make_opsetid("", 27)])


@pytest.mark.parametrize(("width", "roles", "activation"), [
    (4, ("b", "past"), "silu"), (3, ("past",), "none"), (6, (), "swish"), (1, ("b",), "silu"),
], ids=str)  # fmt: skip
def test_causal_convolutions_agree_with_the_definition_and_in_steps(width, roles, activation, random):
    prepared = backend.prepare(convolution_model(width, roles, activation))
    for batch, length in ((2, 37), (1, 1), (3, 2)):
        given = {"x": random(batch, 6, length), "w": random(6, 1, width), "b": random(6), "past": random(batch, 6, width - 1)}
        given = {name: x for name, x in given.items() if name in ("x", "w", *roles)}
        # The definition, by NumPy in float64.
        past = given.get("past", np.zeros((batch, 6, width - 1)))
        whole = np.concatenate([past, given["x"]], 2).astype(np.float64)
        y = sum(given["w"][:, 0, j, None] * whole[:, :, j:j + length] for j in range(width)) + given.get("b", np.zeros(6))[:, None]
        y = y if activation == "none" else y / (1 + np.exp(-y))
        found, last = prepared.run(given)
        np.testing.assert_allclose(found, y, rtol=1e-5, atol=1e-5)
        assert np.array_equal(last, whole[:, :, length:].astype(np.float32))
    if "past" not in roles:
        return
    steps, state = [], given["past"]
    for i in range(length):
        step, state = prepared.run({**given, "x": given["x"][:, :, i:i + 1], "past": state})
        steps.append(step)
    expect_near([np.concatenate(steps, 2), state], [found, last])


def test_a_causal_convolution_of_bfloat16_agrees_with_the_reference(random):
    model = convolution_model(4, ("past",), "silu", TensorProto.BFLOAT16)
    given = {name: random(*shape).astype(ml_dtypes.bfloat16)
             for name, shape in (("x", (2, 6, 9)), ("w", (6, 1, 4)), ("past", (2, 6, 3)))}
    found, last = backend.prepare(model).run(given)
    expected, kept = ReferenceEvaluator(convolution_model(4, ("past",), "silu")).run(
        None, {name: x.astype(np.float32) for name, x in given.items()})
    assert found.dtype == last.dtype == ml_dtypes.bfloat16
    np.testing.assert_allclose(found.astype(np.float32), expected, rtol=1e-2, atol=1e-2)
    assert np.array_equal(last.astype(np.float32), kept)


def test_extents_that_only_the_run_time_knows(random):
    inputs, outputs = [value("x", FLOAT, ["n", "m", 8])], [value("r", FLOAT, [None, 8]), value("y", FLOAT, [None] * 2)]
    graph = helper.make_graph([node("Reshape", ["x", "rows"], ["r"]), node("Flatten", ["x"], ["y"])], "shapes", inputs,
                              outputs, [helper.make_tensor("rows", TensorProto.INT64, [2], [-1, 8])])  # fmt: skip
    prepared = backend.prepare(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]))
    for rows in (2, 0):
        given = random(rows, 3, 8)
        expect_near(prepared.run([given]), [given.reshape(rows * 3, 8), given.reshape(rows, 24)])


# --- Single nodes.


def test_node_of_two_inputs(random):
    x, y = random(3, 4, 5), random(4, 1)
    expect_near(backend.run_node(node("Add", ["x", "y"], ["z"]), [x, y]), [x + y])


def test_node_with_an_attribute(random):
    x = random(3, 4, 5)
    expect_near(backend.run_node(node("Transpose", ["x"], ["z"], perm=[2, 0, 1]), [x]), [x.transpose(2, 0, 1)])


def test_node_with_a_missing_input(random):
    x = random(3, 4, 5)
    expect_near(backend.run_node(node("Clip", ["x", "", "y"], ["z"]), [x, np.float32(0.5)]), [np.minimum(x, 0.5)])


def test_node_of_two_outputs_by_the_class(random):
    x = random(3, 4, 5)
    split = node("Split", ["x"], ["a", "b"], axis=2, num_outputs=2)
    expect_near(backend.SaccadeBackend.run_node(split, [x]), [x[..., :3], x[..., 3:]])


def test_gather_nd_with_negative_indices(random):
    table, rows = random(4, 5, 6), np.array([[[0, -1]], [[3, 2]], [[1, 1]]])
    found = backend.run_node(node("GatherND", ["x", "i"], ["y"]), [table, rows])
    expect_near(found, [table[rows[..., 0], rows[..., 1]]])


def test_gather_elements_with_negative_indices(random):
    table = random(4, 5, 6)
    found = backend.run_node(node("GatherElements", ["x", "i"], ["y"], axis=1), [table, np.array([[[0], [-1]]])])
    expect_near(found, [np.take_along_axis(table[:1, :, :1], np.array([[[0], [4]]]), 1)])


def test_log_of_a_sum_of_large_exponentials():
    found = backend.run_node(node("ReduceLogSumExp", ["x"], ["y"]), [np.full((2, 4), 100, np.float32)])
    expect_near(found, [np.full((1, 1), 100 + np.log(8), np.float32)])


# --- What is refused.


def test_supports_the_cpu_alone(layer):
    assert backend.supports_device("CPU")
    assert not backend.supports_device("CUDA:0")
    with pytest.raises(NotImplementedError):
        backend.prepare(layer, "CUDA")


@pytest.mark.parametrize("target", ["sm_80", "cuda:0"])
def test_gpu_targets_are_refused(layer, target):
    with pytest.raises(ValueError, match=f"found target='{target}', expected a CPU target"):
        backend.prepare(layer, target=target)


@pytest.mark.parametrize(("error", "inputs_of"), [
    pytest.param(TypeError, lambda x: [x, x], id="two inputs"),
    pytest.param(TypeError, lambda x: {"z": x}, id="another name"),
    pytest.param(TypeError, lambda x: {}, id="no input"),
    pytest.param(ValueError, lambda x: [x[..., :3]], id="another extent"),
])  # fmt: skip
def test_wrong_inputs_are_refused(prepared, random, error, inputs_of):
    with pytest.raises(error):
        prepared.run(inputs_of(random(3, 4, 5)))


@pytest.mark.parametrize(("words", "made", "shapes"), [
    pytest.param([], node("LayerNormalization", ["x", "s"], ["y"]), [(1, 4), (3, 4)], id="shapes"),
    pytest.param([], node("Unheard", ["x"], ["y"]), [(3, 4, 5)], id="unknown operator"),
    pytest.param(["onnx.MatMul 'the product'"], node("MatMul", ["x", "y"], ["z"], name="the product"),
                 [(2, 3), (4, 5)], id="named node"),
])  # fmt: skip
def test_wrong_node_is_refused(random, words, made, shapes):
    with pytest.raises(saccade.CompileError) as error:
        backend.run_node(made, [random(*shape) for shape in shapes])
    for word in words:
        assert word in str(error.value)
