"""Mutations of ONNX model files: of bytes, of protobuf fields, or of the graph.

Each mutation takes a random generator, a ModelProto, which it changes, and the folder of the file; it returns the bytes
of the file.
"""

import onnx
from onnx import TensorProto, helper

NUMBERS = [0, 1, -1, 2, 3, 4, 5, 7, 8, 23, 64, 100, -2, -5, 1 << 20, 1 << 31, 1 << 40, (1 << 63) - 1, -(1 << 63)]
HUGE = [1 << 20, 1 << 31, 1 << 40, (1 << 62) + 1, (1 << 63) - 1]


# --- bytes --------------------------------------------------------------------------------------------------------


def change_bytes(rng, data):
    """Changes, deletes, inserts or repeats some bytes of `data`, or truncates it."""
    data = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 8])):
        at = rng.randrange(len(data) or 1)
        kind = rng.randrange(4)
        if kind == 0 and data:
            data[at] = rng.randrange(256)
        elif kind == 1:
            del data[at:at + rng.randrange(1, 20)]
        elif kind == 2:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 8)))
        else:
            data = data[:at] if rng.random() < 0.3 else data[:at] + data[at:at + 30] + data[at:]
    return bytes(data)


def mutate_bytes(rng, model, folder):
    return change_bytes(rng, model.SerializeToString())


def cut(rng, model, folder):
    data = model.SerializeToString()
    return data[:rng.randrange(len(data))]


