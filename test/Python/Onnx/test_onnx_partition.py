"""backend.prepare(MODEL, partition=True): parts of models, and the rest run by ONNX Runtime."""

import random
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import saccade
from saccade.onnx import ModelError, backend
from saccade.onnx.partition import _session, divide

VERSION = 20
F32, I64 = TensorProto.FLOAT, TensorProto.INT64


def model(nodes, inputs, outputs, weights=(), domains=(), functions=()):
    value = lambda given: helper.make_tensor_value_info(*given) if isinstance(given, tuple) else given
    graph = helper.make_graph(nodes, "graph", [value(x) for x in inputs], [value(x) for x in outputs], list(weights))
    imports = [helper.make_opsetid("", VERSION), *[helper.make_opsetid(name, 1) for name in domains]]
    made = helper.make_model(graph, opset_imports=imports, functions=list(functions))
    made.ir_version = 10
    return made


def by_runtime(model, arrays):
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, dict(zip([x.name for x in session.get_inputs()], arrays)))


def check(model, *arrays, parts=None):
    prepared = backend.prepare(model, partition=True)
    for found, expected in zip(prepared.run(list(arrays)), by_runtime(model, arrays), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert found.dtype == expected.dtype
    if parts is not None:
        assert [part.is_compiled for part in prepared.plan.parts] == parts
    return prepared


def array(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_parts_between_operators_that_are_not_supported():
    weights = [onnx.numpy_helper.from_array(array(8, 8), "w")]
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
             helper.make_node("Hardmax", ["b"], ["c"]),
             helper.make_node("MatMul", ["c", "w"], ["d"]), helper.make_node("Sigmoid", ["d"], ["y"])]  # fmt: skip
    made = model(nodes, [("x", F32, ["n", 8])], [("y", F32, ["n", 8])], weights)
    try:
        backend.prepare(made)
        pytest.skip("Hardmax is supported")
    except saccade.CompileError as error:
        assert "prepare(MODEL, partition=True) leaves what is not supported to ONNX Runtime" in str(error)
    prepared = check(made, array(5, 8), parts=[True, False, True])
    assert str(prepared.plan) == "4 nodes in 2 parts compiled by Saccade; run by ONNX Runtime: Hardmax"
    assert "this op is not supported" in next(iter(prepared.plan.reasons.values()))
    np.testing.assert_allclose(prepared.run({"x": array(3, 8)})[0], by_runtime(made, [array(3, 8)])[0], rtol=1e-4)


def test_a_model_that_is_supported_is_one_part():
    nodes = [helper.make_node("Exp", ["x"], ["a"]), helper.make_node("Softmax", ["a"], ["y"])]
    check(model(nodes, [("x", F32, ["n", 8])], [("y", F32, ["n", 8])]), array(5, 8), parts=[True])


def test_values_of_a_type_that_is_not_supported():
    """Weights and inputs of uint8: the message has the advice, and the runtime makes numbers of them."""
    codes = np.random.default_rng(0).integers(0, 256, (8, 8), dtype=np.uint8)
    constants = [onnx.numpy_helper.from_array(np.float32(0.01), "s"), onnx.numpy_helper.from_array(np.uint8(128), "z")]
    nodes = [helper.make_node("DequantizeLinear", ["w", "s", "z"], ["a"]), helper.make_node("MatMul", ["x", "a"], ["b"]),
             helper.make_node("Softmax", ["b"], ["y"])]  # fmt: skip
    inputs, outputs = [("x", F32, ["n", 8])], [("y", F32, ["n", 8])]
    weights = model(nodes, inputs, outputs, [*constants, onnx.numpy_helper.from_array(codes, "w")])
    given = model(nodes, [*inputs, ("w", TensorProto.UINT8, [8, 8])], outputs, constants)
    for made, arrays in ((weights, [array(5, 8)]), (given, [array(5, 8), codes])):
        with pytest.raises(ModelError, match=r"the type uint8 is not supported\n.*partition=True\) leaves what is not"):
            backend.prepare(made)
        prepared = backend.prepare(made, partition=True)
        assert str(prepared.plan) == "2 nodes in 1 part compiled by Saccade; run by ONNX Runtime: DequantizeLinear"
        products = np.exp(arrays[0].astype(np.float64) @ ((codes.astype(np.float64) - 128) * 0.01))
        np.testing.assert_allclose(prepared.run(arrays)[0], products / products.sum(-1, keepdims=True), rtol=1e-5)


def test_the_runtime_multiplies_dequantized_weights_in_float():
    """By default it rounds the other operand to 8 bits (findings/onnxruntime-dequantized-matmul-in-int8.sh)."""
    random = np.random.default_rng(3)
    codes = random.integers(-128, 128, (64, 32)).astype(np.int8)
    nodes = [helper.make_node("DequantizeLinear", ["codes", "scale"], ["w"]), helper.make_node("MatMul", ["x", "w"], ["y"])]
    weights = [onnx.numpy_helper.from_array(codes, "codes"), onnx.numpy_helper.from_array(np.float32(0.7), "scale")]
    x = random.standard_normal((3, 64)).astype(np.float32)
    made = model(nodes, [("x", F32, [3, 64])], [("y", F32, [3, 32])], weights)
    expected = x.astype(np.float64) @ (codes * np.float64(np.float32(0.7)))
    bound = 1e-5 * np.abs(expected).max()
    assert np.abs(by_runtime(made, [x])[0] - expected).max() > 10 * bound
    assert np.abs(_session(made, ["y"])([x])[0] - expected).max() < bound


def test_a_model_that_is_not_supported_is_the_runtimes():
    nodes = [helper.make_node("Det", ["x"], ["y"])]
    check(model(nodes, [("x", F32, ["n", 3, 3])], [("y", F32, ["n"])]), array(5, 3, 3), parts=[False])


def test_constants_subgraphs_functions_and_lists():
    """Constants of all kinds are copied to the parts that read them; a branch reads values of another part; weights and
    inputs are returned."""
    branch = lambda op, name: helper.make_graph([helper.make_node(op, ["e"], [name])], name, [],
                                                [helper.make_tensor_value_info(name, F32, None)])  # fmt: skip
    nodes = [
        helper.make_node("Constant", [], ["two"], value_float=2.0),
        helper.make_node("Constant", [], ["axes"], value_ints=[-1]),
        helper.make_node("Constant", [], ["shape"], value=onnx.numpy_helper.from_array(np.array([-1, 3, 3]))),
        helper.make_node("Mul", ["x", "two"], ["a"]),
        helper.make_node("Twice", ["a"], ["b"], domain="own"),
        helper.make_node("Reshape", ["b", "shape"], ["c"]),
        helper.make_node("Det", ["c"], ["d"]),
        helper.make_node("Unsqueeze", ["d", "axes"], ["d2"]),
        helper.make_node("Add", ["b", "w"], ["e"]),
        helper.make_node("ReduceSum", ["d2"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "two"], ["g"]),
        helper.make_node("If", ["g"], ["f"], then_branch=branch("Exp", "t"), else_branch=branch("Tanh", "u")),
        helper.make_node("Mul", ["f", "two"], ["y"]),
    ]
    twice = helper.make_function("own", "Twice", ["p"], ["q"], [helper.make_node("Add", ["p", "p"], ["q"])],
                                 [helper.make_opsetid("", VERSION)])  # fmt: skip
    weights = [onnx.numpy_helper.from_array(array(3, 3), "w")]
    made = model(nodes, [("x", F32, ["n", 3, 3])], [("y", F32, None), ("d2", F32, None), ("w", F32, [3, 3])], weights,
                 ["own"], [twice])  # fmt: skip
    check(made, array(4, 3, 3))


def test_operators_of_onnx_runtime():
    """A domain whose types onnx does not infer."""
    nodes = [helper.make_node("Add", ["x", "x"], ["a"]), helper.make_node("FastGelu", ["a"], ["b"], domain="com.microsoft"),
             helper.make_node("Inverse", ["b"], ["c"], domain="com.microsoft"), helper.make_node("Exp", ["b"], ["d"]),
             helper.make_node("Add", ["c", "d"], ["e"]), helper.make_node("Tanh", ["e"], ["y"])]  # fmt: skip
    made = model(nodes, [("x", F32, [4, 4])], [("y", F32, [4, 4])], domains=["com.microsoft"])
    check(made, array(4, 4))


UNARY = ["Relu", "Exp", "Sigmoid", "Tanh", "Neg", "Abs"]
BINARY = ["Add", "Mul", "Sub", "MatMul"]


def drawn(rng):
    """A random graph on [4, 4], whose nodes are in any order, some without names, and the names that are refused."""
    nodes, values = [], ["x", "z", "w"]
    for number in range(rng.randint(1, 14)):
        op = rng.choice(UNARY + BINARY)
        given = [rng.choice(values[-4:] + ["w"]) for _ in range(1 if op in UNARY else 2)]
        values.append(f"v{number}")
        nodes.append(helper.make_node(op, given, [values[-1]], rng.choice(["", f"n{number}"])))
    returned = rng.sample(values[3:], rng.randint(1, min(3, len(nodes))))
    rng.shuffle(nodes)
    weights = [onnx.numpy_helper.from_array(array(4, 4) / 4, "w")]
    shape = rng.choice([[4, 4], ["n", 4]])
    return model(nodes, [("x", F32, shape), ("z", F32, shape)], [(name, F32, None) for name in returned], weights)


class ByRuntime:
    """What a part compiles to in the search: ONNX Runtime as well."""

    elements = {}

    def __init__(self, part):
        self.part = part

    def run(self, arrays):
        return by_runtime(self.part, arrays)


def test_random_graphs():
    """Any operators may be refused: each node runs at most once, in an order in which its operands are there."""
    for seed in range(150):
        rng = random.Random(seed)
        made = drawn(rng)
        refused = set(rng.sample(UNARY + BINARY, rng.randint(0, 6)))

        def compile_part(part, refused=refused):
            for node in part.graph.node:
                if node.op_type in refused:
                    raise saccade.CompileError(f"onnx.{node.op_type} '{node.name}': {rng.choice(['no', 'this op is not supported'])}")
            if rng.random() < 0.1:
                raise ModelError("no place")
            return ByRuntime(part)

        plan = divide(made, compile_part)
        nodes = [node for part in plan.parts for node in part.model.graph.node]
        assert len({node.name for node in nodes}) == len(nodes)
        for part in plan.parts:
            assert not part.is_compiled or not refused & {node.op_type for node in part.model.graph.node}
        arrays = [array(4, 4, seed=seed), array(4, 4, seed=seed + 1)]
        values = dict(zip(("x", "z"), arrays))
        for part in plan.parts:
            values.update(zip(part.outputs, part.run([values[name] for name in part.inputs])))
        expected = by_runtime(made, arrays)
        for value, result in zip(made.graph.output, expected):
            np.testing.assert_allclose(values[value.name], result, rtol=1e-5, err_msg=str(seed))


def test_random_graphs_compiled():
    for seed in range(4):
        made = drawn(random.Random(seed))
        check(made, array(4, 4), array(4, 4, seed=1))


BF16 = TensorProto.BFLOAT16


def test_names_constants_strings_and_sequences(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # A name with spaces; a function with an operator that is not supported, beside one without.
    functions = [helper.make_function("own", name, ["p"], ["q"], [helper.make_node(op, ["p"], ["q"])],
                                      [helper.make_opsetid("", VERSION)])
                 for name, op in (("Volume", "Det"), ("Bend", "Tanh"))]  # fmt: skip
    nodes = [helper.make_node("MatMul", ["x", "x"], ["a"]), helper.make_node("Bend", ["a"], ["b"], domain="own"),
             helper.make_node("Volume", ["b"], ["c"], domain="own"), helper.make_node("Det", ["a"], ["d"], "my 'det"),
             helper.make_node("Constant", [], ["one"], value_float=1.0), helper.make_node("Exp", ["b"], ["e"])]  # fmt: skip
    made = model(nodes, [("x", F32, ["n", 3, 3])], [(name, F32, None) for name in ("c", "d", "e", "one")],
                 domains=["own"], functions=functions)  # fmt: skip
    prepared = check(made, array(2, 3, 3), parts=[True, False])
    assert {node.op_type for node in prepared.plan.parts[0].model.graph.node} == {"MatMul", "Bend", "Exp"}
    # Types that Saccade has not, from a file too; the inference of types leaves no files.
    text = helper.make_tensor_value_info("s", TensorProto.STRING, ["n"])
    nodes = [helper.make_node("Equal", ["s", "s"], ["same"]), helper.make_node("Cast", ["same"], ["y"], to=F32),
             helper.make_node("Inverse", ["x"], ["z"], domain="com.microsoft")]  # fmt: skip
    made = model(nodes, [text, ("x", F32, [2, 2])], [("y", F32, ["n"]), ("z", F32, None)], domains=["com.microsoft"])
    words = np.array(["a", "b"], object)
    check(made, words, array(2, 2))
    onnx.save(made, tmp_path / "strings.onnx")
    np.testing.assert_array_equal(backend.prepare("strings.onnx", partition=True).run([words, array(2, 2)])[0], [1, 1])
    assert [path.name for path in tmp_path.iterdir()] == ["strings.onnx"]
    sequence = helper.make_tensor_sequence_value_info("q", F32, None)
    made = model([helper.make_node("ConcatFromSequence", ["q"], ["y"], axis=0)], [sequence], [("y", F32, None)])
    found = backend.prepare(made, partition=True).run([[array(2, 2), array(1, 2)]])
    assert found[0].shape == (3, 2)


def test_bfloat16():
    """A single operator whose type ONNX Runtime does not compute is Saccade's; a value of the type does not pass."""
    nodes = [helper.make_node("Det", ["x"], ["d"]), helper.make_node("Cast", ["d"], ["e"], to=BF16),
             helper.make_node("Exp", ["e"], ["f"]), helper.make_node("Cast", ["f"], ["y"], to=F32)]  # fmt: skip
    made = model(nodes, [("x", F32, ["n", 3, 3])], [("y", F32, ["n"])])
    found = backend.prepare(made, partition=True).run([array(4, 3, 3)])[0]
    np.testing.assert_allclose(found, np.exp(np.linalg.det(array(4, 3, 3))), rtol=0.05)
    nodes = [helper.make_node("Cast", ["x"], ["a"], to=BF16), helper.make_node("Exp", ["a"], ["b"]),
             helper.make_node("Tanh", ["b"], ["c"]), helper.make_node("Hardmax", ["c"], ["y"])]  # fmt: skip
    with pytest.raises(ModelError, match="is a value of bfloat16 between Saccade and ONNX Runtime"):
        backend.prepare(model(nodes, [("x", F32, ["n", 3])], [("y", BF16, None)]), partition=True)


def test_values_that_nothing_makes():
    with pytest.raises(ModelError, match="the output 'nope' is produced by no node"):
        backend.prepare(model([helper.make_node("Det", ["x"], ["y"])], [("x", F32, [2, 2])], [("nope", F32, None)]),
                        partition=True)  # fmt: skip
    with pytest.raises(ModelError, match=r"\(Det\): the input 'z' is produced by no node"):
        backend.prepare(model([helper.make_node("Det", ["z"], ["y"])], [("x", F32, [2, 2])], [("y", F32, None)]),
                        partition=True)  # fmt: skip
    with pytest.raises(ModelError, match="the model has no graph"):
        backend.prepare(onnx.ModelProto(), partition=True)


def test_refusals(monkeypatch, tmp_path):
    made = model([helper.make_node("Det", ["x"], ["y"])], [("x", F32, ["n", 3, 3])], [("y", F32, ["n"])])
    onnx.save(made, tmp_path / "model.onnx")
    np.testing.assert_allclose(backend.prepare(tmp_path / "model.onnx", partition=True).run(array(2, 3, 3))[0],
                               np.linalg.det(array(2, 3, 3)), rtol=1e-4)  # fmt: skip
    with pytest.raises(TypeError, match="partition is 1, expected True or False"):
        backend.prepare(made, partition=1)
    prepared = backend.prepare(made, partition=True)
    with pytest.raises(TypeError, match="the model has no input 'q'; it has: x"):
        prepared.run({"q": array(2, 3, 3)})
    with pytest.raises(ModelError, match=r"ONNX Runtime: .*NoSuchOperator"):
        backend.prepare(model([helper.make_node("NoSuchOperator", ["x"], ["y"])], [("x", F32, [2])], [("y", F32, [2])]),
                        partition=True)  # fmt: skip
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match="Det: ONNX Runtime is to run what Saccade does not support"):
        backend.prepare(made, partition=True)
