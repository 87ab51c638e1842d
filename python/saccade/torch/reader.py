"""Translates an exported program to the text of a program: one op in generic form per node, and nothing is computed.

The locations of ops contain node names and Python source lines, so the compiler's diagnostics name them.
"""

from __future__ import annotations

import copy
import operator
import os
import re
import struct
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument, TensorArgument

from saccade._graph import ELEMENTS as STORABLE
from saccade._graph import SMALL, Value, Writer, tensor_type
from saccade._text import Names, declare, quote
from saccade.torch.errors import ExportError
from saccade.torch.extents import Extents
from saccade.torch.operators import ALIASES, decompositions, is_known
from saccade.torch.program import COMPLEX, ELEMENTS, Program, Result, Weight
from saccade.torch.updates import is_update, read_update

_UNKNOWN = "!torch.value"
_SIZE = "tensor<i64>"
_STATISTICS = {"running_mean", "running_var", "num_batches_tracked"}  # buffers of batch norms

# Functions on symbolic sizes.
_ON_SIZES = {operator.add: "add", operator.sub: "sub", operator.mul: "mul", operator.floordiv: "floordiv",
             operator.mod: "mod", operator.neg: "neg", torch.sym_max: "max", torch.sym_min: "min"}

# Arguments about memory, devices and gradients, which do not affect results.
_IGNORED = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "copy", "generator", "implicit",
            "cudnn_enable", "cudnn_enabled", "padding_idx", "scale_grad_by_freq", "sparse", "sparse_grad"}


def load(path: str | os.PathLike[str]) -> ExportedProgram:
    """Loads a file of `torch.export.save`. Raises ExportError for any other file, OSError if it cannot be read."""
    path = os.fspath(path)
    with open(path, "rb"):
        pass
    try:
        return torch.export.load(path)
    except Exception as error:  # the loader raises arbitrary exceptions for invalid files
        raise ExportError(f"{path}: not an exported program, or truncated: {error}") from None


def read(exported: ExportedProgram, name: str = "exported program") -> Program:
    """The program of an exported module. PyTorch first decomposes ops that write to their operands, higher-order ops,
    and operators that the compiler does not support; this runs no op on data. `name` is the file in diagnostics of
    nodes without a source line. Raises ExportError."""
    if not isinstance(exported, ExportedProgram):
        raise TypeError(f"found a {type(exported).__name__}, expected a torch.export.ExportedProgram")
    if any(node.target is torch.ops.higher_order.flex_attention for node in exported.graph.nodes):
        exported = _with_flex(exported)
    if not _is_functional(exported):
        exported = exported.run_decompositions({})
    if not all(is_known(node.target) for node in exported.graph.nodes if node.op == "call_function"):
        exported = exported.run_decompositions(decompositions())
    return _Reader(exported, name).program()


def read_graph(exported: Any, name: str) -> Program:
    """The program of a graph of aten operators without effects, given with the attributes of an exported program that
    describe its inputs and outputs. Raises ExportError."""
    return _Reader(exported, name).program()


def _with_flex(exported: ExportedProgram) -> ExportedProgram:
    """The program with the operator `saccade::attention` in place of flex_attention."""
    from saccade.torch.rewriting import replace_attention  # imported late: it imports the compiler of functions

    exported = copy.deepcopy(exported)
    for node in reversed(list(exported.graph.nodes)):
        if node.target is operator.getitem and not node.users:  # a result that is not read
            exported.graph.erase_node(node)
    _, kept = replace_attention(exported.graph_module, only_flex=True)
    for node, reason in kept:
        file, line = _place(node) or ("exported program", 0)
        raise ExportError(f"{file}:{line}: node '{node.name}' (flex_attention): {reason}")
    last = next(node for node in reversed(exported.graph.nodes) if node.op == "output")
    for given, node in zip(exported.graph_signature.output_specs, last.args[0]):
        if isinstance(given.arg, TensorArgument) and isinstance(node, torch.fx.Node):
            given.arg = TensorArgument(name=node.name)
    return exported.run_decompositions({})


def _is_statistic(node: Any) -> bool:
    """Whether an input is a mean or variance of batch norm, whose training changes no version of the tensor."""
    norm = torch.ops.aten._native_batch_norm_legit_no_training.default
    return any(user.target is norm and node in user.args[3:5] for user in node.users)


def _is_functional(exported: ExportedProgram) -> bool:
    """Whether no node writes to elements of its operands or is a higher-order op. (Caches of Transformers use `detach_`
    on constants of submodules, and PyTorch 2.13 mixes up such constants when it decomposes the program.)"""
    for node in exported.graph.nodes:
        if node.op == "get_attr" or isinstance(node.target, torch._ops.HigherOrderOperator):
            return False
        schema = node.target._schema if isinstance(node.target, torch._ops.OpOverload) else None
        if schema is not None and schema.is_mutable and schema.name.partition("::")[2] not in ALIASES:
            return False
    return True


