"""Translates a ModelProto to the text of a program: one op in generic form per node, and nothing is computed.

Model functions are inlined. Subgraphs become regions, which can use the values of enclosing graphs. The locations of
ops contain node names and the file, so the compiler's diagnostics name them.
"""

from __future__ import annotations

import os
import re
from typing import Any

from saccade._graph import SMALL, Program, Tensor, Value, Writer, tensor_type
from saccade._text import Names, Scope, declare, float_attribute, quote
from saccade.onnx.errors import ModelError
from saccade.onnx.order import codes_of, describe, sort_nodes
from saccade.onnx.tensors import TYPES, read_tensor, type_name

OPSETS = {"": (7, 28), "ai.onnx.preview": (1, 1), "com.microsoft": (1, 1)}
"""The supported versions of operator sets, first and last."""

_DOMAINS = {"": "", "ai.onnx": "", "ai.onnx.preview": "preview.", "com.microsoft": "microsoft."}
_UNKNOWN = "!onnx.value"
_DEPTH = 50  # nesting of functions and subgraphs
_CALLS = 100_000  # bounds the expansion of nested function calls


def read(path: str | os.PathLike[str]) -> Program:
    """Reads a model file. Raises ModelError for an invalid or unsupported model, OSError if the file cannot be read."""
    model, folder = parse(path)
    return read_model(model, os.fspath(path), folder)


def parse(path: str | os.PathLike[str]) -> tuple[Any, str]:
    """The ModelProto of a file, without external data, and the folder of such data. Raises ModelError and OSError."""
    path = os.fspath(path)
    with open(path, "rb") as file:
        data = file.read()
    import onnx
    from google.protobuf.message import DecodeError

    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except (DecodeError, RecursionError) as error:
        raise ModelError(f"{path}: not an ONNX model, or truncated: {error}") from None
    return model, os.path.dirname(path) or "."


def read_model(model: Any, name: str = "model.onnx", folder: str | None = None) -> Program:
    """The program of a ModelProto. `name` is the file in diagnostics, `folder` contains the external data. Raises
    ModelError."""
    if not _is_text(model):
        raise ModelError(f"{name}: a name is not UTF-8")
    return _Reader(model, name, folder).program()


