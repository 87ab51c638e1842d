"""Whole models as ONNX Runtime's transformer optimizer writes them, with its operators of attention, agree with the runtime
in every size, and each operator runs as kernels of attention. Exporting takes most of the time: a run has a sample of
the models (Inputs/sampled.py)."""

import pathlib
import sys

import pytest

for package in ("onnx", "onnxruntime", "onnxscript", "transformers"):
    pytest.importorskip(package)

import numpy as np
import onnxruntime

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "benchmarks"))
from saccade.onnx import backend
from saccade_bench.runtime_models import MODELS, TINY, genai, genai_inputs, inputs_of, optimized

pytestmark = pytest.mark.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
SIZES = [{"batch": 2, "length": 12}, {"batch": 3, "length": 29}, {"batch": 1, "length": 1}]


def compare(made, every_inputs):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    kinds = {"tensor(int64)": np.int64, "tensor(int32)": np.int32, "tensor(float)": np.float32}
    prepared = backend.prepare(made)
    for inputs in every_inputs:
        inputs = {each.name: inputs[each.name].astype(kinds[each.type]) for each in session.get_inputs()}
        for x, y in zip(prepared.run(inputs), session.run(None, inputs), strict=True):
            assert (x.dtype, x.shape) == (y.dtype, y.shape)
            np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)
    return prepared.module.explain()


def count(made):
    """The operators of attention in a model."""
    names = [node.op_type for node in made.graph.node]
    return {name: names.count(name) for name in ("Attention", "MultiHeadAttention", "Softmax") if name in names}


def check_report(report, attentions):
    assert report.count("attention in ") == attentions, report
    assert "kernel family" in report, report


@pytest.mark.parametrize("name", list(MODELS))
def test_a_model_of_the_optimizer(name, tmp_path):
    made = optimized(name, TINY, tmp_path)
    expected = {kind: n * TINY.layers for kind, n in MODELS[name].operators.items()}
    assert count(made) == expected
    cached = [{"batch": 2, "length": 1, "past": 20}, {"batch": 1, "length": 7, "past": 0}]
    report = compare(made, [inputs_of(name, TINY, **each) for each in SIZES + cached * (name == "gpt2-cached")])
    check_report(report, sum(expected.values()))


@pytest.mark.parametrize(("name", "attentions", "attention"), [
    ("bert", 2, "eager"), ("bert", 2, "sdpa"), ("vit", 2, "eager"), ("t5-encoder", 2, "eager"), ("t5-encoder", 2, "sdpa"),
    ("t5-decoder", 4, "eager"), ("t5-decoder", 4, "sdpa")])  # fmt: skip
def test_attention_that_the_optimizer_leaves(name, attentions, attention, tmp_path):
    """What torch.export writes is not fused by the optimizer, but by Saccade."""
    made = optimized(name, TINY, tmp_path, attention)
    assert count(made) == {"Softmax": attentions}
    check_report(compare(made, [inputs_of(name, TINY, **each) for each in SIZES]), attentions)


def test_a_decoder_of_the_model_builder():
    """Prompts of any length, single tokens behind a cache that grows, and one with capacity for more."""
    sizes = [(2, 12, 0), (1, 1, 7), (3, 1, 30), (2, 5, 0, 40), (2, 1, 20, 40), (1, 3, 20, 40)]
    report = compare(genai(TINY), [genai_inputs(TINY, *each) for each in sizes])
    check_report(report, TINY.layers)
