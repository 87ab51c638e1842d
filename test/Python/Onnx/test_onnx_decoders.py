"""Decoders that PyTorch exports to ONNX agree with PyTorch, and every softmax is raised to an attention: GPT-2, Llama
with grouped heads and rotary positions, T5 with both halves."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from exported_models import check


@pytest.mark.parametrize(("model", "attention", "dynamic", "raised"), [
    ("gpt2", "sdpa", False, 2), ("llama", "eager", True, 2), ("t5", "eager", False, 6),
])  # fmt: skip
def test_exported_decoder_agrees_and_is_raised(model, attention, dynamic, raised):
    check(model, attention, dynamic, raised)
