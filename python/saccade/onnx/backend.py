"""ONNX's backend interface: compiles models and runs them on the CPU.

The module has the functions of `onnx.backend.base.Backend`, so it can be passed as a backend:

    from saccade.onnx import backend
    outputs = backend.prepare(model).run([x, y])
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper
from onnx.backend.base import Backend, BackendRep

from saccade._graph import ELEMENTS, Program, Tensor
from saccade.module import compile_model
from saccade.onnx.reader import read, read_model


class Model(BackendRep):  # type: ignore[misc]
    """A compiled model."""

    def __init__(self, program: Program, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError, and
        ValueError for a GPU target."""
        self.program = program
        self.module = compile_model(program.text, True, **options)
        main = self.module.main
        self.main = main.bind(**{weight.argument: _array(tensor) for weight, tensor in program.weights})

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order, by name, or as a single array. Raises TypeError and ValueError
        for invalid inputs."""
        expected = self.program.inputs
        if isinstance(inputs, Mapping):
            if unknown := sorted(set(inputs) - {value.name for value in expected}):
                names = ", ".join(each.name for each in expected)
                raise TypeError(f"the model has no input {unknown[0]!r}; it has: {names}")
            if missing := [value.name for value in expected if value.name not in inputs]:
                raise TypeError(f"the input {missing[0]!r} is missing")
            inputs = [inputs[value.name] for value in expected]
        elif isinstance(inputs, np.ndarray):
            inputs = [inputs]
        if len(inputs) != len(expected):
            raise TypeError(f"found {len(inputs)} inputs, expected {len(expected)}")
        results = self.main(*(np.asarray(each) for each in inputs))
        return results if isinstance(results, tuple) else (results,)


def prepare(model: onnx.ModelProto | str | os.PathLike[str], device: str = "CPU", **options: Any) -> Model:
    """Compiles a model or a model file. Raises saccade.onnx.ModelError and saccade.CompileError."""
    if not supports_device(device):
        raise NotImplementedError(f"the device {device!r} is not supported, expected 'CPU'")
    return Model(read_model(model) if isinstance(model, onnx.ModelProto) else read(model), **options)


def run_model(model: onnx.ModelProto, inputs: Any, device: str = "CPU", **options: Any) -> tuple[Any, ...]:
    """Compiles a model and runs it once."""
    return prepare(model, device, **options).run(inputs)


def run_node(node: onnx.NodeProto, inputs: Sequence[np.ndarray], device: str = "CPU",
             outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None, **options: Any) -> tuple[Any, ...]:
    """Runs one node with the latest version of its operator, or `opset_version`. `outputs_info` is ignored."""
    version = options.pop("opset_version", 26)
    present = [name for name in node.input if name]
    arrays = [np.asarray(each) for each in inputs]
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
              for name, each in zip(present, arrays)]
    outputs = [onnx.ValueInfoProto(name=name) for name in node.output if name]
    graph = helper.make_graph([node], "node", values, outputs)
    domains = [helper.make_opsetid("", version)]
    if node.domain not in ("", "ai.onnx"):
        domains.append(helper.make_opsetid(node.domain, 1))
    return run_model(helper.make_model(graph, opset_imports=domains), inputs, device, **options)


def supports_device(device: str) -> bool:
    """Whether models run on this device."""
    return device.split(":")[0] == "CPU"


class SaccadeBackend(Backend):  # type: ignore[misc]
    """The same functions as a class."""

    prepare = staticmethod(prepare)
    run_model = staticmethod(run_model)
    run_node = staticmethod(run_node)
    supports_device = staticmethod(supports_device)


def _array(tensor: Tensor) -> np.ndarray:
    """A view of the weight's data in the model."""
    array = np.frombuffer(tensor.data, dtype=ELEMENTS[tensor.element][0]).reshape(tensor.shape)
    if tensor.element == "bf16":
        import ml_dtypes

        array = array.view(ml_dtypes.bfloat16)
    return array
