"""Models of ONNX are read without computing anything; what is wrong with one is said with file, node and operator.

REQUIRES: onnx
UNSUPPORTED: asan, tsan
RUN: rm -rf %t && mkdir %t
RUN: %python %s %t
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from saccade.onnx import ModelError, read, read_model

FOLDER = pathlib.Path(sys.argv[1])
RAND = np.random.default_rng(0)


def value(name, shape=(2, 8), type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def model(nodes, inputs=("x",), outputs=("y",), weights=(), opset=23, functions=()):
    inputs = [each if isinstance(each, onnx.ValueInfoProto) else value(each) for each in inputs]
    outputs = [onnx.ValueInfoProto(name=each) for each in outputs]
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(list(nodes), "graph", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=domains, functions=functions)


def refused(words, thing, name="model.onnx"):
    try:
        read_model(thing, name) if isinstance(thing, onnx.ModelProto) else read(thing)
    except ModelError as error:
        for word in words:
            assert word in str(error), (word, str(error))
        return
    raise AssertionError(f"not refused: {words}")


def node(op, inputs, outputs, name="a node", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


# --- what is written -------------------------------------------------------------------------------------------------

big = numpy_helper.from_array(RAND.standard_normal((8, 16)).astype(np.float32), "encoder/weight.0")
small = numpy_helper.from_array(np.array([1.5, np.nan, -0.0, 1e-40], np.float32), "small")
written = read_model(model([node("MatMul", ["x", "encoder/weight.0"], ["y"], name="layer/0")], weights=[big, small]))
assert "%encoder_weight_0: tensor<8x16xf32> {attn.constant}" in written.text
assert 'loc("layer/0"("model.onnx":' in written.text
assert "onnx.opset = 23" in written.text
assert "dense<[0x3FC00000, 0x7FC00000, 0x80000000, 0x000116C2]> : tensor<4xf32>" in written.text, written.text
assert [(weight.name, weight.shape) for weight, _ in written.weights] == [("encoder/weight.0", (8, 16))]
(_, tensor), = written.weights
assert tensor.data == numpy_helper.to_array(big).tobytes()

# Nodes in any order; functions of the model are written where they are called, with their attributes.
function = helper.make_function("own", "Twice", ["a"], ["b"], [
    helper.make_node("Add", ["a", "a"], ["c"]), helper.make_node("LeakyRelu", ["c"], ["b"])],
    [helper.make_opsetid("", 23)], ["alpha"])
reference = function.node[1].attribute.add()
reference.name, reference.ref_attr_name, reference.type = "alpha", "alpha", onnx.AttributeProto.FLOAT
text = read_model(model([node("Neg", ["t"], ["y"]), node("Twice", ["x"], ["t"], domain="own", alpha=0.5)],
                        functions=[function])).text
assert text.index("onnx.Add") < text.index("onnx.LeakyRelu") < text.index("onnx.Neg")
assert '"alpha" = 0x3F000000 : f32' in text

# Every type, and every way to store it, down to the bytes.
for dtype in (np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.bool_):
    array = (RAND.standard_normal((9, 9)) * 5).astype(dtype)
    for raw in (True, False):
        proto = helper.make_tensor("w", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), array.shape,
                                   array.tobytes() if raw else array.flatten().tolist(), raw=raw)
        made = read_model(model([node("Identity", ["x"], ["y"])], weights=[proto]))
        made.write(FOLDER / "w.mlir")
        assert np.array_equal(np.load(FOLDER / "w.w.npy"), array), (dtype, raw)

# --- nothing is computed ---------------------------------------------------------------------------------------------

expanded = model([
    node("Shape", ["x"], ["s"]), node("Constant", [], ["k"], value_ints=[2, -1]), node("Reshape", ["x", "k"], ["r"]),
    node("Constant", [], ["c"], value=big), node("MatMul", ["r", "c"], ["y"])], weights=[small])
onnx.save(expanded, FOLDER / "patched.onnx")
patched = f"""
import numpy as np, onnx, onnx.reference, onnx.numpy_helper, onnx.shape_inference
def fail(*_, **__): raise AssertionError("the reader computes")
for name in dir(np):
    if isinstance(getattr(np, name), np.ufunc): setattr(np, name, fail)
