#!/usr/bin/env bash
# onnx 1.23.2, Attention of opset 23: a mask with one column gives two results. The function body of the operator adds the
# mask, so one column counts for all keys; ReferenceEvaluator pads the missing columns with -inf, so only key 0 is visible.
# In opset 24 the function body pads, too, and both agree.
#
# Seen: opset 23: evaluator [1.0], body [2.5]; opset 24: evaluator [1.0], body [1.0]. Fails if that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check onnx==1.23.2 numpy==2.3.5
"$folder/venv/bin/python" - <<'PYTHON'
import numpy as np
import onnx
from onnx import TensorProto, helper
from onnx.inliner import inline_selected_functions
from onnx.reference import ReferenceEvaluator

q, k = np.zeros((1, 1, 1, 2), np.float32), np.zeros((1, 1, 4, 2), np.float32)
v = np.repeat(np.arange(1, 5, dtype=np.float32), 2).reshape(1, 1, 4, 2)
inputs = {"Q": q, "K": k, "V": v, "mask": np.zeros((1, 1), np.float32)}


def results(opset):
    node = helper.make_node("Attention", ["Q", "K", "V", "mask"], ["Y"])
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info(name, TensorProto.FLOAT, x.shape) for name, x in inputs.items()],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, q.shape)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    body = inline_selected_functions(model, [("", "Attention")], inline_schema_functions=True)
    assert all(each.op_type != "Attention" for each in body.graph.node)
    return [ReferenceEvaluator(each).run(None, inputs)[0][0, 0, 0, 0].item() for each in (model, body)]


for opset, expected in ((23, [1.0, 2.5]), (24, [1.0, 1.0])):
    found = results(opset)
    print(f"opset {opset}: evaluator [{found[0]}], body [{found[1]}]")
    assert found == expected, found
PYTHON
