"""Models of which Saccade compiles the parts that it supports, and ONNX Runtime runs the rest."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import onnx
from onnx import helper

from saccade._text import Scope
from saccade.errors import CompileError
from saccade.onnx.errors import ModelError
from saccade.onnx.order import describe, reads, sort_nodes
from saccade.onnx.tensors import TYPES, type_name

_SHAPES = frozenset("Cast Concat Constant ConstantOfShape Expand Flatten Gather Identity Range Reshape Shape Size "
                    "Slice Split Squeeze Tile Transpose Unsqueeze".split())
"""Operators that compute shapes, or move elements."""

_IR_VERSION = 10
"""The version of the format that has all types but those of 4-bit floats."""

_NOT_IN_NUMPY = frozenset((16, 17, 18, 19, 20))
"""bfloat16 and floats of 8 bits, in ONNX's numbers."""

_DEPTH = 50  # nesting of functions

_SMALLEST = 2
"""The number of other operators from which on a part is worth a call."""


@dataclasses.dataclass
class Part:
    """Nodes that run together."""

    is_compiled: bool
    """By Saccade; others are run by ONNX Runtime."""
    model: Any
    """A ModelProto with these nodes."""
    inputs: list[str]
    outputs: list[str]
    run: Callable[[Sequence[Any]], Sequence[Any]]
    """Takes arrays for `inputs`, returns those of `outputs`."""


class Plan:
    """The parts of a model in the order in which they run."""

    def __init__(self, parts: list[Part], reasons: Mapping[str, str], weights: Mapping[str, Any]):
        self.parts = parts
        self.weights = weights
        """The weights and constants of the model, TensorProto by name."""
        self.reasons = reasons
        """Why nodes are left to ONNX Runtime, by name."""

    def __str__(self) -> str:
        compiled = [part for part in self.parts if part.is_compiled]
        rest = Counter(node.op_type for part in self.parts if not part.is_compiled for node in part.model.graph.node)
        listed = ", ".join(f"{name} ({count})" if count > 1 else name for name, count in rest.most_common())
        count = sum(len(part.model.graph.node) for part in compiled)
        return (f"{count} nodes in {len(compiled)} {'part' if len(compiled) == 1 else 'parts'} compiled by Saccade; "
                f"run by ONNX Runtime: {listed or 'none'}")


def divide(model: Any, compile_part: Callable[[Any], Any]) -> Plan:
    """Divides a model.

    Nodes are numbered along the edges of the graph: even numbers for ONNX Runtime, odd ones for Saccade, and a node has
    the smallest number that is at least those of its operands. Equal numbers make one part: none waits for itself.

    Args:
        model: a ModelProto with its weights; it is not changed.
        compile_part: compiles the ModelProto of a part; the result has a method `run` that takes a list of arrays,
            and `elements`, MLIR's element types of its results by name. Raises ModelError or CompileError. Nodes that
            the message quotes by name are left to ONNX Runtime, or else the whole part is.

    Raises:
        ImportError: a node is left to ONNX Runtime, which is not installed.
        ModelError: the graph is invalid, or a part is, in the words of ONNX Runtime.
    """
    try:
        return _divide(_Whole(model), compile_part, _SMALLEST)
    except ModelError as error:  # what is too small for a call may have types that only Saccade computes
        if "NOT_IMPLEMENTED" not in str(error):
            raise
        return _divide(_Whole(model), compile_part, 1)


def _divide(whole: _Whole, compile_part: Callable[[Any], Any], smallest: int) -> Plan:
    refused: dict[str, str] = {}  # reasons by names of nodes
    compiled: dict[tuple[str, ...], Any] = {}  # by the names of nodes
    while True:
        parts, failed = whole.parts(refused), False
        for is_compiled, nodes in parts:
            names = tuple(node.name for node in nodes)
            if not is_compiled or names in compiled:
                continue
            if small := _why_not(nodes, smallest) or whole.untyped(nodes):
                refused |= small
                failed = True
                continue
            try:
                compiled[names] = compile_part(whole.model_of(nodes))
            except (CompileError, ModelError) as error:
                refused |= whole.quoted(error, nodes) or dict.fromkeys(names, str(error))
                failed = True
        if not failed:
            break
    built = []
    for is_compiled, nodes in parts:
        part = whole.model_of(nodes, compiled.values())
        inputs, outputs = ([value.name for value in values] for values in (part.graph.input, part.graph.output))
        run = compiled[tuple(node.name for node in nodes)].run if is_compiled else _session(part, outputs)
        built.append(Part(is_compiled, part, inputs, outputs, run))
    return Plan(built, refused, whole.weights)


