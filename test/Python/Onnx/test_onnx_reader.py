"""Models of ONNX are read without computing anything. What is wrong with one is reported with file, node and
operator."""

import itertools
import os
import subprocess
import sys

import pytest

pytest.importorskip("onnx")

import numpy as np
import onnx
from interpreter import interpret
from onnx import TensorProto, helper, numpy_helper

from saccade.onnx import ModelError, read, read_model
from saccade.onnx.reader import OPSETS

RAND = np.random.default_rng(0)
BIG = numpy_helper.from_array(RAND.standard_normal((8, 16)).astype(np.float32), "encoder/weight.0")
SMALL = numpy_helper.from_array(np.array([1.5, np.nan, -0.0, 1e-40], np.float32), "small")
ONES = numpy_helper.from_array(np.ones((8, 16), np.float32), "w")


def value(name, shape=(2, 8), type=TensorProto.FLOAT):
    return helper.make_tensor_value_info(name, type, shape)


def model(nodes, inputs=("x",), outputs=("y",), weights=(), opset=23, functions=()):
    inputs = [each if isinstance(each, onnx.ValueInfoProto) else value(each) for each in inputs]
    outputs = [onnx.ValueInfoProto(name=each) for each in outputs]
    domains = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    graph = helper.make_graph(list(nodes), "graph", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=domains, functions=functions)


def node(op, inputs, outputs, name="a node", **attributes):
    return helper.make_node(op, inputs, outputs, name=name, **attributes)


def product(weight):
    """A model that multiplies x by the weight w."""
    return model([node("MatMul", ["x", "w"], ["y"])], weights=[weight])


GOOD = product(ONES).SerializeToString()


def refused(words, thing, name="model.onnx"):
    with pytest.raises(ModelError) as error:
        read_model(thing, name) if isinstance(thing, onnx.ModelProto) else read(thing)
    for word in words:
        assert word in str(error.value)


# --- What is written.


@pytest.fixture(scope="module")
def written():
    return read_model(model([node("MatMul", ["x", "encoder/weight.0"], ["y"], name="layer/0")], weights=[BIG, SMALL]))


@pytest.mark.parametrize("part", [
    pytest.param("%encoder_weight_0: tensor<8x16xf32> {attn.constant}", id="weight"),
    pytest.param('loc("layer/0"("model.onnx":', id="location"),
    pytest.param("onnx.opset = 23", id="opset"),
    pytest.param("dense<[0x3FC00000, 0x7FC00000, 0x80000000, 0x000116C2]> : tensor<4xf32>", id="small weight"),
])  # fmt: skip
def test_program_has(written, part):
    assert part in written.text


def test_large_weight_stays_beside_the_program(written):
    assert [(weight.name, weight.shape) for weight, _ in written.weights] == [("encoder/weight.0", (8, 16))]
    ((_, tensor),) = written.weights
    assert tensor.data == numpy_helper.to_array(BIG).tobytes()


def test_functions_are_written_where_they_are_called_whatever_the_order_of_nodes():
    function = helper.make_function("own", "Twice", ["a"], ["b"], [
        helper.make_node("Add", ["a", "a"], ["c"]), helper.make_node("LeakyRelu", ["c"], ["b"])],
        [helper.make_opsetid("", 23)], ["alpha"])  # fmt: skip
    reference = function.node[1].attribute.add()
    reference.name, reference.ref_attr_name, reference.type = "alpha", "alpha", onnx.AttributeProto.FLOAT
    nodes = [node("Neg", ["t"], ["y"]), node("Twice", ["x"], ["t"], domain="own", alpha=0.5)]
    text = read_model(model(nodes, functions=[function])).text
    assert text.index("onnx.Add") < text.index("onnx.LeakyRelu") < text.index("onnx.Neg")
    assert '"alpha" = 0x3F000000 : f32' in text


def with_reference(made, name):
    """The node with an attribute of this name that has the value of the function's attribute `b`."""
    reference = made.attribute.add()
    reference.name, reference.ref_attr_name, reference.type = name, "b", onnx.AttributeProto.FLOAT
    return made