class _Reader:
    def __init__(self, model: Any, name: str, folder: str | None):
        self.model, self.name, self.folder = model, name, folder
        self.functions = {(function.domain, function.name): function for function in model.functions}
        self.out = Writer(name)
        self.depth = self.entered = 0
        self.where = ""  # the current node
        self.versions: dict[str, int] = {}  # of the current function
        self.version = OPSETS[""][1]
        # Large constants of nodes are added to these: weights, argument names and the arguments' text.
        self._constants: list[tuple[Value, Tensor]] = []
        self._names = Names()
        self._arguments: list[str] = []
        self._declared: dict[str, Any] = {}

    def error(self, message: str) -> ModelError:
        return ModelError(f"{self.name}: {self.where}{': ' if self.where else ''}{message}")

    def program(self) -> Program:
        if not self.model.HasField("graph"):
            raise self.error("the model has no graph")
        self.versions = self._opsets(self.model.opset_import)
        self.version = self.versions.get("", OPSETS[""][1])
        graph = self.model.graph
        weights = self._initializers(graph)
        scope, arguments, names = Scope(), [], Names()
        inputs, bound = [], []
        for value in graph.input:
            if value.name in weights:
                continue
            read = self._value(value, names, must_have_rank=True)
            if value.name in scope.values:
                raise self.error(f"two inputs are called '{value.name}'")
            inputs.append(read)
            type = tensor_type(read.element, read.shape or ())
            scope.values[value.name] = (f"%{read.argument}", type)
            dims = value.type.tensor_type.shape.dim
            names_of_dims = [dim.dim_param if not dim.HasField("dim_value") else "" for dim in dims]
            arguments.append(declare(read.argument, type, names_of_dims))
        for name, tensor in weights.items():
            if tensor.count <= SMALL:
                scope.values[name] = self.out.constant(tensor)
                continue
            weight = Value(name, names.unique(name or "weight"), tensor.element, tensor.shape)
            bound.append((weight, tensor))
            scope.values[name] = (f"%{weight.argument}", tensor.type)
            arguments.append(f"%{weight.argument}: {tensor.type} {{attn.constant}}")
        self._constants, self._names, self._arguments = bound, names, arguments
        self._declared = {value.name: value for value in graph.value_info}
        self._declared.update({value.name: value for value in graph.output})
        self._nodes(graph.node, scope, graph.name)
        outputs, returned = [], []
        for value in graph.output:
            if (found := scope.values.get(value.name)) is None:
                raise self.error(f"the output '{value.name}' is produced by no node")
            outputs.append(self._value(value, Names(), must_have_rank=False))
            declared = self._type_of(value.name)
            if found[1] != declared:
                found = (self.out.emit("onnx.Identity", [found], [declared], "", f"output '{value.name}'"), declared)
            returned.append(found)
        self.where = ""
        if not outputs:
            raise self.error("the graph has no output")
        text = self.out.function(arguments, returned, f"onnx.opset = {self.version} : i64")
        return Program(text, inputs, bound, outputs)

    # --- what stands in front of the nodes ---------------------------------------------------------------------------

    def _opsets(self, imports: Any) -> dict[str, int]:
        versions: dict[str, int] = {}
        for entry in imports:
            domain = "" if entry.domain == "ai.onnx" else entry.domain
            first, last = OPSETS.get(domain, (entry.version, entry.version))
            if not first <= entry.version <= last:
                raise self.error(f"version {entry.version} of the operator set '{domain or 'ai.onnx'}' is not "
                                 f"supported, expected {first} to {last}")
            versions[domain] = entry.version
        if not versions:
            raise self.error("the model does not say which operator set it is written in")
        return versions

    def _initializers(self, graph: Any) -> dict[str, Tensor]:
        if graph.sparse_initializer:
            raise self.error("sparse weights are not supported")
        weights: dict[str, Tensor] = {}
        codes = codes_of(graph)
        for proto in graph.initializer:
            if proto.name in weights:
                raise self.error(f"two weights are called '{proto.name}'")
            weights[proto.name] = read_tensor(proto, self.folder, f"{self.name}: weight '{proto.name}'",
                                              as_bytes=proto.name in codes)
        return weights

    def _value(self, value: Any, names: Names, must_have_rank: bool) -> Value:
        kind = value.type.WhichOneof("value")
        what = "input" if must_have_rank else "output"
        if kind not in ("tensor_type", None) or (kind is None and must_have_rank):
            raise self.error(f"{what} '{value.name}' is a {kind or 'value without a type'}, expected a tensor")
        tensor = value.type.tensor_type
        if tensor.elem_type not in TYPES and (must_have_rank or tensor.elem_type):
            raise self.error(f"{what} '{value.name}': the type {type_name(tensor.elem_type)} is not supported")
        shape = None
        if tensor.HasField("shape"):
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
            if any(extent is not None and extent < 0 for extent in shape):
                raise self.error(f"{what} '{value.name}' has the shape {list(shape)}")
        elif must_have_rank:
            raise self.error(f"{what} '{value.name}' has no shape, expected its number of dimensions at least")
        return Value(value.name, names.unique(value.name), TYPES.get(tensor.elem_type, ""), shape)

    def _type_of(self, name: str) -> str:
        """The declared type of a value; unknown if it is incomplete."""
        if (value := self._declared.get(name)) is not None and value.type.WhichOneof("value") == "tensor_type":
            tensor = value.type.tensor_type
            if tensor.elem_type in TYPES and tensor.HasField("shape"):
                shape = tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim)
                if all(extent is None or extent >= 0 for extent in shape):
                    return tensor_type(TYPES[tensor.elem_type], shape)
        return _UNKNOWN

    # --- nodes -------------------------------------------------------------------------------------------------------

    def _nodes(self, nodes: Any, scope: Scope, graph: str, given: dict[str, Any] | None = None) -> None:
        """Writes nodes in topological order."""
        for node in sort_nodes(nodes, scope, self.name):
            before, self.where = self.where, describe(node)
            try:
                self._node(node, scope, given or {})
            finally:
                self.where = before

    def _node(self, node: Any, scope: Scope, given: dict[str, Any]) -> None:
        if node.op_type == "Constant" and node.domain in ("", "ai.onnx"):
            scope.values[node.output[0]] = self._literal(node, given)
            return
        operands = []
        for name in node.input:
            found = scope.find(name) if name else self._missing()
            if found is None:
                raise self.error(f"the input '{name}' is produced by no node")
            operands.append(found)
        if (function := self.functions.get((node.domain, node.op_type))) is not None:
            self._call(function, node, operands, scope, given)
            return
        domain = _DOMAINS.get(node.domain)
        if domain is None:
            raise self.error(f"the operator set '{node.domain}' is not known")
        if not re.fullmatch(r"[A-Za-z]\w*", node.op_type) or node.op_type in ("NoValue", "Return"):
            raise self.error("this is no operator")
        attributes, regions, names = [], [], []
        for attribute in node.attribute:
            actual = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
            if actual is None:
                continue  # an optional attribute that the caller omits
            if actual.type == 5:
                regions.append(self._region(actual.g, scope))
                names.append(attribute.name)
            else:
                attributes.append(f"{quote(attribute.name)} = {self._attribute(attribute.name, actual)}")
        if names:
            attributes.append(f"regions = [{', '.join(quote(name) for name in names)}]")
        if (version := self.versions.get("", self.version)) != self.version:
            attributes.append(f"onnx.opset = {version} : i64")  # a model function may use another version
        types = [self._type_of(name) if scope.parent is None and name else _UNKNOWN for name in node.output]
        rest = (f" ({', '.join(regions)})" if regions else "") + (f" {{{', '.join(attributes)}}}" if attributes else "")
        first = self.out.emit(f"onnx.{domain}{node.op_type}", operands, types, rest, node.name or node.op_type)
        for i, (name, type) in enumerate(zip(node.output, types)):
            if not name:
                continue
            if name in scope.values:
                raise self.error(f"the output '{name}' is there already")
            scope.values[name] = (f"{first}#{i}" if len(types) > 1 else first, type)

    def _missing(self) -> tuple[str, str]:
        return self.out.emit("onnx.NoValue", [], ["none"], "", "missing"), "none"

    def _literal(self, node: Any, given: dict[str, Any]) -> tuple[str, str]:
        """The value of a Constant node: a constant of the program, or an argument if it is large."""
        if len(node.attribute) != 1 or len(node.output) != 1:
            raise self.error(f"found {len(node.attribute)} attributes and {len(node.output)} outputs, "
                             "expected one of each")
        attribute = node.attribute[0]
        name = attribute.name
        attribute = given.get(attribute.ref_attr_name) if attribute.ref_attr_name else attribute
        if attribute is None:
            raise self.error("the function is called without this constant")
        import onnx

        where = f"{self.name}: {self.where}"
        if name == "value":
            tensor = read_tensor(attribute.t, self.folder, where)
        elif name in ("value_float", "value_int", "value_floats", "value_ints"):
            proto = onnx.TensorProto(data_type=1 if "float" in name else 7)
            values = {"value_float": [attribute.f], "value_int": [attribute.i], "value_floats": attribute.floats,
                      "value_ints": attribute.ints}[name]
            (proto.float_data if "float" in name else proto.int64_data).extend(values)
            proto.dims.extend([len(values)] if name.endswith("s") else [])
            tensor = read_tensor(proto, self.folder, where)
        else:
            raise self.error(f"constants by '{name}' are not supported")
        if tensor.count <= SMALL or self.depth:
            return self.out.constant(tensor)
        weight = Value(node.output[0], self._names.unique(node.output[0] or "constant"), tensor.element, tensor.shape)
        self._constants.append((weight, tensor))
        self._arguments.append(f"%{weight.argument}: {tensor.type} {{attn.constant}}")
        return f"%{weight.argument}", tensor.type

    def _call(self, function: Any, node: Any, operands: list[tuple[str, str]], scope: Scope,
              given: dict[str, Any]) -> None:
        """Inlines a function."""
        self._enter()
        attributes = {each.name: each for each in function.attribute_proto}
        for each in node.attribute:
            actual = given.get(each.ref_attr_name) if each.ref_attr_name else each
            if actual is not None:
                attributes[each.name] = actual
        if len(operands) > len(function.input):
            raise self.error(f"found {len(operands)} inputs, the function has {len(function.input)}")
        inner = Scope()
        inner.parent = Scope()  # types declared in the main graph do not apply here
        operands = operands + [self._missing() for _ in function.input[len(operands):]]
        inner.values.update(zip(function.input, operands))
        before = self.versions
        if function.opset_import:
            self.versions = self._opsets(function.opset_import)
        self._nodes(function.node, inner, function.name, attributes)
        self.versions = before
        for outer, name in zip(node.output, function.output):
            if (found := inner.values.get(name)) is None:
                raise self.error(f"the output '{name}' of the function is produced by no node")
            if outer:
                scope.values[outer] = found
        self.depth -= 1

    def _region(self, graph: Any, scope: Scope) -> str:
        """A subgraph as a region; its inputs are block arguments."""
        self._enter()
        inner, outer, self.out.lines = Scope(scope), self.out.lines, []
        arguments = []
        for value in graph.input:
            name = self.out.name("arg")
            inner.values[value.name] = (name, _UNKNOWN)
            arguments.append(f"{name}: {_UNKNOWN}")
        for name, tensor in self._initializers(graph).items():
            inner.values[name] = self.out.constant(tensor)
        self._nodes(graph.node, inner, graph.name)
        results = []
        for value in graph.output:
            if (found := inner.find(value.name)) is None:
                raise self.error(f"the output '{value.name}' of the subgraph is produced by no node")
            results.append(found)
        self.out.lines.append(f"\"onnx.Return\"({', '.join(value for value, _ in results)}) : "
                              f"({', '.join(type for _, type in results)}) -> ()")
        lines, self.out.lines = self.out.lines, outer
        self.depth -= 1
        body = "\n".join(f"    {line}" for line in lines)
        return f"{{\n  ^bb0({', '.join(arguments)}):\n{body}\n  }}"

    def _enter(self) -> None:
        self.depth += 1
        if self.depth > _DEPTH:
            raise self.error(f"functions or subgraphs are nested more than {_DEPTH} deep")
        self.entered += 1
        if self.entered > _CALLS:
            raise self.error(f"more than {_CALLS:,} calls of functions and subgraphs")

    def _attribute(self, name: str, attribute: Any) -> str:
        kind = attribute.type
        if kind == 1:
            return float_attribute(attribute.f)
        if kind == 2:
            return f"{attribute.i} : i64"
        if kind == 3:
            return quote(attribute.s)
        if kind == 4:
            return read_tensor(attribute.t, self.folder, f"{self.name}: {self.where}: '{name}'").dense()
        if kind == 6:
            return f"[{', '.join(float_attribute(each) for each in attribute.floats)}]"
        if kind == 7:
            return f"[{', '.join(str(each) for each in attribute.ints)}]"
        if kind == 8:
            return f"[{', '.join(quote(each) for each in attribute.strings)}]"
        raise self.error(f"the attribute '{name}' is of a kind that is not supported")


def _is_text(message: Any) -> bool:
    """Whether all strings of a message are valid UTF-8; this version of protocol buffers returns bytes for invalid
    ones."""
    for field, value in message.ListFields():
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            is_text = all(map(_is_text, value if hasattr(value, "__len__") else [value]))
        elif field.type == field.TYPE_STRING:
            is_text = all(isinstance(each, str) for each in ([value] if isinstance(value, (str, bytes)) else value))
        else:
            continue
        if not is_text:
            return False
    return True