class _Whole:
    """A model whose nodes are sorted and have names, and whose constants are weights."""

    def __init__(self, model: Any):
        if not model.HasField("graph"):
            raise ModelError("the model has no graph")
        if model.graph.sparse_initializer:
            raise ModelError("sparse weights are not supported")
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        del self.model.graph.node[:]
        self.model.graph.node.extend(sort_nodes(model.graph.node, Scope(), "model"))
        self.model = _with_types(self.model)
        graph = self.model.graph
        self.nodes = []
        self.weights = {tensor.name: tensor for tensor in graph.initializer}
        for number, node in enumerate(_needed(graph)):
            if (tensor := _constant(node)) is not None:
                self.weights[tensor.name] = tensor
                continue
            # Messages quote it.
            name = node.name if re.fullmatch(r"[\w./:-]+", node.name) else node.op_type
            node.name = f"{name}#{number}"
            self.nodes.append(node)
        self.values = {value.name: value for value in (*graph.value_info, *graph.output, *graph.input)}
        self.producers = {name: node.name for node in self.nodes for name in node.output if name}
        self.returned = [value.name for value in graph.output]
        self.functions = {(each.domain, each.name): each for each in self.model.functions}
        self._check([value.name for value in graph.input])

    def _check(self, inputs: Sequence[str]) -> None:
        """Refuses values that nothing makes."""
        known = {*inputs, *self.weights, *self.producers}
        for node in self.nodes:
            for name in sorted(reads(node) - known):
                raise ModelError(f"{describe(node)}: the input '{name}' is produced by no node")
        for name in self.returned:
            if name not in known:
                raise ModelError(f"the output '{name}' is produced by no node")

    def _inner(self, node: Any, depth: int = 0) -> set[str]:
        """The names and operators of the nodes that a call of a function consists of."""
        function = self.functions.get((node.domain, node.op_type))
        if function is None or depth > _DEPTH:
            return set()
        return {name for each in function.node
                for name in (each.name, each.op_type, *self._inner(each, depth + 1))} - {""}  # fmt: skip

    def quoted(self, error: Exception, nodes: Sequence[Any]) -> dict[str, str]:
        """The nodes that an error is about, with the message; all nodes of an operator that is not supported, and the
        calls of functions that contain one; those that read or make a value of a type that is not supported."""
        texts = [each.message for each in error.diagnostics] if isinstance(error, CompileError) else []
        known = {node.name: node for node in nodes}
        found: dict[str, str] = {}
        for text in texts or [str(error)]:
            names = re.findall(r"'([^' ]+)'", text)[:2]
            for node in (known[name] for name in names if name in known):
                same = nodes if "this op is not supported" in text or "operator set" in text else [node]
                found |= {each.name: text for each in same
                          if (each.op_type, each.domain) == (node.op_type, node.domain)}  # fmt: skip
            if not known.keys() & set(names):
                found |= {node.name: text for node in nodes if self._inner(node) & set(names)}
            for value in re.findall(r"(?:weight|input|output) '([^']+)': the type", text):
                found |= {node.name: text for node in nodes if value in reads(node) or value in node.output}
        return found

    def parts(self, refused: Mapping[str, str]) -> list[tuple[bool, list[Any]]]:
        """The nodes of each part, and whether Saccade is to compile it."""
        numbers: dict[str, int] = {}
        parts: dict[int, list[Any]] = {}
        for node in self.nodes:
            before = [numbers[self.producers[name]] for name in reads(node) if name in self.producers]
            number = max(before, default=0)
            number += number % 2 == (node.name in refused)
            numbers[node.name] = number
            parts.setdefault(number, []).append(node)
        return [(number % 2 == 1, parts[number]) for number in sorted(parts)]

    def _edges(self, nodes: Sequence[Any]) -> tuple[list[str], list[str]]:
        """The values that nodes read from other nodes and from inputs, without weights, and those that others read."""
        own = dict.fromkeys(name for node in nodes for name in node.output if name)
        taken = dict.fromkeys(name for node in nodes for name in sorted(reads(node))
                              if name not in own and name not in self.weights)  # fmt: skip
        names = {node.name for node in nodes}
        outside = {name for node in self.nodes if node.name not in names for name in reads(node)}
        return list(taken), [name for name in own if name in outside or name in self.returned]

    def untyped(self, nodes: Sequence[Any]) -> dict[str, str]:
        """The nodes that read a value from outside whose type or rank is not known."""
        unknown = {name for name in self._edges(nodes)[0] if not _is_typed(self.values.get(name))}
        return {node.name: f"the type and the rank of its input '{name}' are not known"
                for node in nodes for name in sorted(reads(node)) if name in unknown}  # fmt: skip

    def model_of(self, nodes: Sequence[Any], compiled: Any = ()) -> Any:
        """The ModelProto of nodes. `compiled` has the parts whose results have known types."""
        taken, given = self._edges(nodes)
        types = {name: element for each in compiled for name, element in each.elements.items()}
        weights = [self.weights[name] for name in dict.fromkeys(
            name for node in nodes for name in sorted(reads(node))) if name in self.weights]  # fmt: skip
        graph = helper.make_graph(nodes, self.model.graph.name or "part", [self._value(name, types) for name in taken],
                                  [self._value(name, {}) for name in given], weights,
                                  value_info=[self.values[name] for node in nodes for name in node.output
                                              if name in self.values and name not in given])  # fmt: skip
        model = helper.make_model(graph, opset_imports=self.model.opset_import, functions=self.model.functions)
        # ONNX Runtime refuses versions that are newer than itself, and most models need none.
        needed = helper.find_min_ir_version_for(self.model.opset_import, ignore_unknown=True)
        model.ir_version = min(self.model.ir_version, max(needed, _IR_VERSION))
        return model

    def _value(self, name: str, types: Mapping[str, str]) -> Any:
        if name in self.values and self.values[name].type.WhichOneof("value"):
            return self.values[name]
        element = next((number for number, mlir in TYPES.items() if mlir == types.get(name)), None)
        return helper.make_tensor_value_info(name, element, None) if element else onnx.ValueInfoProto(name=name)


