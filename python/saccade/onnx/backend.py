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

from saccade import _log, _parameters
from saccade._graph import ELEMENTS, Program, Tensor
from saccade.errors import CompileError
from saccade.module import compile_model
from saccade.onnx.errors import ModelError
from saccade.onnx.partition import Plan, divide
from saccade.onnx.reader import parse, read, read_model


class Model(BackendRep):  # type: ignore[misc]
    """A compiled model."""

    def __init__(self, program: Program, **options: Any):
        """Compiles a program; `options` are those of `saccade.compile`. Raises saccade.CompileError, and
        ValueError for a GPU target."""
        self.program = program
        self.module = compile_model(program.text, True, **options)
        main = self.module.main
        self.main = main.bind(**{weight.argument: _array(tensor) for weight, tensor in program.weights})

    @property
    def elements(self) -> dict[str, str]:
        """MLIR's element types of the results, by name."""
        types = [result.type.rstrip(">").rpartition("x")[2].rpartition("<")[2] for result in self.module.main.results]
        return {value.name: element for value, element in zip(self.program.outputs, types)}

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """The outputs for inputs in the model's order, by name, or as a single array. Raises TypeError and ValueError
        for invalid inputs."""
        inputs = _in_order(inputs, [value.name for value in self.program.inputs])
        results = self.main(*(np.asarray(each) for each in inputs))
        return results if isinstance(results, tuple) else (results,)


class Divided(BackendRep):  # type: ignore[misc]
    """A model of which Saccade compiled what it supports; ONNX Runtime runs the rest."""

    def __init__(self, model: onnx.ModelProto, **options: Any):
        """Divides and compiles a model; `options` are those of `saccade.compile`.

        Raises:
            saccade.onnx.ModelError: an invalid model.
            ImportError: ONNX Runtime is not installed, and there are nodes for it.
        """
        weights = {tensor.name for tensor in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in weights]
        self.inputs = [value.name for value in inputs]
        """The names of the inputs."""
        self._are_tensors = [value.type.WhichOneof("value") == "tensor_type" for value in inputs]
        with _log.step("dividing an ONNX model") as step:
            self.plan: Plan = divide(model, lambda part: Model(read_model(part), **options))
            """The parts. `print(model.plan)` says how many nodes each side runs."""
            step.done = str(self.plan)
        self._returned = [value.name for value in model.graph.output]
        last = {name: number for number, part in enumerate(self.plan.parts) for name in part.inputs}
        self._over = [[name for name, at in last.items() if at == number and name not in self._returned]
                      for number in range(len(self.plan.parts))]  # fmt: skip

    def run(self, inputs: Any, **_: Any) -> tuple[Any, ...]:
        """As `Model.run`."""
        given = _in_order(inputs, self.inputs)
        values = {name: np.asarray(x) if is_tensor else x
                  for name, x, is_tensor in zip(self.inputs, given, self._are_tensors)}  # fmt: skip
        for part, over in zip(self.plan.parts, self._over):
            values.update(zip(part.outputs, part.run([values[name] for name in part.inputs])))
            for name in over:  # frees arrays that nothing else reads
                del values[name]
        return tuple(values[name] if name in values else onnx.numpy_helper.to_array(self.plan.weights[name])
                     for name in self._returned)  # fmt: skip


def _in_order(inputs: Any, expected: Sequence[str]) -> Sequence[Any]:
    """The inputs of a model in its order."""
    if isinstance(inputs, Mapping):
        if unknown := sorted(set(inputs) - set(expected)):
            raise TypeError(f"the model has no input {unknown[0]!r}; it has: {', '.join(expected)}")
        if missing := [name for name in expected if name not in inputs]:
            raise TypeError(f"the input {missing[0]!r} is missing")
        inputs = [inputs[name] for name in expected]
    elif isinstance(inputs, np.ndarray):
        inputs = [inputs]
    if len(inputs) != len(expected):
        raise TypeError(f"found {len(inputs)} inputs, expected {len(expected)}")
    given: Sequence[Any] = inputs
    return given


def prepare(model: onnx.ModelProto | str | os.PathLike[str], device: str = "CPU", *, partition: bool = False,
            **options: Any) -> Model | Divided:  # fmt: skip
    """Compiles a model or a model file.

    Args:
        partition: True compiles the parts that Saccade supports, and leaves the other nodes to ONNX Runtime.
        options: those of `saccade.compile`.

    Raises:
        saccade.onnx.ModelError, saccade.CompileError: an invalid model, or one that is not supported.
        ImportError: a part is left to ONNX Runtime, which is not installed.
    """
    if not supports_device(device):
        raise NotImplementedError(f"the device {device!r} is not supported, expected 'CPU'")
    if _parameters.flag("partition", partition):
        return Divided(model if isinstance(model, onnx.ModelProto) else _load(model), **options)
    advice = "saccade.onnx.backend.prepare(MODEL, partition=True) leaves what is not supported to ONNX Runtime"
    try:
        program = read_model(model) if isinstance(model, onnx.ModelProto) else read(model)
        return Model(program, **options)
    except (ModelError, CompileError) as error:
        if "not supported" not in str(error):
            raise
        message = f"{error}\n{advice}"
        if isinstance(error, CompileError):
            raise CompileError(message, error.diagnostics) from None
        raise ModelError(message) from None


def _load(path: str | os.PathLike[str]) -> onnx.ModelProto:
    """A model file with its external data. Raises ModelError for an invalid one."""
    model, folder = parse(path)
    try:
        onnx.load_external_data_for_model(model, folder)
    except Exception as error:  # of the checks of paths, and of files
        raise ModelError(f"{os.fspath(path)}: the external data cannot be read: {error}") from None
    return model


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
