"""Encoders that PyTorch exports agree with PyTorch: BERT, ViT, Swin, and BigBird and Longformer where their sparse form
is active. Each softmax is raised to an attention, except those over concatenated blocks, whose remarks say why."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch_models import check

HALF = {"type": torch.bfloat16, "tolerance": 1e-2}


@pytest.mark.parametrize(("model", "attention", "raised", "options"), [
    pytest.param("bert", "sdpa", 2, {"dynamic": True}, id="bert-sdpa-dynamic"),
    pytest.param("vit", "eager", 2, {}, id="vit-eager"),
    pytest.param("vit", "sdpa", 2, HALF, id="vit-sdpa-bf16"),
    pytest.param("swin", "sdpa", 4, {}, id="swin-sdpa"),
    pytest.param("bigbird", "eager", 8, {"length": 64, "left": 2}, id="bigbird-sparse"),
    pytest.param("longformer", "eager", 0, {"length": 64, "left": 2}, id="longformer-sparse"),
])  # fmt: skip
def test_encoder_agrees_and_is_raised(model, attention, raised, options):
    check(model, attention, raised, **options)