def _needed(graph: Any) -> list[Any]:
    """The nodes that outputs depend on, of nodes that are sorted."""
    requested, needed = {value.name for value in graph.output}, []
    for node in reversed(graph.node):
        if requested.intersection(node.output):
            requested |= reads(node)
            needed.append(node)
    return needed[::-1]


def _with_types(model: Any) -> Any:
    """The model with the types of its values, as far as they can be inferred."""
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    if all(each.domain in ("", "ai.onnx", "ai.onnx.ml") for each in model.opset_import):
        return inferred
    try:
        from onnxruntime.tools.symbolic_shape_infer import SymbolicShapeInference

        # The steps of its `infer_shapes`, which writes the model to the working directory if types are left.
        inference = SymbolicShapeInference(2**31 - 1, True, False, 0)
        inference._preprocess(inferred)
        while inference.run_:
            inference._infer_impl()
        inference._update_output_from_vi()
        return inference.out_mp_
    except Exception:  # it needs sympy, and gives up at operators that it does not know
        return inferred


def _is_typed(value: Any) -> bool:
    if value is None or value.type.WhichOneof("value") != "tensor_type":
        return False
    tensor = value.type.tensor_type
    return tensor.elem_type in TYPES and tensor.HasField("shape")


def _constant(node: Any) -> Any:
    """The tensor of a Constant node; None for other nodes, and for strings and sparse tensors."""
    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    attribute, name = node.attribute[0], node.output[0]
    if attribute.name == "value":
        tensor = onnx.TensorProto()
        tensor.CopyFrom(attribute.t)
        tensor.name = name
        return tensor
    kinds = {"value_float": (1, [attribute.f], []), "value_int": (7, [attribute.i], []),
             "value_floats": (1, attribute.floats, [len(attribute.floats)]),
             "value_ints": (7, attribute.ints, [len(attribute.ints)])}  # fmt: skip
    if attribute.name not in kinds:
        return None
    element, values, dims = kinds[attribute.name]
    return helper.make_tensor(name, element, dims, values)


def _why_not(nodes: Sequence[Any], smallest: int) -> dict[str, str]:
    if sum(node.op_type not in _SHAPES for node in nodes) >= smallest:
        return {}
    return dict.fromkeys((node.name for node in nodes), "the part is too small to be worth a call")


def _session(part: Any, outputs: Sequence[str]) -> Callable[[Sequence[Any]], Sequence[Any]]:
    """Runs a part by ONNX Runtime on the CPU."""
    try:
        import onnxruntime
    except ImportError:
        names = ", ".join(dict.fromkeys(node.op_type for node in part.graph.node))
        raise ImportError(f"{names}: ONNX Runtime is to run what Saccade does not support, and is not installed: "
                          "pip install onnxruntime") from None  # fmt: skip
    for value in (*part.graph.input, *part.graph.output):
        if value.type.tensor_type.elem_type in _NOT_IN_NUMPY:
            element = type_name(value.type.tensor_type.elem_type)
            raise ModelError(f"'{value.name}' is a value of {element} between Saccade and ONNX Runtime, whose arrays "
                             "have no such type")  # fmt: skip
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # Products with dequantized weights in float, as the operators say. The runtime rounds the other operand to 8 bits.
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    try:
        session = onnxruntime.InferenceSession(part.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # classes of their own for each kind of error
        raise ModelError(f"ONNX Runtime: {error}") from None
    inputs = [value.name for value in part.graph.input]

    def run(arrays: Sequence[Any]) -> Sequence[Any]:
        try:
            results: Sequence[Any] = session.run(list(outputs), dict(zip(inputs, arrays)))
        except Exception as error:
            raise ValueError(f"ONNX Runtime: {error}") from None
        return results

    return run
