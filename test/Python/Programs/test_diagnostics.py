"""What a compiled module shows of its stages and reports, and how errors and warnings of the compiler reach Python."""

import pickle
import warnings

import programs
import pytest
from programs import refused

import saccade
from saccade.errors import Diagnostic

ALONE = """
func.func @weights(%s: tensor<?x?xf32>, %e: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %p = linalg.softmax dimension(1) ins(%s : tensor<?x?xf32>) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %p : tensor<?x?xf32>
}
"""
REASON = "not raised to attention: its weights are not used by a P·V matmul, but by 'func.return'"


@pytest.fixture(scope="module")
def module():
    return saccade.compile(programs.attention())


@pytest.fixture
def said():
    """The warnings of a test, each time they are given."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


# --- stages


@pytest.mark.parametrize(
    ("stage", "text"),
    [("transforms", "attn.attention"), ("tiling", "attn.accumulate"), ("llvm", "define"), ("asm", ".text")],
)
def test_every_stage_has_its_text(module, stage, text):
    assert text in module.ir(stage)


@pytest.mark.parametrize(("stage", "text"), [("transforms", "attn.gradient %"), ("tiling", "exp2"), ("llvm", "define")])
def test_every_stage_has_gradient_functions(stage, text):
    module = saccade.compile(programs.attention().replace(" {\n", " attributes {attn.gradient} {\n", 1))
    found = module.ir(stage)
    assert text in found[found.index("attend_gradient"):]


def test_an_unknown_stage_is_refused(module):
    refused(ValueError, ["no stage 'middle'", "transforms", "llvm", "asm"], module.ir, "middle")


# --- reports


def test_a_report_names_function_kernel_and_sizes_to_give(module):
    report = module.explain()
    assert report.startswith("attention in 'attend'")
    assert "kernel family" in report
    assert "--explain-size=" in report


def test_a_report_with_sizes_counts_tiles(module):
    report = module.explain("attend", b=1, h=2, q=32, k=48)
    assert "tiles: 1 of" in report
    assert "pairs: 1,536" in report


def test_the_record_of_a_report_has_its_numbers(module, said):
    record = module.explain_record("attend", b=1, h=2, q=32, k=48, nothing=1)
    assert [str(warning.message) for warning in said] == ["no attention uses the size 'attend:nothing'"]
    assert record["version"] == 1
    (report,) = record["reports"]
    (attention,) = report["attentions"]
    assert attention["numbers"]["pairs"]["all"] == 32 * 48
    assert attention["numbers"]["sizes"] == {"b": 1, "h": 2, "q": 32, "k": 48}
    text = module.explain("attend", b=1, h=2, q=32, k=48)
    for part in (*attention["kernels"], *attention["lines"]):
        assert f"{part['name']}: " in text
    assert all(line["text"] in text for line in attention["lines"])
    refused(KeyError, ["no public function 'another'"], lambda: module.explain_record("another", q=32))


def test_a_size_that_nothing_uses_is_a_warning(module, said):
    assert "attend" in module.explain("attend", b=1, h=2, q=32, k=48, nothing=1)
    assert [str(warning.message) for warning in said] == ["no attention uses the size 'attend:nothing'"]
    assert said[0].filename == __file__


def test_a_report_on_a_missing_function_is_refused(module):
    words = ["no public function 'another'", "it has: attend"]
    refused(KeyError, words, lambda: module.explain("another", q=32))


def test_sizes_that_are_no_extents_are_refused(module):
    refused(ValueError, ["size 'q=-1' is negative"], module.explain, q=-1)
    refused(TypeError, ["size q is 'many', expected an int"], module.explain, q="many")


def test_a_report_says_why_a_softmax_is_not_raised():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report = saccade.compile(ALONE).explain()
    assert f"softmax at <program>:3:8: {REASON}" in report
    assert report.count("not raised") == 1


def test_remarks_are_warnings(said):
    saccade.compile(ALONE, remarks=True)
    assert len(said) == 1
    assert REASON in str(said[0].message)


# --- errors


@pytest.fixture(scope="module")
def error(root):
    wrong = (root / "test" / "Tools" / "Inputs" / "wrong-heads.mlir").read_text()
    words = ["<program>:2:8: error: ", "query has 7 heads, expected a multiple of the 2 KV heads"]
    return refused(saccade.CompileError, words, saccade.compile, wrong)


def test_an_error_of_the_compiler_is_a_value_error(error):
    assert isinstance(error, ValueError)


def test_an_error_has_diagnostics_with_places(error):
    (diagnostic, *_) = error.diagnostics
    assert diagnostic[:4] == ("error", "<program>", 2, 8)
    assert "query has 7 heads" in diagnostic.message
    assert diagnostic.text.splitlines()[2].strip() == "^"
    assert diagnostic.text in str(error)


def test_an_error_is_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error)
    assert again.diagnostics == error.diagnostics


def test_an_error_in_a_file_names_the_file(tmp_path):
    file = tmp_path / "attend.mlir"
    file.write_text("func.func @attend(%q: tensor<")
    error = refused(saccade.CompileError, [f"{file}:1:"], saccade.compile, file)
    assert error.diagnostics[0].file == str(file)


def test_bytes_that_are_no_program_are_refused():
    refused(saccade.CompileError, ["error"], saccade.compile, bytes(range(256)) * 8)


# --- lint


@pytest.fixture(scope="module")
def lintable(root):
    return (root / "test" / "Tools" / "Inputs" / "wrong-scale.mlir").read_text()


def test_without_lint_there_is_no_warning(lintable, said):
    saccade.compile(lintable)
    assert not said


def test_lint_warns_at_the_caller(lintable, said):
    saccade.compile(lintable, lint=True)
    assert len(said) == 1
    assert said[0].category is saccade.Warning
    assert said[0].filename == __file__
    assert "warning: scale is 1/√512" in str(said[0].message)


@pytest.mark.parametrize(("severity", "text", "fields"), [
    ("error", "a.mlir:3:7: error: no\n  line\n  ^", ("a.mlir", 3, 7, "no")),
    ("error", "a:b.mlir:3:7: error: no", ("a:b.mlir", 3, 7, "no")),
    ("error", "a.mlir:3:7: error: at b.mlir:4:8: error: no", ("a.mlir", 3, 7, "at b.mlir:4:8: error: no")),
    ("warning", "error: warning: no", ("error", None, None, "no")), ("remark", "<unknown>:0: remark: yes", ("<unknown>:0", None, None, "yes")),
    ("error", "model.onnx: error: no", ("model.onnx", None, None, "no")), ("error", "error: no", (None, None, None, "no")),
    ("note", "no: such: thing", (None, None, None, "no: such: thing")), ("error", "no\nerror: yes\n", (None, None, None, "no")),
], ids=str)  # fmt: skip
def test_diagnostics_are_parsed(severity, text, fields):
    found = Diagnostic.parse(severity, text)
    assert found == (severity, *fields, text.rstrip())