def flip_bits(rng, model, folder):
    data = bytearray(model.SerializeToString())
    for _ in range(rng.choice([1, 1, 3, 20])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


# --- fields -------------------------------------------------------------------------------------------------------


def fields(message, found):
    """All fields with something in them, down to the leaves: (message, field)."""
    for field, value in message.ListFields():
        found.append((message, field))
        if field.cpp_type == field.CPPTYPE_MESSAGE:
            for each in value if hasattr(value, "__len__") else [value]:
                fields(each, found)
    return found


def mutate_fields(rng, model, folder):
    found = fields(model, [])
    names = [name for node in model.graph.node for name in [*node.input, *node.output]]
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        message, field = rng.choice(found)
        value = getattr(message, field.name)
        is_list = hasattr(value, "__len__") and not isinstance(value, (str, bytes))
        try:
            if is_list and (rng.random() < 0.3 or field.cpp_type == field.CPPTYPE_MESSAGE):
                at = rng.randrange(len(value))
                if rng.random() < 0.5:
                    del value[at]
                elif field.cpp_type == field.CPPTYPE_MESSAGE:
                    value.add().CopyFrom(value[at])
                else:
                    value.append(value[at])
                continue
            if field.cpp_type == field.CPPTYPE_MESSAGE:
                message.ClearField(field.name)
                continue
            if field.type == field.TYPE_STRING:
                new = rng.choice([*names, "", "x y\n\"", "Add", "MatMul", "Reshape", "Attention", "Range", "Squeeze",
                                  "ReduceMax", "ScatterND", "Einsum", "Scan", "Loop"])
            elif field.type == field.TYPE_BYTES:
                new = change_bytes(rng, value[0] if is_list else value)
            elif field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
                new = rng.choice([0.0, -1.0, float("nan"), float("inf"), 1e-30])
            else:
                new = rng.choice(NUMBERS)
            if is_list:
                value[rng.randrange(len(value))] = new
            else:
                setattr(message, field.name, new)
        except (ValueError, TypeError, IndexError):
            pass  # the field does not hold that
    return model.SerializeToString()


def swap_fields(rng, model, folder):
    """The same field of two messages of a kind, one for the other."""
    found = fields(model, [])
    for _ in range(rng.choice([1, 1, 3])):
        message, field = rng.choice(found)
        others = [each for each, one in found if one.full_name == field.full_name and each is not message]
        if not others:
            continue
        other = rng.choice(others)
        copies = [(message, type(message)()), (other, type(message)())]
        copies[0][1].CopyFrom(other)
        copies[1][1].CopyFrom(message)
        for to, source in copies:
            for each, _ in source.ListFields():
                if each.name != field.name:
                    source.ClearField(each.name)
            to.ClearField(field.name)
            to.MergeFrom(source)
    return model.SerializeToString()


# --- graphs -------------------------------------------------------------------------------------------------------


def break_edges(rng, model, folder):
    """An undefined input, an input that is defined later or by the node itself, or a missing node."""
    nodes = model.graph.node
    node = rng.choice(nodes)
    kind = rng.randrange(4)
    if kind == 3 and len(nodes) > 1:
        nodes.remove(node)
    elif node.input:
        later = [name for each in nodes for name in each.output if name]
        node.input[rng.randrange(len(node.input))] = ["nowhere", node.output[0], rng.choice(later)][kind % 3]
    return model.SerializeToString()


def unknown(rng, model, folder):
    """Unknown types, operator sets, domains and operators."""
    kind = rng.randrange(4)
    if kind == 0:
        del model.opset_import[rng.randrange(len(model.opset_import)):]
        model.opset_import.append(helper.make_opsetid(rng.choice(["", "ai.onnx", "com.x"]), rng.choice(NUMBERS)))
    elif kind == 1:
        rng.choice(model.graph.input).type.tensor_type.elem_type = rng.choice([0, 2, 4, 8, 12, 14, 17, 22, 99, -1])
    elif kind == 2:
        domains = ["com.x", "ai.onnx.preview", "com.microsoft", "\0", "a" * 5000]
        rng.choice(model.graph.node).domain = rng.choice(domains)
    else:
        names = ["", "Nope", "func.func", "NoValue", "Return", "a b", "é", "0"]
        rng.choice(model.graph.node).op_type = rng.choice(names)
    return model.SerializeToString()


def external_data(rng, model, folder):
    """External data in a missing or short file, in another folder, or without a location."""
    (folder / "short.bin").write_bytes(b"1234")
    tensors = [*model.graph.initializer] or [model.graph.initializer.add(name="w", data_type=1, dims=[4, 4])]
    tensor = rng.choice(tensors)
    for name in ("raw_data", "float_data", "int64_data"):
        tensor.ClearField(name)
    tensor.data_location = TensorProto.EXTERNAL
    place = rng.choice(["missing.bin", "short.bin", "../short.bin", "/dev/zero", "/etc/passwd", ".", "", "a\0b",
                        "x" * 5000, "model.onnx", "short.bin/x", "./short.bin"])
    tensor.external_data.add(key="location", value=place)
    if rng.random() < 0.6:
        tensor.external_data.add(key="offset", value=rng.choice(["0", "-1", "x", str(1 << 63), "3", "1e3", ""]))
    if rng.random() < 0.6:
        tensor.external_data.add(key="length", value=rng.choice(["4", "-1", "x", str(1 << 63), "0", ""]))
    return model.SerializeToString()


def huge(rng, model, folder):
    """Huge or negative extents and counts."""
    kind, number = rng.randrange(5), rng.choice([*HUGE, -1, -(1 << 63)])
    if kind == 0 and model.graph.initializer:
        tensor = rng.choice(model.graph.initializer)
        tensor.dims[:] = [number] * rng.randrange(1, 4)
        if rng.random() < 0.5:
            tensor.ClearField("raw_data")
    elif kind == 1:
        shape = rng.choice(model.graph.input).type.tensor_type.shape
        if shape.dim:
            rng.choice(shape.dim).dim_value = number
    else:
        extents = [number] * rng.randrange(1, 4)
        nodes = {2: [helper.make_node("ConstantOfShape", ["bomb"], ["y"])],
                 3: [helper.make_node("Expand", [model.graph.input[0].name, "bomb"], ["y"])],
                 4: [helper.make_node("Constant", [], ["b0"], value_int=0),
                     helper.make_node("Constant", [], ["b1"], value_int=1),
                     helper.make_node("Constant", [], ["b2"], value_int=number),
                     helper.make_node("Range", ["b0", "b2", "b1"], ["y"])]}
        del model.graph.node[:]
        model.graph.initializer.append(helper.make_tensor("bomb", TensorProto.INT64, [len(extents)], extents))
        model.graph.node.extend(nodes.get(kind, nodes[2]))
    return model.SerializeToString()


def functions(rng, model, folder):
    """Functions that are recursive, mutually recursive, or expand exponentially."""
    kind, count = rng.randrange(3), rng.choice([2, 5, 30, 60])
    sets = [helper.make_opsetid("own", 1), helper.make_opsetid("", rng.choice([13, 21, 99]) if kind else 21)]
    for i in range(count):
        if kind == 0:
            calls = [helper.make_node(f"f{(i + 1) % count}", ["a"], ["b"], domain="own")]
        elif i == 0:
            calls = [helper.make_node("Neg", ["a"], ["b"])]
        else:
            calls = [helper.make_node(f"f{i - 1}", ["a"], ["c"], domain="own"),
                     helper.make_node(f"f{i - 1}", ["c"] * rng.choice([1, 1, 1, 3]), ["b"], domain="own")]
        model.functions.append(helper.make_function("own", f"f{i}", ["a"], ["b"], calls, sets))
    model.opset_import.append(helper.make_opsetid("own", 1))
    node = rng.choice(model.graph.node)
    node.op_type, node.domain = f"f{count - 1}", "own"
    return model.SerializeToString()


def deep(rng, model, folder):
    """Nested subgraphs, in control flow."""
    graph = helper.make_graph([helper.make_node("Identity", [model.graph.input[0].name], ["z"])], "leaf", [],
                              [onnx.ValueInfoProto(name="z")])
    for i in range(rng.choice([1, 3, 10, 30])):
        op = rng.choice(["If", "If", "Loop", "Scan", "FlexAttention"])
        inputs = {"If": ["yes"], "Loop": ["steps", "yes"], "Scan": [model.graph.input[0].name]}.get(op, ["q", "k", "v"])
        names = {"If": ["then_branch", "else_branch"], "FlexAttention": ["score_mod"]}.get(op, ["body"])
        node = helper.make_node(op, inputs, ["z"], **{names[0]: graph})
        if op == "Scan":
            node.attribute.append(helper.make_attribute("num_scan_inputs", rng.choice([0, 1, 2])))
        graph = helper.make_graph([node], f"g{i}", [onnx.ValueInfoProto(name="a")] * rng.randrange(3),
                                  [onnx.ValueInfoProto(name="z")])
    model.graph.node[-1].CopyFrom(graph.node[0])
    model.graph.node[-1].output[0] = "y"
    model.graph.initializer.append(helper.make_tensor("yes", TensorProto.BOOL, [], [True]))
    steps = rng.choice([0, 2, 64, 1 << 40])
    model.graph.initializer.append(helper.make_tensor("steps", TensorProto.INT64, [], [steps]))
    return model.SerializeToString()


def deepest(rng, model, folder):
    """Nested subgraphs around the recursion limit of protocol buffers."""
    def wrap(field, data):
        size, length = len(data), b""
        while size >= 128:
            length += bytes([size & 127 | 128])
            size >>= 7
        return bytes([field << 3 | 2]) + length + bytes([size]) + data

    data = b""
    for _ in range(rng.choice([32, 33, 34, 100, 3000])):  # node, attribute, graph
        data = wrap(1, wrap(4, b"If") + wrap(5, wrap(1, b"then_branch") + b"\xa0\x01\x05" + wrap(6, data)))
    model.ClearField("graph")
    return model.SerializeToString() + wrap(7, data)


# Mutations of fields reach the deepest code, so they are the most frequent.
MUTATIONS = [mutate_bytes, cut, flip_bits, mutate_fields, mutate_fields, mutate_fields, mutate_fields, swap_fields,
             break_edges, unknown, external_data, huge, functions, deep, deepest]