for name in ("array", "asarray", "frombuffer", "zeros", "empty", "matmul", "dot"): setattr(np, name, fail)
onnx.reference.ReferenceEvaluator.__init__ = onnx.numpy_helper.to_array = fail
onnx.shape_inference.infer_shapes = fail
from saccade.onnx import read
assert "onnx.MatMul" in read({str(FOLDER / 'patched.onnx')!r}).text
try: np.add(1, 2)
except AssertionError: print("patched")
"""
ran = subprocess.run([sys.executable, "-c", patched], capture_output=True, text=True)
assert ran.stdout == "patched\n", ran.stderr

# --- what is refused -------------------------------------------------------------------------------------------------

good = model([node("MatMul", ["x", "w"], ["y"])], weights=[numpy_helper.from_array(np.ones((8, 16), np.float32), "w")])
data = good.SerializeToString()
for length in (1, 10, len(data) // 2, len(data) - 1):
    (FOLDER / "cut.onnx").write_bytes(data[:length])
    refused(["cut.onnx"], FOLDER / "cut.onnx")
(FOLDER / "empty.onnx").write_bytes(b"")
refused(["empty.onnx", "no graph"], FOLDER / "empty.onnx")
(FOLDER / "text.onnx").write_text("this is text")
refused(["text.onnx", "not an ONNX model"], FOLDER / "text.onnx")

refused(["node 'a node' (Add)", "'missing' is produced by no node"], model([node("Add", ["x", "missing"], ["y"])]))
refused(["node 'one' (Add)", "own output"], model([
    node("Add", ["x", "b"], ["y"], name="one"), node("Neg", ["y"], ["b"], name="two")]))
refused(["is there already"], model([node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])]))
refused(["output 'y'", "no node"], model([node("Neg", ["x"], ["z"])]))
refused(["version 99", "'ai.onnx'", "7 to 28"], model([node("Neg", ["x"], ["y"])], opset=99))
refused(["operator set 'other'"], model([node("Neg", ["x"], ["y"], domain="other")]))
refused(["input 'x'", "string"], model([node("Neg", ["x"], ["y"])], inputs=[value("x", type=TensorProto.STRING)]))
refused(["input 'x'", "no shape"], model([node("Neg", ["x"], ["y"])], inputs=[value("x", None)]))
recursive = helper.make_function("own", "Loop", ["a"], ["b"], [helper.make_node("Loop", ["a"], ["b"], domain="own")],
                                 [helper.make_opsetid("own", 1)])
refused(["50 deep"], model([node("Loop", ["x"], ["y"], domain="own")], functions=[recursive]))
short = TensorProto(name="w", data_type=1, dims=[8, 16], raw_data=b"1234")
refused(["weight 'w'", "found 4 bytes, expected 512"], model([node("MatMul", ["x", "w"], ["y"])], weights=[short]))
huge = TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 40])
refused(["weight 'w'", "found 0 bytes"], model([node("MatMul", ["x", "w"], ["y"])], weights=[huge]))


def external(location, **entries):
    proto = TensorProto(name="w", data_type=1, dims=[8, 16], data_location=TensorProto.EXTERNAL)
    for key, content in {"location": location, **entries}.items():
        proto.external_data.add(key=key, value=str(content))
    onnx.save(model([node("MatMul", ["x", "w"], ["y"])], weights=[proto]), FOLDER / "external.onnx")
    return FOLDER / "external.onnx"


(FOLDER / "w.bin").write_bytes(b"....." + np.arange(128, dtype=np.float32).tobytes())
(weight, tensor), = read(external("w.bin", offset=5, length=512)).weights
assert tensor.data == np.arange(128, dtype=np.float32).tobytes()
refused(["weight 'w'", "cannot read 'gone.bin'"], external("gone.bin"))
refused(["weight 'w'", "found 500 bytes"], external("w.bin", offset=17))
refused(["weight 'w'", "found 17 bytes"], external("w.bin", length=17))
refused(["weight 'w'", "no integer"], external("w.bin", offset="five"))
refused(["weight 'w'", "outside of the model"], external("../secret.bin"))
refused(["weight 'w'", "outside of the model"], external(os.path.abspath(sys.executable)))

# --- the command -----------------------------------------------------------------------------------------------------


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "saccade.onnx", *map(str, arguments)], capture_output=True, text=True)


(FOLDER / "good.onnx").write_bytes(data)
ran = command(FOLDER / "good.onnx", "-o", FOLDER / "good.mlir")
assert ran.returncode == 0, ran.stderr
assert "onnx.MatMul" in (FOLDER / "good.mlir").read_text()
assert np.array_equal(np.load(FOLDER / "good.w.npy"), np.ones((8, 16), np.float32))
before = sorted(os.listdir(FOLDER))
assert command(FOLDER / "cut.onnx", "-o", FOLDER / "none.mlir").returncode == 1
assert command(FOLDER / "gone.onnx", "-o", FOLDER / "none.mlir").returncode == 3
assert command(FOLDER / "good.onnx", "-o", FOLDER / "no" / "folder.mlir").returncode == 3
assert sorted(os.listdir(FOLDER)) == before, "something half written was left"
