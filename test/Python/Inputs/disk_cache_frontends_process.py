"""Compiles a model of each frontend in a fresh process, for test_disk_cache.py; prints cache_info() as JSON."""

import json

import jax
import numpy as np
import onnx
import torch
from onnx import helper

import saccade
import saccade.jax
import saccade.onnx.backend
import saccade.torch

x = np.ones((2, 5, 16), np.float32)
torch.manual_seed(0)
block = torch.nn.MultiheadAttention(16, 2, batch_first=True).eval()
with torch.no_grad():
    saccade.torch.compile(block, (torch.from_numpy(x),) * 3)(*(torch.from_numpy(x),) * 3)

saccade.jax.compile(lambda q, k, v: jax.nn.softmax(q @ k.mT / 4) @ v, x, x, x)(x, x, x)

inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 5, 5]) for name in "ab"]
graph = helper.make_graph([helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Softmax", ["c"], ["d"])],
                          "softmax", inputs, [helper.make_tensor_value_info("d", onnx.TensorProto.FLOAT, [2, 5, 5])])  # fmt: skip
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
saccade.onnx.backend.prepare(model).run([x[:, :, :5], x[:, :, :5]])
print(json.dumps(saccade.cache_info()._asdict()))