def function_of(name, nodes, default):
    """A function with the attribute `b`, which has a default or not."""
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    made = helper.make_function("own", name, ["x"], ["y"], nodes, domains, ["b"] if default is None else [])
    if default is not None:
        made.attribute_proto.append(helper.make_attribute("b", default))
    return made


def test_attributes_of_functions_are_given_referred_to_or_default():
    functions, nodes, expected = [], [], []
    for own, passed, outer in itertools.product([None, 0.5], ["nothing", "number", "reference"], [None, 2.0]):
        inner, name = f"Inner{own is None:d}", f"Outer{len(functions)}"
        call = node(inner, ["x"], ["y"], domain="own", **({"b": 0.25} if passed == "number" else {}))
        functions.append(function_of(name, [with_reference(call, "b") if passed == "reference" else call], outer))
        for given in (None, 3.0):
            nodes.append(node(name, ["x"], [f"y{len(nodes)}"], domain="own", **({} if given is None else {"b": given})))
            referred = outer if given is None else given
            found = {"nothing": None, "number": 0.25, "reference": referred}[passed]
            found = own if found is None else found
            # Of an operator, an attribute without a value has the default of the operator.
            expected.append(-0.01 if found is None else -found * (1 if own is None else found))
    slope = with_reference(node("LeakyRelu", ["x"], ["y"]), "alpha")
    functions.append(function_of("Inner1", [slope], None))
    body = [with_reference(node("LeakyRelu", ["x"], ["z"]), "alpha"), with_reference(node("Constant", [], ["c"]), "value_float"),
            node("Mul", ["z", "c"], ["y"])]  # fmt: skip
    functions.append(function_of("Inner0", body, 0.5))
    outputs = [f"y{i}" for i in range(len(nodes))]
    text = read_model(model(nodes, [value("x", (1,))], outputs, functions=functions)).text
    found = [each.item() for each in interpret(text, [np.array([-1], np.float32)])]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.int8, np.int16, np.int32, np.int64, np.bool_])
def test_weights_of_every_type_are_stored_to_the_byte(tmp_path, dtype, raw):
    array = (np.random.default_rng(0).standard_normal((9, 9)) * 5).astype(dtype)
    proto = helper.make_tensor("w", helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), array.shape,
                               array.tobytes() if raw else array.flatten().tolist(), raw=raw)  # fmt: skip
    read_model(model([node("Identity", ["x"], ["y"])], weights=[proto])).write(tmp_path / "w.mlir")
    assert np.array_equal(np.load(tmp_path / "w.w.npy"), array)


def test_reader_computes_nothing(tmp_path):
    expanded = model([
        node("Shape", ["x"], ["s"]), node("Constant", [], ["k"], value_ints=[2, -1]),
        node("Reshape", ["x", "k"], ["r"]), node("Constant", [], ["c"], value=BIG),
        node("MatMul", ["r", "c"], ["y"])], weights=[SMALL])  # fmt: skip
    onnx.save(expanded, tmp_path / "patched.onnx")
    patched = f"""
import numpy as np, onnx, onnx.reference, onnx.numpy_helper, onnx.shape_inference
def fail(*_, **__): raise AssertionError("the reader computes")
for name in dir(np):
    if isinstance(getattr(np, name), np.ufunc): setattr(np, name, fail)
for name in ("array", "asarray", "frombuffer", "zeros", "empty", "matmul", "dot"): setattr(np, name, fail)
onnx.reference.ReferenceEvaluator.__init__ = onnx.numpy_helper.to_array = fail
onnx.shape_inference.infer_shapes = fail
from saccade.onnx import read
assert "onnx.MatMul" in read({str(tmp_path / "patched.onnx")!r}).text
try: np.add(1, 2)
except AssertionError: print("patched")
"""
    ran = subprocess.run([sys.executable, "-c", patched], capture_output=True, text=True)
    assert ran.stdout == "patched\n", ran.stderr


# --- What is refused.


