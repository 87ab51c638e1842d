"""Encoders that PyTorch exports to ONNX agree with PyTorch, and every softmax is raised to an attention."""

import pytest

pytest.importorskip("onnxscript")
pytest.importorskip("transformers")

from exported_models import check


@pytest.mark.parametrize(("model", "attention", "is_padded"), [("bert", "eager", True), ("vit", "sdpa", False)])
def test_exported_encoder_agrees_and_is_raised(model, attention, is_padded):
    check(model, attention, is_padded, 2)
