"""Operators that ONNX's own cases do not show here: convolutions of patches, Einsum, powers of integers, scatters,
loops of known steps, functions with operator sets of their own, gathers in tables that are empty only when they are
called. ONNX's reference evaluator is the oracle.

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
node = helper.make_node
warnings.simplefilter("ignore")


def random(*shape):
    return RAND.standard_normal(shape).astype(np.float32)


def model(nodes, inputs, outputs=("y",), weights=(), opset=21, **settings):
    """`inputs`: shapes by name, with names for extents that are open; of integers where the name begins with i."""
    values = [helper.make_tensor_value_info(name, TensorProto.INT64 if name[0] == "i" else TensorProto.FLOAT, shape)
              for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs],
                              [numpy_helper.from_array(array, name) for name, array in weights])
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, **settings)


def check(made, *inputs, rtol=1e-5):
    names = [value.name for value in made.graph.input]
    found = backend.run_model(made, list(inputs))
    expected = ReferenceEvaluator(made).run(None, dict(zip(names, inputs)))
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, x.shape, y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=rtol, atol=rtol)


def refused(words, call):
    try:
        call()
    except (ValueError, saccade.CompileError) as error:
        assert all(word in str(error) for word in words), error
    else:
        raise AssertionError(f"was not refused, expected: {words}")


# Patches of images, for any number of images.
image, filters, bias = random(2, 3, 8, 12), random(5, 3, 2, 4), random(5)
for inputs in (["x", "w", "b"], ["x", "w"]):
    conv = model([node("Conv", inputs, ["y"], strides=[2, 4], kernel_shape=[2, 4])], {"x": ["n", 3, 8, 12]},
                 weights=[("w", filters), ("b", bias)])
    check(conv, image)
    check(conv, image[:1])
refused(["Conv", "non-overlapping windows"], lambda: backend.prepare(
    model([node("Conv", ["x", "w"], ["y"])], {"x": [2, 3, 8, 12]}, weights=[("w", filters)])))

# Einsum: products of three, batches of the ellipsis, diagonals, sums of one operand, a result that is not written.
a, b, c = random(2, 3, 4), random(2, 4, 5), random(5)
check(model([node("Einsum", ["a", "b", "c"], ["y"], equation="bij, bjk, k -> ib")],
            {"a": ["n", "m", 4], "b": ["n", 4, 5], "c": [5]}), a, b, c)
check(model([node("Einsum", ["a", "b"], ["y"], equation="...ij,...jk")], {"a": [2, 3, 4], "b": [2, 4, 5]}), a, b)
check(model([node("Einsum", ["a"], ["y"], equation="bij->jb")], {"a": ["n", 3, "m"]}), a)
check(model([node("Einsum", ["a"], ["y"], equation="...ii->...i")], {"a": [2, 4, 4]}), random(2, 4, 4))
check(model([node("Einsum", ["a", "b"], ["y"], equation="i,i")], {"a": [5], "b": [5]}), random(5), random(5))
refused(["Einsum", "extents 4 and 5"], lambda: backend.prepare(
    model([node("Einsum", ["a", "b"], ["y"], equation="ij,jk")], {"a": [3, 4], "b": [5, 6]})))

check(model([node("Einsum", ["a", "b"], ["y"], equation="ij,jk->ki")], {"a": [3, 1], "b": [4, "n"]}), a[0, :, :1], b[0])
refused(["Einsum", "dimensions 0 and 1", "the same extent"], lambda: backend.prepare(
    model([node("Einsum", ["a"], ["y"], equation="ii->i")], {"a": [4, "n"]})))

# A bias that does not count is not read: 0 times NaN is NaN.
check(model([node("Gemm", ["a", "b", "c"], ["y"], beta=0.0)], {"a": [3, 4], "b": [4, 5], "c": [5]}), a[0], b[0],
      np.full(5, np.nan, np.float32))

# Powers of integers are exact, and modulo 2^64.
check(model([node("Pow", ["i", "i2"], ["y"])], {"i": ["n"], "i2": ["n"]}), np.array([3, -3, 2, 7, 10]),
      np.array([35, 39, 63, 64, 0]), rtol=0)
check(model([node("Pow", ["i", "p"], ["y"])], {"i": ["n"]}, weights=[("p", np.array(35))]), np.array([3, -7]), rtol=0)

# Scatters at positions that only the run time knows, negative ones too.
data, updates = random(6, 4), random(2, 4)
check(model([node("ScatterND", ["x", "i", "u"], ["y"])], {"x": ["n", 4], "i": [2, 1], "u": [2, 4]}), data,
      np.array([[3], [0]]), updates)
check(model([node("ScatterND", ["x", "i", "u"], ["y"])], {"x": [6, 4], "i": ["k", 2], "u": ["k"]}), data,
      np.array([[3, 1], [0, 0], [5, 3]]), random(3))
check(model([node("ScatterElements", ["x", "i", "u"], ["y"], axis=1)], {"x": [6, 4], "i": [2, 3], "u": [2, 3]}), data,
      np.array([[0, 3, 1], [2, -3, 0]]), random(2, 3))

# A loop of three steps gives its state and a row a step.
steps = [node("Add", ["s", "s"], ["t"]), node("Identity", ["t"], ["row"]), node("Identity", ["go"], ["on"])]
loop = helper.make_graph(steps,
                         "body", [helper.make_tensor_value_info("step", TensorProto.INT64, []),
                                  helper.make_tensor_value_info("go", TensorProto.BOOL, []),
                                  helper.make_tensor_value_info("s", TensorProto.FLOAT, [4])],
                         [onnx.ValueInfoProto(name=name) for name in ("on", "t", "row")])
yes, three = np.array(True), np.array(3, np.int64)
check(model([node("Loop", ["n", "go0", "x"], ["y", "rows"], body=loop)], {"x": [4]}, ("y", "rows"),
            [("n", three), ("go0", yes)]), random(4))
refused(["Loop", "trip count"], lambda: backend.prepare(
    model([node("Loop", ["i", "", "x"], ["y"], body=loop)], {"i": [], "x": [4]})))

# A function is of its own operator set: before version 13 Softmax took all dimensions from its axis on as one.
old = helper.make_function("own", "Old", ["a"], ["b"], [node("Softmax", ["a"], ["b"], axis=1)],
                           [helper.make_opsetid("", 11)])
x = random(2, 3, 4)
(found,) = backend.run_model(model([node("Old", ["x"], ["y"], domain="own")], {"x": [2, 3, 4]}, functions=[old]), [x])
flat = np.exp(x.reshape(2, 12))
np.testing.assert_allclose(found, (flat / flat.sum(1, keepdims=True)).reshape(2, 3, 4), rtol=1e-5)
new = helper.make_function("own", "New", ["a"], ["b"], [node("Neg", ["a"], ["b"])], [helper.make_opsetid("", 99)])
refused(["version 99", "'New'"], lambda: backend.prepare(
    model([node("New", ["x"], ["y"], domain="own", name="New")], {"x": [2]}, functions=[new])))

# A table without rows is refused when there is something to read, and not else.
table = backend.prepare(model([node("Gather", ["x", "i"], ["y"])], {"x": ["n", 4], "i": ["k"]}))
np.testing.assert_array_equal(table.run([data, np.array([5, -1])])[0], data[[5, -1]])
refused(["model.onnx", "Gather", "too small in dimension 0"], lambda: table.run([data[:0], np.array([0])]))
assert table.run([data[:0], np.zeros(0, np.int64)])[0].shape == (0, 4)
padded = backend.prepare(model([node("Pad", ["x", "p"], ["y"])], {"x": ["n", 4]},
                               weights=[("p", np.array([1, 0, 0, 0], np.int64))]))
assert padded.run([data])[0].shape == (7, 4)
refused(["too small in dimension 0"], lambda: padded.run([data[:0]]))


# Beside the axis, indices may not reach beyond the table, though only the call says how far either goes.
elements = backend.prepare(model([node("GatherElements", ["x", "i"], ["y"])], {"x": [3, "n"], "i": [2, "m"]}))
x, i = random(3, 4), np.array([[0, 1, 2], [2, 0, 1]])
np.testing.assert_array_equal(elements.run([x, i])[0], np.take_along_axis(x[:, :3], i, 0))
refused(["GatherElements", "too small in dimension 1: found 4, expected at least 900"],
        lambda: elements.run([x, np.zeros((2, 900), np.int64)]))
batches = backend.prepare(model([node("GatherND", ["x", "i"], ["y"], batch_dims=1)], {"x": ["n", 4], "i": ["m", 1]}))
np.testing.assert_array_equal(batches.run([x, np.array([[3], [0], [1]])])[0], x[[0, 1, 2], [3, 0, 1]])
refused(["GatherND", "too small in dimension 0: found 3, expected at least 7"],
        lambda: batches.run([x, np.zeros((7, 1), np.int64)]))

# Shapes with too many elements and negative extents are rejected by name.
for extents, word in (([1 << 40, 1 << 40], "too many"), ([-2], "is -2"), ([1 << 62], "too many")):
    refused(["ConstantOfShape", word], lambda: backend.prepare(
        model([node("ConstantOfShape", ["s"], ["y"])], {}, weights=[("s", np.array(extents, np.int64))])))

# A sum of no terms, known as such, and a step that gives a scalar for a row.
check(model([node("ReduceSum", ["x", "a"], ["y"])], {"x": [2, 0, 4]}, weights=[("a", np.array([1], np.int64))]),
      np.zeros((2, 0, 4), np.float32))
refused(["head size of value is 1048576, expected at most"], lambda: backend.prepare(
    model([node("Attention", ["q", "k", "v"], ["y"])], {"q": [1, 1, 2, 8], "k": [1, 1, 2, 8], "v": [1, 1, 2, 1 << 20]},
          opset=23)))
print("all right")