@pytest.mark.parametrize("length", [1, 10, len(GOOD) // 2, len(GOOD) - 1])
def test_file_that_is_cut_is_refused(tmp_path, length):
    (tmp_path / "cut.onnx").write_bytes(GOOD[:length])
    refused(["cut.onnx"], tmp_path / "cut.onnx")


@pytest.mark.parametrize(("name", "content", "word"), [
    ("empty.onnx", b"", "no graph"), ("text.onnx", b"this is text", "not an ONNX model"),
], ids=["empty", "text"])  # fmt: skip
def test_file_without_a_model_is_refused(tmp_path, name, content, word):
    (tmp_path / name).write_bytes(content)
    refused([name, word], tmp_path / name)


@pytest.mark.parametrize(("words", "nodes", "options"), [
    pytest.param(["node 'a node' (Add)", "'missing' is produced by no node"], [node("Add", ["x", "missing"], ["y"])],
                 {}, id="missing input"),
    pytest.param(["node 'one' (Add)", "own output"],
                 [node("Add", ["x", "b"], ["y"], name="one"), node("Neg", ["y"], ["b"], name="two")], {}, id="cycle"),
    pytest.param(["is there already"], [node("Neg", ["x"], ["y"]), node("Abs", ["x"], ["y"])], {}, id="twice"),
    pytest.param(["output 'y'", "no node"], [node("Neg", ["x"], ["z"])], {}, id="missing output"),
    pytest.param(["version 99", "'ai.onnx'", "7 to 28"], [node("Neg", ["x"], ["y"])], {"opset": 99}, id="version"),
    pytest.param(["operator set 'other'"], [node("Neg", ["x"], ["y"], domain="other")], {}, id="operator set"),
    pytest.param(["input 'x'", "string"], [node("Neg", ["x"], ["y"])],
                 {"inputs": [value("x", type=TensorProto.STRING)]}, id="string"),
    pytest.param(["input 'x'", "no shape"], [node("Neg", ["x"], ["y"])], {"inputs": [value("x", None)]}, id="shape"),
])  # fmt: skip
def test_wrong_graph_is_refused(words, nodes, options):
    refused(words, model(nodes, **options))


def test_recursive_function_is_refused():
    calls_itself = [helper.make_node("Loop", ["a"], ["b"], domain="own")]
    recursive = helper.make_function("own", "Loop", ["a"], ["b"], calls_itself, [helper.make_opsetid("own", 1)])
    refused(["50 deep"], model([node("Loop", ["x"], ["y"], domain="own")], functions=[recursive]))


@pytest.mark.parametrize(("words", "weight"), [
    pytest.param(["found 4 bytes, expected 512"],
                 TensorProto(name="w", data_type=1, dims=[8, 16], raw_data=b"1234"), id="short"),
    pytest.param(["found 0 bytes"], TensorProto(name="w", data_type=1, dims=[1 << 40, 1 << 40]), id="huge"),
])  # fmt: skip
def test_weight_of_another_size_is_refused(words, weight):
    refused(["weight 'w'", *words], product(weight))


# --- Weights in files of their own.


@pytest.fixture
def external(tmp_path):
    """Saves a model whose weight lies where the entries say, as in w.bin, 5 bytes from its start; returns its path."""
    (tmp_path / "w.bin").write_bytes(b"....." + np.arange(128, dtype=np.float32).tobytes())

    def save(location, **entries):
        proto = TensorProto(name="w", data_type=1, dims=[8, 16], data_location=TensorProto.EXTERNAL)
        for key, content in {"location": location, **entries}.items():
            proto.external_data.add(key=key, value=str(content))
        onnx.save(product(proto), tmp_path / "external.onnx")
        return tmp_path / "external.onnx"

    return save


def test_external_weight_is_read_at_its_offset(external):
    ((_, tensor),) = read(external("w.bin", offset=5, length=512)).weights
    assert tensor.data == np.arange(128, dtype=np.float32).tobytes()


@pytest.mark.parametrize(("word", "location", "entries"), [
    pytest.param("cannot read 'gone.bin'", "gone.bin", {}, id="gone"),
    pytest.param("found 500 bytes", "w.bin", {"offset": 17}, id="offset"),
    pytest.param("found 17 bytes", "w.bin", {"length": 17}, id="length"),
    pytest.param("no integer", "w.bin", {"offset": "five"}, id="no integer"),
    pytest.param("outside of the model", "../secret.bin", {}, id="folder above"),
    pytest.param("outside of the model", os.path.abspath(sys.executable), {}, id="absolute"),
])  # fmt: skip
def test_wrong_external_weight_is_refused(external, word, location, entries):
    refused(["weight 'w'", word], external(location, **entries))


# --- The command.


def command(*arguments):
    return subprocess.run([sys.executable, "-m", "saccade.onnx", *map(str, arguments)], capture_output=True, text=True)


def test_command_writes_the_program_and_its_weights(tmp_path):
    (tmp_path / "good.onnx").write_bytes(GOOD)
    ran = command(tmp_path / "good.onnx", "-o", tmp_path / "good.mlir")
    assert ran.returncode == 0, ran.stderr
    assert "onnx.MatMul" in (tmp_path / "good.mlir").read_text()
    assert np.array_equal(np.load(tmp_path / "good.w.npy"), np.ones((8, 16), np.float32))


@pytest.mark.parametrize(("code", "source", "target"), [
    pytest.param(1, "cut.onnx", "none.mlir", id="cut"), pytest.param(3, "gone.onnx", "none.mlir", id="gone"),
    pytest.param(3, "good.onnx", "no/folder.mlir", id="no folder"),
])  # fmt: skip
def test_command_that_fails_leaves_nothing(tmp_path, code, source, target):
    (tmp_path / "good.onnx").write_bytes(GOOD)
    (tmp_path / "cut.onnx").write_bytes(GOOD[:-1])
    before = sorted(os.listdir(tmp_path))
    assert command(tmp_path / source, "-o", tmp_path / target).returncode == code
    assert sorted(os.listdir(tmp_path)) == before, "something half written was left"


def test_a_weight_that_is_also_an_input_is_no_argument():
    """Before version 4 of the file format every initializer is listed among the inputs."""
    nodes = [node("MatMul", ["x", "w"], ["z"]), node("Add", ["z", "small_row"], ["y"])]
    row = numpy_helper.from_array(np.ones(16, np.float32), "small_row")
    listed = model(nodes, [value("w", (8, 16)), value("x"), value("small_row", (16,))], weights=[ONES, row])
    plain = model(nodes, [value("x")], weights=[ONES, row])
    assert read_model(listed).text == read_model(plain).text


@pytest.mark.parametrize("place", ["first", "second", "last", "weight", "graph"])
def test_text_that_is_no_utf_8_is_refused_wherever_it_is(tmp_path, place):
    nodes = [node("Neg", ["x"], ["z"], name="first__"), node("Abs", ["z"], ["v"], name="second_"),
             node("Neg", ["v"], ["y"], name="last___")]  # fmt: skip
    made = model(nodes, weights=[numpy_helper.from_array(np.ones(3, np.float32), "weight_")])
    made.graph.name = "graph__"
    content = made.SerializeToString()
    name = {"first": b"first__", "second": b"second_", "last": b"last___", "weight": b"weight_", "graph": b"graph__"}[place]
    assert content.count(name) == 1
    (tmp_path / "bytes.onnx").write_bytes(content.replace(name, name[:-1] + b"\xff"))
    refused(["bytes.onnx"], tmp_path / "bytes.onnx")


@pytest.mark.parametrize("shape", [(2, -1), (-1, 2), (-1, -1)], ids=str)
def test_types_of_values_with_negative_extents_are_unknown(shape):
    made = model([node("Neg", ["x"], ["t"]), node("Neg", ["t"], ["y"])])
    made.graph.value_info.append(value("t", shape))
    assert '"onnx.Neg"(%x) : (tensor<2x8xf32>) -> (!onnx.value)' in read_model(made).text
    made.graph.value_info[0].CopyFrom(value("t", (2, 0)))
    assert '"onnx.Neg"(%x) : (tensor<2x8xf32>) -> (tensor<2x0xf32>)' in read_model(made).text


@pytest.mark.parametrize("name", ["NoValue", "Return", "", "1st", "A B", "A.B", 'A"', "_A"])
def test_names_that_no_operator_has_are_refused(name):
    refused(["node 'a node'", "this is no operator"], model([node(name, ["x"], ["y"])]))


@pytest.mark.parametrize("version", [17, 23])
def test_nodes_of_functions_have_the_version_of_their_function(version):
    function = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])],
                                    [helper.make_opsetid("", version)])  # fmt: skip
    text = read_model(model([node("Twice", ["x"], ["t"], domain="own"), node("Neg", ["t"], ["y"])], functions=[function])).text
    (added,) = [line for line in text.splitlines() if "onnx.Add" in line]
    (negated,) = [line for line in text.splitlines() if "onnx.Neg" in line]
    assert ("onnx.opset = 17 : i64" in added) == (version == 17)
    assert "onnx.opset" not in negated
    assert "module attributes {onnx.opset = 23 : i64}" in text


