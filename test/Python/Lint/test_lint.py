"""`saccade.lint` finds each mistake of Inputs/lint_models.py, and nothing in what is correct."""

import contextlib
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import handwritten
import lint_models
from lint_models import CORRECT, MISTAKES

import saccade
import saccade.torch
from saccade.linting import RULES

pytestmark = pytest.mark.usefixtures("no_warning_yet")


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found(name):
    rule, make = MISTAKES[name]
    torch.manual_seed(0)
    refused = pytest.raises(RuntimeError) if name.endswith("longer") else contextlib.nullcontext()
    with torch.no_grad(), saccade.lint() as report, refused:
        make()
    assert list(report.rules) == [rule], str(report)
    (finding,) = report.findings
    assert finding.message and finding.instead and finding.place.startswith(lint_models.__file__), finding


def test_every_rule_has_a_mistake():
    assert {rule for rule, _ in MISTAKES.values()} == set(RULES)


@pytest.mark.parametrize("name", CORRECT)
def test_correct_attention_is_not_reported(name):
    torch.manual_seed(0)
    with torch.no_grad(), saccade.lint() as report:
        CORRECT[name]()
    assert not report, str(report)


PLAIN = ("Plain", "ScaledQueries", "Windows", "ChannelsFirst", "OneHeadOfKeys", "Added", "ThreeDimensions", "InPlace",
         "Pooled", "Gated", "LinearAttention", "NormalisedSigmoid")  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_attention_of_other_libraries_is_not_reported(name):
    module = getattr(handwritten, name)().eval()
    with torch.no_grad(), saccade.lint() as report:
        module(torch.randn(module.shape))
    assert not report, str(report)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("name", ["bert", "vit", "swin", "t5", "gpt2", "llama"])
def test_models_of_transformers_are_not_reported(name, attention):
    small_models = pytest.importorskip("small_models")
    model = small_models.MODELS[name]()
    model.set_attn_implementation(attention)
    with torch.no_grad(), saccade.lint() as report:
        model(**small_models.inputs_of(name, 2, 16))
    assert not report, str(report)


def test_findings_name_module_and_place_and_count():
    model = torch.nn.Sequential(lint_models.EmbedSize(), lint_models.EmbedSize())
    with torch.no_grad(), saccade.lint() as report:
        for _ in range(3):
            model(lint_models.tokens())
    assert list(report.findings.values()) == [3, 3] and len(report) == 2
    first, second = report.findings
    assert (first.module, second.module) == ("0", "1") and first.place == second.place
    line = int(first.place.rpartition(":")[2])
    with open(lint_models.__file__, encoding="utf-8") as file:
        assert "F.softmax(energy / self.size" in file.read().splitlines()[line - 1]
    assert "scale is 1/√64, the width of all 4 heads together; expected 1/√16, the head size" in str(report)
    assert "2 likely mistakes" in str(report) and "3 calls" in str(report)


def test_rules_are_ignored_by_name():
    with torch.no_grad(), saccade.lint(ignore=["scale-width"]) as report:
        lint_models.EmbedSize()(lint_models.tokens())
    assert not report
    with torch.no_grad(), saccade.lint(ignore="scale-width") as report:
        lint_models.EmbedSize()(lint_models.tokens())
    assert not report and str(report) == "lint: 0 likely mistakes in attention"
    message = r"ignore has 'scale', expected names of layout, .*scale-width"
    with pytest.raises(ValueError, match=message), saccade.lint(ignore=["scale"]):
        pass


def test_blocks_without_attention_say_so():
    with saccade.lint() as report:
        torch.nn.Linear(3, 3)(torch.ones(2, 3)).softmax(-1)
    assert not report and str(report).startswith("lint: no attention was seen: ") and "flex_attention" in str(report)


@pytest.mark.parametrize("name", ["SDPA", "by hand", "nn.MultiheadAttention", "decoding, bottom right"])
def test_blocks_with_correct_attention_have_no_mistakes(name):
    with torch.no_grad(), saccade.lint() as report:
        CORRECT[name]()
    assert str(report) == "lint: 0 likely mistakes in attention"


