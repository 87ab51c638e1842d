"""MatMulNBits and GatherBlockQuantized of com.microsoft against ONNX Runtime."""

import itertools

import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import numpy as np
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.onnx import backend, reader

pytestmark = pytest.mark.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
RAND = np.random.default_rng(45)


def random(*shape):
    return RAND.standard_normal(shape).astype(np.float32)


def codes(*shape):
    return RAND.integers(0, 256, shape, dtype=np.uint8)


def model(name, inputs, weights, shape, kind=TensorProto.FLOAT, x=TensorProto.FLOAT, **attributes):
    """One node; `inputs` are its names, of which "x" with `shape` is not a weight."""
    node = helper.make_node(name, inputs, ["y"], domain="com.microsoft", name="node", **attributes)
    graph = helper.make_graph([node], "graph", [helper.make_tensor_value_info("x", x, shape)],
                              [helper.make_tensor_value_info("y", kind, None)],
                              [numpy_helper.from_array(value, key) for key, value in weights.items()])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def compare(made, x, tolerance=2e-5):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x})[0]
    found = backend.prepare(made).run([x])[0]
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    scale = np.abs(expected.astype(np.float64)).max() + 1
    np.testing.assert_allclose(found.astype(np.float64), expected.astype(np.float64), rtol=0, atol=tolerance * scale)


def matmul(bits, block, n, k, lhs, zeros=None, bias=False, element=np.float32, flat=False):
    blocks = -(-k // block)
    weights = {"b": codes(n, blocks, block * bits // 8), "s": (random(n, blocks) / 8).astype(element)}
    if flat:
        weights["s"] = weights["s"].reshape(-1)
    inputs = ["x", "b", "s"]
    if zeros == "packed":
        weights["z"] = codes(n, -(-blocks * bits // 8))
    elif zeros == "float":
        weights["z"] = (random(n, blocks) + 8).astype(element)
    inputs.append("z" if zeros else "")
    inputs += ["", "bias"] if bias else []
    if bias:
        weights["bias"] = random(n).astype(element)
    kind = TensorProto.FLOAT16 if element == np.float16 else TensorProto.FLOAT
    made = model("MatMulNBits", inputs, weights, lhs, kind, kind, K=k, N=n, bits=bits, block_size=block)
    return made


@pytest.mark.parametrize(("bits", "zeros"), [(4, None), (4, "packed"), (4, "float"), (8, None), (8, "packed")])
def test_blocks_and_rows_of_all_sizes(bits, zeros):
    for block, (n, k) in itertools.product((16, 32, 128, 256), ((37, 512), (8, 90))):
        if block > k:
            continue
        made = matmul(bits, block, n, k, ["m", k], zeros, bias=n == 37, flat=zeros is None)
        prepared = backend.prepare(made)
        session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
        for rows in (1, 3, 16, 17, 50):
            x = random(rows, k)
            expected = session.run(None, {"x": x})[0]
            np.testing.assert_allclose(prepared.run([x])[0], expected, rtol=0, atol=2e-5 * np.abs(expected).max())


@pytest.mark.parametrize("zeros", [None, "packed", "float"])
def test_batches_and_16_bits(zeros):
    compare(matmul(4, 32, 24, 96, [2, 3, 96], zeros, bias=True), random(2, 3, 96))
    compare(matmul(4, 32, 24, 96, [96], zeros), random(96))
    compare(matmul(4, 32, 24, 96, ["b", "s", 96], zeros, bias=True, element=np.float16),
            random(2, 20, 96).astype(np.float16), 1e-3)


@pytest.mark.parametrize(("bits", "zeros"), [(4, False), (4, True), (8, False), (8, True)])
def test_rows_of_an_embedding(bits, zeros):
    blocks, block = 3, 32
    weights = {"data": codes(20, blocks * block * bits // 8), "s": random(20, blocks)}
    if zeros:
        weights["z"] = codes(20, -(-blocks * bits // 8))
    made = model("GatherBlockQuantized", ["data", "x", "s"] + ["z"] * zeros, weights, [2, "n"], x=TensorProto.INT64,
                 bits=bits, block_size=block, gather_axis=0, quantize_axis=1)
    compare(made, RAND.integers(0, 20, (2, 5)), 1e-6)


def test_the_kernel_reads_the_blocks():
    report = saccade.compile(reader.read_model(matmul(4, 32, 64, 128, ["m", 128])).text, target="v4-expanded").explain()
    assert "kernel family v4-expanded u4 weights dequantized in registers or in packing" in report, report


CASES = {
    "an order of columns": (dict(inputs=["x", "b", "s", "", "g"], g=np.zeros(64, np.int32)), {}, "input 4 ('g_idx') is not supported"),
    "two bits": (dict(b=codes(8, 2, 8)), dict(bits=2), "'bits' is 2, expected 4 or 8"),
    "a block of 24": (dict(), dict(block_size=24), "'block_size' is 24"),
    "a matrix of codes": (dict(b=codes(8, 32)), {}, "B is"),
    "other scales": (dict(s=random(8, 3)), {}, "scales is"),
    "other columns": (dict(), dict(K=32), "columns of A"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_is_named(case):
    weights, attributes, message = CASES[case]
    given = {"b": codes(8, 2, 16), "s": random(8, 2)} | weights
    inputs = given.pop("inputs", ["x", "b", "s"])
    made = model("MatMulNBits", inputs, given, [3, 64], **({"K": 64, "N": 8, "bits": 4, "block_size": 32} | attributes))
    with pytest.raises((ValueError, saccade.CompileError)) as error:
        backend.prepare(made)
    assert message in str(error.value)


def test_codes_that_another_node_reads_are_refused():
    made = matmul(4, 32, 8, 64, [3, 64])
    made.graph.node.append(helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT))
    made.graph.output.append(helper.make_tensor_value_info("c", TensorProto.FLOAT, None))
    with pytest.raises(ValueError, match="the type uint8 is not supported"):
        backend.prepare(made)