def test_large_constants_of_nodes_are_arguments_with_names_of_their_own():
    nodes = [node("Constant", [], ["w"], value=BIG), node("Constant", [], ["w/w"], value=BIG),
             node("MatMul", ["x", "w"], ["t"]), node("MatMul", ["x", "w/w"], ["u"]), node("Add", ["t", "u"], ["y"])]  # fmt: skip
    program = read_model(model(nodes, weights=[SMALL]))
    assert [weight.argument for weight, _ in program.weights] == ["w", "w_w"]
    for weight, tensor in program.weights:
        assert f"%{weight.argument}: tensor<8x16xf32> {{attn.constant}}" in program.text
        assert f'"onnx.MatMul"(%x, %{weight.argument})' in program.text
        assert tensor.data == numpy_helper.to_array(BIG).tobytes()


@pytest.mark.parametrize("domain", OPSETS)
def test_versions_of_operator_sets(domain):
    first, last = OPSETS[domain]
    for version in (first - 1, first, last, last + 1):
        made = model([node("Neg", ["x"], ["y"])])
        if not domain:
            del made.opset_import[:]
        made.opset_import.append(helper.make_opsetid(domain, version))
        if first <= version <= last:
            assert f"onnx.opset = {23 if domain else version} : i64" in read_model(made).text
        else:
            refused([f"version {version} of the operator set '{domain or 'ai.onnx'}' is not supported, expected {first} to {last}"], made)