def test_numbers_that_hide_a_row_are_replaced_by_what_is_not_nan():
    """NaN would be the result of -inf alone; "hidden rows are zero" of CORRECT is the line that is suggested."""
    for hidden, expected in (lint_models.some_rows(), True), (~lint_models.causal(), False):
        def attend(q, k, v, hidden=hidden):
            return lint_models.filled(hidden, -1e9, q, k, v)

        with torch.no_grad(), saccade.lint() as report:
            lint_models.model(attend)()
        (finding,) = report.findings
        assert ("weights.masked_fill(hidden.all(-1, keepdim=True), 0)" in finding.instead) is expected


def test_reports_are_printed_after_an_exception(capsys):
    with pytest.raises(RuntimeError), saccade.lint(explain=True):
        lint_models.OneHead(is_cut=False)(lint_models.tokens(width=32))
    assert "mask covers 16 × 16 positions, which is the head size" in capsys.readouterr().err


@pytest.mark.usefixtures("dynamo")
def test_compiled_and_exported_models_are_checked():
    model, x = lint_models.EmbedSize().eval(), lint_models.tokens()
    compiled = torch.compile(model, backend="eager")
    exported = torch.export.export(model, (x,)).module()
    for run in (compiled, exported):
        with torch.no_grad(), saccade.lint() as report:
            run(x)
        assert list(report.rules) == ["scale-width"], str(report)


def test_the_drop_in_functions_are_checked():
    q = torch.randn(1, 2, 1, 8)
    k = torch.randn(1, 2, 9, 8)
    for call in (lambda: saccade.torch.scaled_dot_product_attention(q, k, k, is_causal=True),
                 lambda: torch.nn.functional.scaled_dot_product_attention(q, k, k, is_causal=True)):
        with saccade.lint() as report, saccade.torch.enabled(), torch.no_grad():
            call()
        assert list(report.findings.values()) == [1] and list(report.rules) == ["alignment"], str(report)


def test_arrays_of_numpy_are_checked():
    q, k = np.ones((1, 2, 1, 8), np.float32), np.ones((1, 2, 9, 8), np.float32)
    with saccade.lint() as report:
        saccade.attention(q, k, k, causal="top_left", scale=1 / 8)
    assert list(report.rules) == ["alignment", "scale-root"]


def test_threads_of_the_block_are_checked_and_others_are_not():
    def run():
        lint_models.EmbedSize()(lint_models.tokens())
        saccade.attention(*[np.ones((1, 2, 4, 8), np.float32)] * 3, scale=1 / 8)

    is_open, is_done = threading.Event(), threading.Event()

    def wait():
        is_open.wait()
        run()
        is_done.set()

    other = threading.Thread(target=wait)
    other.start()
    with saccade.lint() as report:
        is_open.set()
        assert is_done.wait(60)
        other.join()
        assert not report
        own = threading.Thread(target=run)
        own.start()
        own.join()
    assert set(report.rules) == {"scale-width", "scale-root"}


def test_results_are_unchanged_and_nothing_is_left():
    model, x = lint_models.EmbedSize(), lint_models.tokens()
    expected = model(x)
    with saccade.lint() as report:
        torch.testing.assert_close(model(x), expected, rtol=0, atol=0)
    model(x)
    assert list(report.findings.values()) == [1]


def test_calls_in_unusual_forms_are_those_without():
    layer = torch.nn.Linear(8, 8)
    x = torch.randn(2, 3, 8)
    with saccade.lint():
        assert layer(x).transpose(1, dim1=2).shape == (2, 8, 3)
        assert torch.t(input=layer(x[0])).shape == (8, 3)
        assert torch.embedding(layer.weight, torch.tensor(3)).shape == (8,)
        assert torch.embedding(weight=layer.weight, indices=torch.tensor([3])).shape == (1, 8)
        with pytest.raises(TypeError, match="k is an int, expected"):
            saccade.attention(x[None], 3, x[None])


def test_the_guide_has_a_row_for_every_rule(root):
    lines = (root / "docs" / "guides" / "lint.md").read_text(encoding="utf-8").splitlines()
    assert [line.split("`")[1] for line in lines if line.startswith("| `")] == list(RULES)
