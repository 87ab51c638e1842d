"""ONNX Runtime as a peer: its Attention and Gemm operators in f32, with I/O binding."""

import numpy as np

from . import problems
from .torch_peers import MAX_SCORE_BYTES, additive_mask
from .workers import Worker

OPSET, IR_VERSION = 23, 11


class OnnxRuntime(Worker):
    """bhsd uses the 4-D form of the Attention operator, bshd the 3-D form. Weights are initializers, so that they are
    packed once."""

    name = "onnxruntime"
    package = "onnxruntime"

    @staticmethod
    def supports(case):
        return case.type == "f32" and (case.kind.operation == "gemm" or case.score_bytes <= MAX_SCORE_BYTES)

    def __init__(self, threads):
        import onnxruntime

        self.runtime = onnxruntime
        self.options = onnxruntime.SessionOptions()
        self.options.intra_op_num_threads = threads
        self.options.add_session_config_entry("session.force_spinning_stop", "1")  # spinning threads would disturb other contenders

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
    """The serialized model of one operator: inputs as in `feeds`, initializers, and the output o of this shape."""
    from onnx import TensorProto, helper, numpy_helper

    made = [helper.make_node(operator, names, ["o"], **options) for operator, names, options in nodes]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, array.shape) for name, array in feeds.items()]
    graph = helper.make_graph(made, "one", values, [helper.make_tensor_value_info("o", TensorProto.FLOAT, shape)],
                              [numpy_helper.from_array(array, name) for name, array in constants.items()])
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=IR_VERSION).SerializeToString()
