"""`python -m saccade.onnx.conformance` finds wrong results, counts outcomes, and exits with 1 if a case fails."""

import pytest

pytest.importorskip("onnx")

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from onnx.backend.test.case.test_case import TestCase

from saccade.onnx import conformance
from saccade.onnx.conformance import Outcome, Raising

FLOAT = TensorProto.FLOAT
X = np.array([[1.0, -2.0, np.nan], [np.inf, 0.5, -3.0]], np.float32)


def case(outputs, nodes=None, inputs=None, dtype=FLOAT, rtol=1e-3, atol=1e-7, sets=1):
    """A case whose expected outputs may be wrong. By default it negates X."""
    nodes = nodes or [helper.make_node("Neg", ["x"], ["y"])]
    inputs = inputs or {"x": X}
    values = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(each.dtype), each.shape)
              for name, each in inputs.items()]  # fmt: skip
    results = [helper.make_tensor_value_info(name, dtype, None) for name in nodes[-1].output]
    model = helper.make_model(helper.make_graph(nodes, "case", values, results), opset_imports=[helper.make_opsetid("", 20)])
    return TestCase(name="case", model_name="case", url=None, model_dir=None, model=model, rtol=rtol, atol=atol, kind="node",
                    data_sets=[(list(inputs.values()), outputs)] * sets)  # fmt: skip


def changed(place, value):
    found = -X
    found[place] = value
    return found


def test_right_results_pass():
    assert conformance._run(case([-X])) == ""
    assert conformance._run(case([numpy_helper.from_array(-X)], sets=2)) == ""
    assert conformance._run(case([-X * np.float32(1.0005)])) == ""


@pytest.mark.parametrize(("output", "words"), [
    (changed((1, 1), -0.502), "output 0 differs by 0.002"), (changed((0, 2), 0.0), "output 0 differs"),
    (changed((1, 0), np.inf), "output 0 differs"), (changed((0, 0), np.nan), "output 0 differs"),
    (-X.astype(np.float64), "output 0 is float32[2, 3], expected float64[2, 3]"),
    (-X[:1], "output 0 is float32[2, 3], expected float32[1, 3]"),
    (-X.reshape(3, 2), "output 0 is float32[2, 3], expected float32[3, 2]"),
])  # fmt: skip
def test_a_wrong_result_is_reported(output, words):
    assert conformance._run(case([output])).startswith(words)


def test_each_output_and_each_set_of_data_is_compared():
    split = [helper.make_node("Split", ["x"], ["y", "z"], axis=0, num_outputs=2)]
    assert conformance._run(case([X[:1], X[1:]], split)) == ""
    assert conformance._run(case([X[:1], X[:1]], split)).startswith("output 1 differs")
    assert conformance._run(case([X[:1]], split)).startswith("ValueError")
    both = case([-X])
    both.data_sets.append(([X], [X]))
    assert conformance._run(both).startswith("output 0 differs")