def test_the_versions_that_the_operators_have():
    assert OPSETS == {"": (7, 28), "ai.onnx.preview": (1, 1), "com.microsoft": (1, 1)}


@pytest.mark.parametrize(("begin", "end"), [(0, 4), (4, 8), (1, 0)])
def test_a_weight_in_segments_is_refused(begin, end):
    weight = onnx.TensorProto()
    weight.CopyFrom(ONES)
    weight.segment.begin, weight.segment.end = begin, end
    refused(["weight 'w'", "tensors in segments are not supported"], product(weight))


# --- Subgraphs.


def branch(nodes, output, weights=()):
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=output)], list(weights))


def choice(output, branches, name="choice"):
    return node("If", ["flag"], [output], name, then_branch=branches[0], else_branch=branches[1])


FLAG = value("flag", (), TensorProto.BOOL)


def test_weights_of_subgraphs_are_constants_of_their_region():
    branches = [branch([node("Mul", ["x", "own"], [f"r{i}"])], f"r{i}", [numpy_helper.from_array(np.float32(factor), "own")])
                for i, factor in enumerate((2, 3))]  # fmt: skip
    text = read_model(model([choice("y", branches)], inputs=["x", FLAG])).text
    regions = text.partition('"onnx.If"')[2]
    assert 'regions = ["else_branch", "then_branch"]' in regions
    constants = [regions.index(f"dense<0x{bits}> : tensor<f32>") for bits in ("40400000", "40000000")]
    assert constants == sorted(constants)
    assert regions.count("onnx.Return") == 2


def test_many_subgraphs_and_calls_after_one_another_are_read():
    nodes = []
    for i in range(60):
        branches = [branch([node("Neg", [f"v{i}"], ["r"])], "r"), branch([node("Abs", [f"v{i}"], ["r"])], "r")]
        nodes += [choice(f"u{i}", branches), node("Twice", [f"u{i}"], [f"v{i + 1}"], domain="own")]
    function = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 23)])
    nodes[0].attribute[0].g.node[0].input[0] = nodes[0].attribute[1].g.node[0].input[0] = "x"
    text = read_model(model(nodes, inputs=["x", FLAG], outputs=["v60"], functions=[function])).text
    assert text.count('"onnx.If"') == text.count("onnx.Add") == 60