class _Reader:
    def __init__(self, exported: ExportedProgram, name: str):
        self.exported, self.name = exported, name
        self.out = Writer(name)
        self.values: dict[Any, tuple[str, str]] = {}  # results of nodes
        self.parts: dict[Any, list[tuple[str, str]]] = {}  # results of multi-result nodes
        self.inputs: list[Value] = []
        self.weights: list[tuple[Value, Weight]] = []
        self.arguments: list[tuple[str, str, list[str]]] = []  # name, type and names of open extents
        self.updated: dict[str, int] = {}  # the results that update inputs, by the name in the program
        self.weight_arguments: list[str] = []
        self.constants: dict[str, torch.Tensor] = {}
        self.complex_inputs: set[int] = set()
        self.names = Names()
        self.extents = Extents([])

    def error(self, message: str, node: Any = None) -> ExportError:
        if node is None:
            return ExportError(f"{self.name}: {message}")
        file, line = _place(node) or (self.name, 0)
        return ExportError(f"{file}:{line}: node '{node.name}' ({node.target}): {message}")

    def program(self) -> Program:
        signature, spec = self.exported.graph_signature, self.exported.call_spec
        placeholders = [node for node in self.exported.graph.nodes if node.op == "placeholder"]
        fixed = self._read_inputs(signature.input_specs, placeholders)
        self._declare_inputs(placeholders)
        for node in self._needed():
            self._node(node)
        returned: list[Any] = []
        results: list[tuple[str, str]] = []
        outputs: list[Value] = []
        last = next(node for node in reversed(self.exported.graph.nodes) if node.op == "output")
        named = {node.name: node for node in placeholders}
        for given, node in zip(signature.output_specs, last.args[0]):
            if given.kind == OutputKind.USER_INPUT_MUTATION:
                name, own_type = self.values[named[given.target]]
                self.updated[name.removeprefix("%")] = len(results)
                results.append((self._alias(node, last, own_type, given.target), own_type))
                continue
            if given.kind != OutputKind.USER_OUTPUT:
                target = given.target or given.arg.name
                advice = ("call eval() on the module, whose batch norm updates its statistics in training mode"
                          if target.rpartition(".")[2] in _STATISTICS else "pass it as an argument")  # fmt: skip
                raise self.error(f"the module mutates '{target}', which is not supported: {advice}")
            if isinstance(given.arg, ConstantArgument):
                returned.append(given.arg.value)
                continue
            if not isinstance(given.arg, TensorArgument):
                raise self.error(f"the module returns a {type(given.arg).__name__}, expected tensors", node)
            element, shape = self._meta(node)
            returned.append(Result(len(results)))
            result_type = tensor_type(element, shape)
            results.append((self._alias(node, last, result_type, f"output {len(results)}"), result_type))
            outputs.append(Value(given.arg.name, "", element, shape))
        if not results:
            raise self.error("the module returns no tensor")
        arguments = [declare(name, type, extents, self.updated.get(name)) for name, type, extents in self.arguments]
        text = self.out.function(arguments + self.weight_arguments, results)
        return Program(text, self.inputs, self.weights, outputs, spec.in_spec, spec.out_spec, fixed,
                       self.exported.graph, returned, self.constants, frozenset(self.complex_inputs))

    def _alias(self, node: Any, user: Any, type: str, name: str) -> str:
        """A value as a result of @main. It has a single type in the graph; the alias has the type of the export."""
        return self.out.emit("torch.aten.alias", [self._operand(node, user)], [type], ' {arguments = ["self"]}', name)

    # --- inputs and weights ------------------------------------------------------------------------------------------

    def _read_inputs(self, specs: Any, placeholders: list[Any]) -> dict[int, Any]:
        """Writes the arguments of @main; returns the inputs that are not tensors."""
        fixed: dict[int, Any] = {}
        count = 0
        for given, node in zip(specs, placeholders):
            if given.kind == InputKind.USER_INPUT:
                if isinstance(given.arg, ConstantArgument):
                    fixed[count] = given.arg.value
                else:
                    self._input(node, given.arg)
                count += 1
            elif given.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR):
                self._weight(node, given)
            else:
                raise self.error(f"inputs of the kind {given.kind.name} are not supported", node)
        return fixed

    def _input(self, node: Any, argument: Any) -> None:
        name = self.names.unique(node.name)
        if isinstance(argument, SymIntArgument):
            self.inputs.append(Value(node.name, name, "index", None))
            self.arguments.append((name, "index", []))
            number, size = self.out.name(), self.out.name()
            self.out.lines += [f"{number} = arith.index_cast %{name} : index to i64",
                               f"{size} = tensor.from_elements {number} : {_SIZE}"]
            self.values[node] = (size, _SIZE)
            return
        if not isinstance(argument, TensorArgument):
            raise self.error(f"an input is a {type(argument).__name__}, expected a tensor", node)
        is_complex = node.meta["val"].dtype in COMPLEX
        element, shape = self._meta(node, with_complex=True)
        open_extents = [str(extent) if not isinstance(extent, int) else "" for extent in node.meta["val"].shape]
        if is_complex:
            self.complex_inputs.add(len(self.inputs))
            open_extents.append("")
        self.inputs.append(Value(node.name, name, element, shape))
        type_ = tensor_type(element, shape)
        self.arguments.append((name, type_, open_extents))
        self.values[node] = (f"%{name}", type_)
        if is_complex:
            self.values[node] = self._joined(self.values[node], node.name)

    def _declare_inputs(self, placeholders: list[Any]) -> None:
        """Declares extents of inputs that follow from those of others."""
        shapes = {node: node.meta["val"].shape for node in placeholders
                  if node in self.values and isinstance(node.meta["val"], torch.Tensor)}
        self.extents = Extents([x for shape in shapes.values() for x in shape if not isinstance(x, int)])
        for node, shape in shapes.items():
            if self.extents.is_derived(shape):
                rest = f' {{arguments = ["self"], extents = {self.extents.attribute([node.meta["val"]])}}}'
                given = self.out.emit("torch.aten.alias", [self.values[node]], [_UNKNOWN], rest, node.name)
                self.values[node] = given, _UNKNOWN

    def _weight(self, node: Any, given: Any) -> None:
        tensor = self.exported.state_dict.get(given.target)
        if tensor is None:
            tensor = self.exported.constants.get(given.target)
        if not isinstance(tensor, torch.Tensor) or tensor.device.type != "cpu" or tensor.layout != torch.strided:
            place = getattr(tensor, "device", None)
            raise self.error(f"the weight '{given.target}' is on {place}, expected a dense tensor on cpu")
        is_complex = tensor.dtype in COMPLEX
        if is_complex:
            self.constants[given.target] = tensor
            tensor = torch.view_as_real(tensor.resolve_conj())
        if ELEMENTS.get(tensor.dtype) not in STORABLE:
            raise self.error(f"the weight '{given.target}': the type {tensor.dtype} is not supported")
        weight = Weight(tensor)
        if given.kind != InputKind.PARAMETER and tensor.numel() <= SMALL and not _is_statistic(node):
            self.constants.setdefault(given.target, tensor)
            self.values[node] = self.out.constant(weight.stored)
            if is_complex:
                self.values[node] = self._joined(self.values[node], node.name)
            return
        value = Value(given.target, self.names.unique(given.target), ELEMENTS[tensor.dtype], tuple(tensor.shape))
        type = tensor_type(value.element, tensor.shape)
        self.weights.append((value, weight))
        self.weight_arguments.append(f"%{value.argument}: {type} {{attn.constant}}")
        self.values[node] = (f"%{value.argument}", type)
        if is_complex:
            self.values[node] = self._joined(self.values[node], node.name)

    def _joined(self, parts: tuple[str, str], name: str) -> tuple[str, str]:
        """The complex tensor whose parts are the last dimension of a value."""
        rest = ' {arguments = ["self"]}'
        return self.out.emit("torch.aten.view_as_complex", [parts], [_UNKNOWN], rest, name), _UNKNOWN

    def _meta(self, node: Any, with_complex: bool = False) -> tuple[str, tuple[int | None, ...]]:
        """The element type and shape at the export; None for a dynamic extent. Parts of complex elements are a last
        dimension."""
        value = node.meta["val"]
        if with_complex and value.dtype in COMPLEX:
            parts = tuple(extent if isinstance(extent, int) else None for extent in value.shape)
            return ELEMENTS[COMPLEX[value.dtype]], (*parts, 2)
        if value.dtype not in ELEMENTS:
            raise self.error(f"the type {value.dtype} is not supported", node)
        return ELEMENTS[value.dtype], tuple(extent if isinstance(extent, int) else None for extent in value.shape)

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _needed(self) -> list[Any]:
        """The nodes that outputs depend on, in order; assertions on sizes and types are dropped."""
        last = next(node for node in reversed(self.exported.graph.nodes) if node.op == "output")
        needed, todo = set(), list(last.all_input_nodes)
        while todo:
            node = todo.pop()
            if node not in needed:
                needed.add(node)
                todo += node.all_input_nodes
        return [node for node in self.exported.graph.nodes if node in needed and node.op != "placeholder"]

    def _node(self, node: Any) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            self.values[node] = self.parts[source][index] if source in self.parts else self.values[source]
            return
        places: list[int] | None = None
        if is_update(node):
            try:
                operator_, given_arguments, places = read_update(node)
            except ValueError as error:
                raise self.error(str(error), node) from None
            op = f"torch.{operator_._schema.name.replace('::', '.')}"
            arguments = list(given_arguments.items())
            results = [_UNKNOWN] * (len(operator_._schema.returns) + len(places))
        elif node.target in _ON_SIZES:
            arguments = list(zip(("self", "other"), node.args))
            op, results = f"torch.sym.{_ON_SIZES[node.target]}", [_SIZE]
        elif isinstance(node.target, torch._ops.OpOverload):
            schema = node.target._schema
            namespace, _, short = schema.name.partition("::")
            arguments = [(each.name, node.kwargs.get(each.name, node.args[i] if i < len(node.args) else None))
                         for i, each in enumerate(schema.arguments)]
            op = f"torch.{namespace}.{ALIASES.get(short, short)}"
            if short == "as_strided":  # the program has no strides, so they become attributes
                source = node.args[0].meta["val"]
                arguments += [("self_stride", source.stride()), ("self_offset", source.storage_offset())]
            value = node.meta.get("val")
            results = [_UNKNOWN] * len(value) if isinstance(value, (list, tuple)) else [_UNKNOWN]
        else:
            raise self.error("this is not an operator of torch's library", node)
        names, operands, attributes = [], [], []
        for name, value in arguments:
            if value is None or (name in _IGNORED and not op.startswith("torch.saccade.")):
                continue
            given, attribute = self._argument(name, value, node)
            names += [quote(name)] * len(given)
            operands += given
            if attribute:
                attributes.append(f"{quote(name)} = {attribute}")
        attributes.insert(0, f"arguments = [{', '.join(names)}]")
        value = node.meta.get("val")
        declared = self.extents.attribute(value if isinstance(value, (list, tuple)) else [value])
        if declared and places is None and _UNKNOWN in results:
            attributes.append(f"extents = {declared}")
        first = self.out.emit(op, operands, results, f" {{{', '.join(attributes)}}}", node.name, _place(node))
        if len(results) == 1:
            self.values[node] = (first, results[0])
            self.parts[node] = [(first, results[0])]
        else:
            self.parts[node] = [(f"{first}#{i}", type) for i, type in enumerate(results)]
        if places is not None:
            returned = self.parts[node][: len(results) - len(places)]
            updated = dict(zip(places, self.parts[node][len(returned):]))
            self.parts[node] = (returned or [("", "none")]) + [updated[place] for place in sorted(updated)]

    def _argument(self, name: str, value: Any, node: Any) -> tuple[list[tuple[str, str]], str]:
        """The operands and the attribute for an argument."""
        if isinstance(value, torch.fx.Node):
            return [self._operand(value, node)], ""
        if not isinstance(value, (list, tuple)):
            return [], self._attribute(name, value, node)
        nodes = [each for each in value if isinstance(each, torch.fx.Node)]
        # A list of tensors with optional None, or a list of integers with optional sizes.
        if nodes and isinstance(nodes[0].meta.get("val"), torch.Tensor):
            return [self._operand(each, node) if each is not None else self._missing() for each in value], ""
        numbers = ["unit" if isinstance(each, torch.fx.Node) else self._attribute(name, each, node) for each in value]
        return [self._operand(each, node) for each in nodes], f"[{', '.join(numbers)}]"

    def _operand(self, value: Any, node: Any) -> tuple[str, str]:
        if value not in self.values:
            raise self.error(f"it reads '{value.name}', which has several results", node)
        return self.values[value]

    def _missing(self) -> tuple[str, str]:
        return self.out.emit("torch.NoValue", [], ["none"], "", "missing"), "none"

    def _attribute(self, name: str, value: Any, node: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return f"{value} : i64"
        if isinstance(value, float):
            return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X} : f64"
        if isinstance(value, str):
            return quote(value)
        if isinstance(value, torch.dtype) and value in ELEMENTS:
            return ELEMENTS[value]
        if isinstance(value, torch.dtype) and value in COMPLEX:
            return f"complex<{ELEMENTS[COMPLEX[value]]}>"
        expected = ""
        if isinstance(value, torch.dtype):
            expected = f": a program has {', '.join(str(each).removeprefix('torch.') for each in ELEMENTS)}"
        raise self.error(f"the argument '{name}' is {value!r:.60}, which is not supported{expected}", node)


def _place(node: Any) -> tuple[str, int] | None:
    """The innermost Python source line that the graph records for a node."""
    lines = re.findall(r'File "([^"]*)", line (\d+)', node.meta.get("stack_trace") or "")
    return (lines[-1][0], int(lines[-1][1])) if lines else None
