#!/usr/bin/env bash
# onnxruntime 1.31.1: a graph of standard operators, DequantizeLinear of an int8 matrix and a MatMul of float activations with
# it, does not multiply in float. The optimizer replaces both by MatMulNBits with accuracy level 4, which rounds the
# activations to 8 bits. This happens without any option, for a matrix of int8 with one scale as for int4 with blocks. The
# session option "session.qdq_matmulnbits_accuracy_level" = "1", or no optimization, gives results of float. A comparison
# with this runtime as the oracle of quantized graphs needs it.
#
# Seen, the largest difference from the product in float64, relative to the largest result: 5e-3 by default, 2e-7 with
# level 1, 2e-7 without optimization. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnxruntime==1.31.1 onnx==1.23.2 numpy==2.3.5
"$folder/venv/bin/python" - "$folder" <<'PYTHON'
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

random = np.random.default_rng(0)
codes = random.integers(-128, 128, (64, 32)).astype(np.int8)
nodes = [helper.make_node("DequantizeLinear", ["codes", "scale"], ["weight"]), helper.make_node("MatMul", ["x", "weight"], ["y"])]
graph = helper.make_graph(
    nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 64])],
    [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 32])],
    [numpy_helper.from_array(codes, "codes"), numpy_helper.from_array(np.float32(0.7), "scale")])
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
onnx.checker.check_model(model, full_check=True)
x = random.standard_normal((3, 64)).astype(np.float32)
expected = x.astype(np.float64) @ (codes * np.float64(np.float32(0.7)))


def run(level=None, optimizes=True):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.optimized_model_filepath = sys.argv[1] + "/optimized.onnx"
    if level is not None:
        options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", level)
    if not optimizes:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found = session.run(None, {"x": x})[0]
    return np.abs(found - expected).max() / np.abs(expected).max(), [
        node.op_type for node in onnx.load(sys.argv[1] + "/optimized.onnx").graph.node]


for what, options, least, most, operators in (
        ("by default", {}, 1e-3, 2e-2, ["MatMulNBits"]), ("with accuracy level 1", {"level": "1"}, 0, 1e-5, ["MatMulNBits"]),
        ("without optimization", {"optimizes": False}, 0, 1e-5, ["DequantizeLinear", "MatMul"])):
    error, found = run(**options)
    print(f"{what}: {', '.join(found)}, error {error:.0e}")
    assert least <= error <= most and found == operators, (what, error, found)
PYTHON