@pytest.mark.parametrize("depth", [50, 51])
def test_nested_functions(depth):
    domains = [helper.make_opsetid("", 23), helper.make_opsetid("own", 1)]
    functions = [helper.make_function("own", f"F{i}", ["a"], ["b"], [
        helper.make_node(f"F{i + 1}", ["a"], ["b"], domain="own") if i + 1 < depth else helper.make_node("Neg", ["a"], ["b"])], domains)
        for i in range(depth)]  # fmt: skip
    made = model([node("F0", ["x"], ["y"], domain="own")], functions=functions)
    if depth <= 50:
        assert '"onnx.Neg"(%x)' in read_model(made).text
    else:
        refused(["functions or subgraphs are nested more than 50 deep"], made)


def test_extents_of_0_are_static():
    program = read_model(model([node("Neg", ["x"], ["y"])], inputs=[value("x", (0, "n", 8))]))
    assert program.inputs[0].shape == (0, None, 8)
    assert '%x: tensor<0x?x8xf32> {attn.dim_names = ["", "n", ""]}' in program.text


def test_external_weights_behind_a_link_out_of_the_folder_are_refused(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    for each in (outside, folder):
        each.mkdir()
        (each / "w.bin").write_bytes(np.ones((8, 16), np.float32).tobytes())
    (folder / "link").symlink_to(outside)
    for location, is_inside in (("w.bin", True), ("link/w.bin", False), ("../outside/w.bin", False), ("../folder/w.bin", True)):
        weight = onnx.TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[8, 16], data_location=1)
        weight.external_data.add(key="location", value=location)
        if is_inside:
            assert read_model(product(weight), folder=str(folder)).weights
        else:
            with pytest.raises(ModelError, match="is outside of the model's folder"):
                read_model(product(weight), folder=str(folder))


def test_outputs_without_a_name_are_those_of_no_value():
    nodes = [node("Dropout", ["x"], ["a", ""]), node("Dropout", ["a"], ["b", ""]), node("Split", ["b"], ["", "c"], num_outputs=2),
             node("Neg", ["c"], ["y"])]  # fmt: skip
    text = read_model(model(nodes)).text
    first, second, split = (line.split(" = ")[0].strip() for line in text.splitlines() if "onnx.Dropout" in line or "onnx.Split" in line)
    assert first == "%0:2" and second == "%1:2" and split == "%2:2"
    assert '"onnx.Dropout"(%0#0)' in text
    assert '"onnx.Neg"(%2#1)' in text


@pytest.mark.parametrize("are_constants", [False, True])
def test_weights_are_read_by_warpgroups_on_sm_90a(are_constants):
    """Weights are arguments of the program; in a program that contains them they are constants."""
    import re

    import saccade

    weights = {"up": (64, 128), "down": (128, 64)}
    arrays = {name: RAND.standard_normal(shape).astype(np.float16) for name, shape in weights.items()}
    nodes = [node("MatMul", ["x", "up"], ["u"]), node("Relu", ["u"], ["r"]), node("MatMul", ["r", "down"], ["d"]),
             node("Add", ["x", "d"], ["y"])]  # fmt: skip
    text = read_model(model(nodes, inputs=[value("x", ("b", "s", 64), TensorProto.FLOAT16)],
                            weights=[numpy_helper.from_array(array, name) for name, array in arrays.items()])).text  # fmt: skip
    if are_constants:
        constants = "".join(f'%{name} = arith.constant dense<"0x{array.tobytes().hex()}"> : tensor<{"x".join(map(str, array.shape))}xf16>\n'
                            for name, array in arrays.items())  # fmt: skip
        text, count = re.subn(r", %\w+: tensor<[0-9x]+f16> \{attn\.constant\}", "", text)
        assert count == len(weights)
        start = text.index("{\n", text.index("func.func")) + 2
        text = text[:start] + constants + text[start:]
    families = re.findall(r"kernel family (.*)", saccade.compile(text, target="sm_90a").explain())
    assert families.count("sm_90a, matmul") == families.count("sm_90a, matmul in parts") == 2