@pytest.mark.parametrize(("dtype", "good", "bad"), [(np.float16, 1.0015, 1.01), (ml_dtypes.bfloat16, 1.01, 1.05)])
def test_tolerance_of_16_bits(dtype, good, bad):
    x = np.array([1.0, 2.0, -100.0]).astype(dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    for factor, is_near in ((1.0, True), (good, True), (bad, False)):
        expected = (-x.astype(np.float64) * factor).astype(dtype)
        assert (conformance._run(case([expected], inputs={"x": x}, dtype=kind)) == "") == is_near


@pytest.mark.parametrize(("dtype", "good", "bad"), [(np.float32, 1e-8, 1e-6), (np.float16, 9e-4, 2e-3), (ml_dtypes.bfloat16, 7e-3, 2e-2)])
def test_tolerance_near_zero(dtype, good, bad):
    x = np.zeros(3, dtype)
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    for error, is_near in ((good, True), (bad, False)):
        expected = np.full(3, error).astype(dtype)
        assert (conformance._run(case([expected], inputs={"x": x}, dtype=kind)) == "") == is_near


def test_shapes_are_constants_and_axes_of_reductions():
    shape = np.array([3, 2], np.int64)
    given = case([X.reshape(3, 2)], [helper.make_node("Reshape", ["x", "s"], ["y"])], {"x": X, "s": shape})
    constant = conformance._with_constants(given)
    assert [value.name for value in constant.model.graph.input] == ["x"]
    assert [tensor.name for tensor in constant.model.graph.initializer] == ["s"]
    assert len(given.model.graph.input) == 2, "the case itself is unchanged"
    assert conformance._run(given) == ""
    axes = np.array([1], np.int64)
    finite = np.nan_to_num(X, posinf=7)
    assert conformance._run(case([finite.sum(1)], [helper.make_node("ReduceSum", ["x", "a"], ["y"], keepdims=0)],
                                 {"x": finite, "a": axes})) == ""  # fmt: skip
    bounds = {name: np.array(number, np.int64) for name, number in (("first", 1), ("last", 9), ("step", 3))}
    assert conformance._run(case([np.arange(1, 9, 3)], [helper.make_node("Range", [*bounds], ["y"])], bounds, TensorProto.INT64)) == ""
    slices = {name: np.array([number], np.int64) for name, number in (("starts", 0), ("ends", 9), ("axes", 1), ("steps", 2))}
    assert conformance._run(case([X[:, ::2]], [helper.make_node("Slice", ["x", *slices], ["y"])], {"x": X, **slices})) == ""
    for unchanged in (case([-X]), case([X.reshape(3, 2)], list(given.model.graph.node), {"x": X, "s": shape}, sets=2)):
        assert conformance._with_constants(unchanged) is unchanged


def test_an_exception_is_the_reason_and_a_diagnostic_is_a_refusal(monkeypatch):
    unknown = case([-X], [helper.make_node("Unheard", ["x"], ["y"])])
    monkeypatch.setattr(conformance, "_cases", lambda operator, pattern: [case([-X]), unknown, case([X])])
    outcomes = conformance.run_operator("Neg")
    assert [bool(each.reason) for each in outcomes] == [False, True, True]
    assert [each.is_refused for each in outcomes] == [False, True, False]
    assert outcomes[1].reason.startswith("CompileError: ")


# --- The command line.


def run(monkeypatch, capsys, results, *arguments):
    """The exit code, the operators that are run, and the text of the command with these results of operators."""
    asked = []
    monkeypatch.setattr(conformance, "_in_processes", lambda operators, *_: (asked.append(operators), results)[1])
    monkeypatch.setattr("sys.argv", ["conformance", *arguments])
    code = conformance.main()
    return code, asked[0], capsys.readouterr().out


good, bad, refusal = Outcome("a", "", 1.0), Outcome("b", "output 0 differs", 1.0), Outcome("c", "CompileError: no", 1.0, True)


@pytest.mark.parametrize(("code", "results", "arguments", "words"), [
    (0, [[good, good]], ["--op=Neg"], ["Neg: 2 of 2 passed in 2.0 s", "2 of 2 passed\n"]),
    (1, [[good, bad]], ["--op=Neg"], ["failed b: output 0 differs", "1 of 2 passed\n"]),
    (1, [[good, refusal]], ["--op=Neg"], ["failed c: CompileError: no", "1 of 2 passed\n"]),
    (0, [[good, refusal]], ["--op=Neg", "--may-refuse"], ["refused c: CompileError: no", "1 of 2 passed, 1 refused\n"]),
    (1, [[good, bad, refusal]], ["--op=Neg", "--may-refuse"], ["failed b", "1 of 3 passed, 1 refused\n"]),
    (1, [[refusal], [good]], ["--op=Neg", "--op=Abs", "--may-refuse"], ["failed Neg: no case passed", "1 of 2 passed, 1 refused\n"]),
    (0, [[refusal], [good]], ["--op=Not", "--op=Abs", "--may-refuse"], ["Not: 0 of 1 passed", "1 of 2 passed, 1 refused\n"]),
    (1, [[], []], ["--op=Neg", "--op=Abs"], ["0 of 0 passed"]), (1, [[], [good]], ["--op=Neg", "--op=Abs"], ["failed Neg: no case"]),
    (1, [[refusal]], ["--op=Conv", "--may-refuse"], ["0 of 1 passed, 1 refused"]),
], ids=str)  # fmt: skip
def test_outcomes_are_counted(monkeypatch, capsys, code, results, arguments, words):
    found, _, text = run(monkeypatch, capsys, results, *arguments)
    assert found == code, text
    for word in words:
        assert word in text


@pytest.mark.parametrize(("code", "attentions"), [(0, [1] * 9 + [0]), (1, [1] * 8 + [0, 2]), (1, []), (0, [1])], ids=str)
def test_the_share_that_is_raised(monkeypatch, capsys, code, attentions):
    cases = [Raising(f"case{i}", count, ["not raised: why"] if count != 1 else []) for i, count in enumerate(attentions)]
    found, _, text = run(monkeypatch, capsys, [cases], "--raised")
    assert found == code
    assert f"{attentions.count(1)} of {len(attentions)} raised to one attention, {attentions.count(1)} with no" in text
    assert text.count("  not raised: why\n") == len(attentions) - attentions.count(1)
    assert all((f"not raised: case{i}, {count} attentions\n" if count != 1 else f"raised: case{i}\n") in text
               for i, count in enumerate(attentions))  # fmt: skip


@pytest.mark.parametrize(("arguments", "operators"), [
    ([], [*conformance.OPERATORS]), (["--op=Neg", "--op=Abs"], ["Neg", "Abs"]), (["--all"], conformance.SUPPORTED),
    (["--others"], [each for each in conformance.SUPPORTED if each not in conformance.OPERATORS]),
    (["--raised"], ["Attention", "FlexAttention"]), (["--raised", "--op=Neg"], ["Neg"]),
], ids=str)  # fmt: skip
def test_the_operators_of_an_option(monkeypatch, capsys, arguments, operators):
    results = [[] for _ in operators]
    assert run(monkeypatch, capsys, results, *arguments)[1] == operators


def test_a_crash_fails_its_operator_alone(monkeypatch):
    def crash(operator, pattern):
        if operator == "Abs":
            import os

            os._exit(7)
        return [good]

    monkeypatch.setattr(conformance, "_all_cases", dict)
    monkeypatch.setattr(conformance, "run_operator", crash)
    results = conformance._in_processes(["Neg", "Abs", "Exp"], "", Outcome, 2)
    assert results == [[good], [Outcome("Abs", "exit code 7", 0)], [good]]
    monkeypatch.setattr(conformance, "raise_operator", crash)
    results = conformance._in_processes(["Abs"], "", Raising, 1)
    assert results == [[Raising("Abs", 0, ["exit code 7"])]]
