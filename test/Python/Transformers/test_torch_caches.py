"""Whole Transformers models with their default cache through torch.export, and arguments that are not a tuple."""

import warnings

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers_families import FAMILIES, inputs_of

import saccade.torch
import saccade.transformers

assert saccade.transformers.NAME in transformers.AttentionInterface()


def compiled(*args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations inside of torch.export
        return saccade.torch.compile(*args, **kwargs)


@pytest.mark.parametrize("implementation", ["sdpa", "saccade"])
def test_default_cache(implementation):
    """The cache is returned, and taken by another program for the next token."""
    model = FAMILIES["llama"].build()
    model.set_attn_implementation(implementation)
    tokens = torch.randint(2, 99, (2, 9))
    with torch.no_grad():
        prefill = compiled(model, (tokens[:, :8],))(tokens[:, :8])
        expected = model(tokens[:, :8])
        assert type(prefill.past_key_values) is transformers.DynamicCache
        assert torch.allclose(prefill.logits, expected.logits, atol=1e-4)
        given = {"past_key_values": prefill.past_key_values, "use_cache": True}
        step = compiled(model, (tokens[:, 8:],), given)(tokens[:, 8:], **given)
        expected = model(tokens[:, 8:], past_key_values=expected.past_key_values)
    assert torch.allclose(step.logits, expected.logits, atol=1e-4)
    for found, layer in zip(step.past_key_values.layers, expected.past_key_values.layers, strict=True):
        assert torch.allclose(found.keys, layer.keys, atol=1e-5) and torch.allclose(found.values, layer.values, atol=1e-5)


def test_sliding_cache():
    model = FAMILIES["mistral"].build()
    tokens = torch.randint(2, 99, (2, 8))
    with torch.no_grad():
        found, expected = compiled(model, (tokens,))(tokens), model(tokens)
    assert torch.allclose(found.logits, expected.logits, atol=1e-4)
    assert [each.keys.shape for each in found.past_key_values.layers] == [(2, 2, 3, 16)] * 2


def test_encoder_decoder_cache():
    model, given = FAMILIES["t5"].build(), inputs_of(FAMILIES["t5"], "right")
    found = compiled(model, (), given)(**given)
    with torch.no_grad():
        expected = model(**given)
    assert type(found.past_key_values) is transformers.EncoderDecoderCache
    assert torch.allclose(found.logits, expected.logits, atol=1e-4)


@pytest.mark.parametrize("args", [torch.zeros(2, 4), [torch.zeros(2, 4)]], ids=["tensor", "list"])
def test_arguments_that_are_no_tuple(args):
    """The message is torch.export's."""
    with pytest.raises(Exception, match="Expecting `args` to be a tuple of example positional inputs, got"):
        saccade.torch.compile(torch.nn.Linear(4, 4), args)
