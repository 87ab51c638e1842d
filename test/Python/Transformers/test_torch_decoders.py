"""Decoders that PyTorch exports agree with PyTorch: GPT-2, Llama with grouped heads and rotary positions, T5 with both
halves. Each softmax is raised to an attention, with the KV heads that the model has."""

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch_models import check

HALF = {"type": torch.bfloat16, "tolerance": 1e-2}


@pytest.mark.parametrize(("model", "attention", "raised", "options"), [
    pytest.param("gpt2", "eager", 2, {"dynamic": True}, id="gpt2-eager-dynamic"),
    pytest.param("llama", "sdpa", 2, HALF, id="llama-sdpa-bf16"),
    pytest.param("t5", "sdpa", 6, {}, id="t5-sdpa"),
])  # fmt: skip
def test_decoder_agrees_and_is_raised(model, attention, raised, options):
    check(model, attention, raised, **options)


@pytest.mark.parametrize(("attention", "dynamic", "extent"), [("sdpa", True, "?"), ("eager", False, "12")])
def test_grouped_heads_are_not_repeated(attention, dynamic, extent):
    text = check("llama", attention, 2, dynamic=dynamic)
    assert f"x2x{extent}x16xf32>) -> " in text or f"x{extent}x2x16xf32>) -> " in text, text
