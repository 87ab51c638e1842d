"""`saccade.onnx.backend` runs models and single nodes; ONNX's reference evaluator is the oracle.

REQUIRES: onnx
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import warnings

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import saccade
from saccade.onnx import backend

RAND = np.random.default_rng(0)
warnings.simplefilter("ignore")


def random(*shape):
    return RAND.standard_normal(shape).astype(np.float32)


def near(found, expected):
    assert len(found) == len(expected)
    for x, y in zip(found, expected):
        assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, x.shape, y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)


# A layer with weights as arguments, batch and length known at run time only.
weights = {"qkv": random(32, 96) / 6, "out": random(32, 32) / 6, "scale": random(32), "bias": random(32)}
nodes = [
    helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["n"]),
    helper.make_node("MatMul", ["n", "qkv"], ["p"]),
    helper.make_node("Split", ["p"], ["q", "k", "v"], axis=-1, num_outputs=3),
    helper.make_node("Attention", ["q", "k", "v"], ["a"], q_num_heads=4, kv_num_heads=4, is_causal=1),
    helper.make_node("MatMul", ["a", "out"], ["o"]),
    helper.make_node("Gelu", ["o"], ["g"]),
    helper.make_node("Add", ["x", "g"], ["y"]),
]
shape = ["batch", "length", 32]
graph = helper.make_graph(nodes, "layer", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                          [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
                          [numpy_helper.from_array(array, name) for name, array in weights.items()])
layer = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
prepared = backend.prepare(layer)
for size in ((1, 1, 32), (2, 7, 32), (3, 40, 32)):
    x = random(*size)
    near(prepared.run([x]), ReferenceEvaluator(layer).run(None, {"x": x}))
near(prepared.run({"x": x}), prepared.run(x))
near(backend.run_model(layer, [x]), prepared.run([x]))

# One node, with attributes and a missing input.
x, y = random(3, 4, 5), random(4, 1)
near(backend.run_node(helper.make_node("Add", ["x", "y"], ["z"]), [x, y]), [x + y])
near(backend.run_node(helper.make_node("Transpose", ["x"], ["z"], perm=[2, 0, 1]), [x]), [x.transpose(2, 0, 1)])
near(backend.run_node(helper.make_node("Clip", ["x", "", "y"], ["z"]), [x, np.float32(0.5)]), [np.minimum(x, 0.5)])
near(backend.SaccadeBackend.run_node(helper.make_node("Split", ["x"], ["a", "b"], axis=2, num_outputs=2), [x]),
     [x[..., :3], x[..., 3:]])

# Linear attention of any length; more tokens than a chunk, a decay near 0, a state before.
def linear_model(rule, factors):
    names = ["q", "k", "v", "past", "decay" if "gated" in rule else "", "beta" if "delta" in rule else ""]
    node = helper.make_node("LinearAttention", names, ["y", "state"], q_num_heads=4, kv_num_heads=2, update_rule=rule)
    widths = {"q": 32, "k": 16, "v": 12, **factors}
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", width])
              for name, width in widths.items()]
    values.insert(3, helper.make_tensor_value_info("past", TensorProto.FLOAT, ["batch", 2, 8, 6]))
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", "length", 24]),
               helper.make_tensor_value_info("state", TensorProto.FLOAT, ["batch", 2, 8, 6])]
    graph = helper.make_graph([node], "linear", values, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 27)])


for rule, factors in [("linear", {}), ("gated", {"decay": 2}), ("gated_delta", {"decay": 16, "beta": 1})]:
    linear = linear_model(rule, factors)
    prepared_linear = backend.prepare(linear)
    for batch, length in ((1, 1), (2, 100)):
        given = {"q": random(batch, length, 32), "k": random(batch, length, 16) / 8, "v": random(batch, length, 12),
                 "past": random(batch, 2, 8, 6)}
        given |= {name: -4 * np.abs(random(batch, length, width)) if name == "decay" else
                  np.float32(0.5) + random(batch, length, width) / 8 for name, width in factors.items()}
        near(prepared_linear.run(given), ReferenceEvaluator(linear).run(None, given))

# Elements and slices that are looked up, with negative indices.
table, rows = random(4, 5, 6), np.array([[[0, -1]], [[3, 2]], [[1, 1]]])
near(backend.run_node(helper.make_node("GatherND", ["x", "i"], ["y"]), [table, rows]),
     [table[rows[..., 0], rows[..., 1]]])
near(backend.run_node(helper.make_node("GatherElements", ["x", "i"], ["y"], axis=1), [table, np.array([[[0], [-1]]])]),
     [np.take_along_axis(table[:1, :, :1], np.array([[[0], [4]]]), 1)])

# Sums of large exponentials, and extents that only the run time knows.
near(backend.run_node(helper.make_node("ReduceLogSumExp", ["x"], ["y"]), [np.full((2, 4), 100, np.float32)]),
     [np.full((1, 1), 100 + np.log(8), np.float32)])
open_sizes = helper.make_model(helper.make_graph(
    [helper.make_node("Reshape", ["x", "rows"], ["r"]), helper.make_node("Flatten", ["x"], ["y"])], "shapes",
    [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", "m", 8])],
    [helper.make_tensor_value_info("r", TensorProto.FLOAT, [None, 8]), helper.make_tensor_value_info("y", TensorProto.FLOAT, [None, None])],
    initializer=[helper.make_tensor("rows", TensorProto.INT64, [2], [-1, 8])]),
    opset_imports=[helper.make_opsetid("", 18)])  # fmt: skip
prepared_sizes = backend.prepare(open_sizes)
for rows in (2, 0):
    given = random(rows, 3, 8)
    near(prepared_sizes.run([given]), [given.reshape(rows * 3, 8), given.reshape(rows, 24)])

# What is asked for wrongly.
assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")
for error, wrong in [(TypeError, lambda: prepared.run([x, x])), (TypeError, lambda: prepared.run({"z": x})),
                     (TypeError, lambda: prepared.run({})), (ValueError, lambda: prepared.run([x[..., :3]])),
                     (NotImplementedError, lambda: backend.prepare(layer, "CUDA")),
                     (saccade.CompileError, lambda: backend.run_node(
                         helper.make_node("LayerNormalization", ["x", "s"], ["y"]), [random(1, 4), random(3, 4)])),
                     (saccade.CompileError, lambda: backend.run_node(helper.make_node("Unheard", ["x"], ["y"]), [x]))]:
    try:
        wrong()
    except error:
        continue
    raise AssertionError(f"no {error.__name__}")
try:
    backend.run_node(helper.make_node("MatMul", ["x", "y"], ["z"], name="the product"), [random(2, 3), random(4, 5)])
except saccade.CompileError as error:
    assert "onnx.MatMul 'the product'" in str(error), error
