#!/usr/bin/env python3
# REQUIRES: onnxruntime
# UNSUPPORTED: asan, tsan
# RUN: %python %s --count 60
"""Random nodes of com.microsoft's operators against ONNX Runtime.

Usage: onnx_runtime_calls.py [--operator NAME] [--first-seed N] [--count N] [--seed N] [--coverage]. Draws optional inputs,
outputs and attributes, element types, extents that the model leaves open, and values: masks of each form, of all keys and of
none, biases with rows of the lowest number.
"""

import random
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
from microsoft_nodes import NODES
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

from saccade.onnx import backend

onnxruntime.set_default_logger_severity(4)
TYPES = {np.float32: TensorProto.FLOAT, np.float16: TensorProto.FLOAT16, np.float64: TensorProto.DOUBLE,
         np.int32: TensorProto.INT32, np.int64: TensorProto.INT64}


class Call:
    """A model of one node, and its inputs."""

    def __init__(self, seed, names):
        rng = random.Random(f"{seed} runtime")
        self.name = rng.choice(names)
        self.node = NODES[self.name](rng, np.random.default_rng(seed))
        self.is_open = rng.random() < 0.5

    def __str__(self):
        given = [None if x is None else f"{x.dtype}{list(x.shape)}" for x in self.node.inputs]
        return f"{self.name}({', '.join(map(str, given))}, {self.node.attributes}) -> {self.node.outputs}, open: {self.is_open}"

    def features(self):
        given = [f"input {i}" for i, x in enumerate(self.node.inputs) if x is not None]
        return [self.name, *[f"{self.name} {x}" for x in [*given, *self.node.attributes, *self.node.forms]]]

    def model(self):
        values, names, weights = [], [], []
        for i, x in enumerate(self.node.inputs):
            names.append("" if x is None else f"x{i}")
            if x is None:
                continue
            if i in self.node.constants:
                weights.append(numpy_helper.from_array(x, names[-1]))
                continue
            dims = [self.node.names.get((i, dim), extent) if self.is_open else extent for dim, extent in enumerate(x.shape)]
            values.append(helper.make_tensor_value_info(names[-1], TYPES[x.dtype.type], dims))
        outputs = [f"y{i}" if requested else "" for i, requested in enumerate(self.node.outputs)]
        node = helper.make_node(self.name, names, outputs, domain="com.microsoft", **self.node.attributes)
        graph = helper.make_graph([node], "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs if name], weights)
        opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def check(seed, call):
    made = call.model()
    inputs = {value.name: x for value, x in zip(made.graph.input, [x for i, x in enumerate(call.node.inputs) if x is not None and i not in call.node.constants])}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(made.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, inputs)
    found = backend.run_model(made, list(inputs.values()))
    for i, (x, y) in enumerate(zip(found, expected, strict=True)):
        if (x.dtype, x.shape) != (y.dtype, y.shape):
            return f"result {i} is {x.dtype}{list(x.shape)}, expected {y.dtype}{list(y.shape)}"
        bound = {np.float16: 4e-3, np.float32: 2e-5, np.float64: 1e-6}.get(x.dtype.type, 0)
        largest = np.abs(y.astype(float)).max(initial=0)
        scale = largest if 1 < largest < 1e30 else 1.0
        with np.errstate(invalid="ignore", over="ignore"):
            near = np.isclose(x.astype(float), y.astype(float), rtol=bound, atol=bound * scale * call.node.looseness, equal_nan=True)
        if not near.all():
            at = tuple(int(k) for k in np.argwhere(~near)[0])
            return f"result {i} at {at} is {x[at]}, expected {y[at]}; {np.count_nonzero(~near)} of {near.size} differ"
    return None


def main():
    parser = seed_options(__doc__, 400)
    parser.add_argument("--operator", choices=NODES, action="append", help="only this operator")
    args = parser.parse_args()
    names = args.operator or list(NODES)
    make = lambda seed: Call(seed, names)
    seeds = chosen_seeds(args, lambda seed: make(seed).features())
    if args.coverage:
        return print_coverage([make(seed).features() for seed in seeds])
    failures = run_calls(__file__, args, seeds, make, check, "".join(f"--operator {x} " for x in args.operator or ()))
    print(f"{len(seeds) - failures} of {len(seeds)} nodes agree with ONNX Runtime")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
