"""ONNX Runtime as a peer: its operators Attention and Gemm in f32, with inputs and output bound beforehand."""

import numpy as np

from . import problems
from .torch_peers import MOST_SCORE_BYTES, additive_mask
from .workers import Worker

OPSET, IR_VERSION = 23, 11


class OnnxRuntime(Worker):
    """[b, h, s, d] is the operator's form with four dimensions, [b, s, h, d] the one with three. Weights are constants
    of the model, so that they are packed once."""

    name = "onnxruntime"
    package = "onnxruntime"

    @staticmethod
    def supports(case):
        return case.type == "f32" and (case.kind.operation == "gemm" or case.score_bytes <= MOST_SCORE_BYTES)

    def __init__(self, threads):
        import onnxruntime

        self.runtime = onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.add_session_config_entry("session.force_spinning_stop", "1")  # or it would spin into others' turns

    def bind(self, case, inputs):
        if case.kind.operation == "gemm":
            feeds = {"x": inputs[0]}
            nodes = [("Gemm", ["x", "w", "bias"], {})]
            constants, shape = {"w": inputs[1], "bias": inputs[2]}, case.output_shape
        else:
            feeds, options, constants = dict(zip("qkv", inputs)), {"is_causal": int(case.mask == "causal")}, {}
            shape = case.output_shape
            if case.layout == "bshd":
                feeds = {name: array.reshape(*array.shape[:2], -1) for name, array in feeds.items()}
                options |= {"q_num_heads": case.heads, "kv_num_heads": case.kv_heads}
                shape = (case.batch, case.queries, case.heads * case.depth)
            if case.has_bias or case.window:
                mask = inputs[3] if case.has_bias else 0
                feeds["mask"] = np.ascontiguousarray(mask + additive_mask(case) if case.window else mask, np.float32)
            nodes = [("Attention", list(feeds), options)]
        session = self.runtime.InferenceSession(model(nodes, feeds, constants, shape), self.options,
                                                providers=["CPUExecutionProvider"])
        value = self.runtime.OrtValue.ortvalue_from_numpy
        output = problems.aligned_empty(shape, np.float32)
        output[...] = 0
        binding = session.io_binding()
        bound = {name: value(array) for name, array in feeds.items()}
        for name, each in bound.items():
            binding.bind_ortvalue_input(name, each)
        result = value(output)
        binding.bind_ortvalue_output("o", result)
        return (lambda: session.run_with_iobinding(binding)), (lambda: result.numpy().reshape(case.output_shape))


def model(nodes, feeds, constants, shape):
    """A model of one operator: inputs named as in `feeds`, constants, and the output o of this shape, as bytes."""
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(operator, names, ["o"], **options) for operator, names, options in nodes]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    graph = helper.make_graph(made, "one", values, [helper.make_tensor_value_info("o", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(array, name) for name, array in constants.items()])
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION).SerializeToString()
