"""`saccade.observe` on modules of PyTorch and models of Transformers."""

import numpy
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from torch import nn
from torch.nn.attention.flex_attention import create_block_mask

import saccade
import saccade.transformers

IDS = torch.arange(24).reshape(2, 12)
PADDING = torch.ones(2, 12, dtype=torch.long)
PADDING[1, 8:] = 0
SIZES = dict(vocab_size=100, bos_token_id=0, eos_token_id=1, pad_token_id=2)


@pytest.mark.parametrize("options", [{}, {"need_weights": False}, {"key_padding_mask": PADDING == 0}], ids=str)
@pytest.mark.parametrize("is_training", [True, False])
def test_multi_head_attention(options, is_training):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(32, 4, dropout=0.3, batch_first=True).train(is_training)
    x = torch.randn(2, 12, 32)
    torch.manual_seed(1)
    expected, weights = model(x, x, x, **options)
    with saccade.observe(model, maps=False) as record:
        torch.manual_seed(1)
        result, found = model(x, x, x, **options)
    assert torch.equal(result, expected)
    assert (found is None) == (weights is None)
    assert list(map(str, record.layers)) == ["MultiheadAttention"]
    with torch.no_grad():
        _, weights = model.eval()(x, x, x, average_attn_weights=False, **options | {"need_weights": True})
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean((0, 2))
    numpy.testing.assert_allclose(record.statistics["entropy"][0][0], entropy, rtol=1e-4)


@pytest.mark.parametrize("is_training", [True, False])
def test_encoder_of_pytorch(is_training):
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2).train(is_training)
    with torch.set_grad_enabled(is_training), saccade.observe(model, maps=False) as record:
        model(torch.randn(2, 12, 32))
    assert list(map(str, record.layers)) == ["layers.0.self_attn", "layers.1.self_attn"]


def bert():
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64)
    return transformers.BertModel, transformers.BertConfig(**sizes, **SIZES), "encoder.layer.{}.attention.self"


def llama():
    sizes = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=64)
    return transformers.LlamaModel, transformers.LlamaConfig(**sizes, **SIZES), "layers.{}.self_attn"


@pytest.mark.parametrize(("family", "implementation"), [
    (bert, "eager"), (llama, "eager"), (bert, "sdpa"), (llama, "sdpa"), (bert, "saccade"), (llama, "saccade")])  # fmt: skip
def test_models_of_transformers(family, implementation, no_grad):
    """Entropies are those of the weights that "eager" returns."""
    kind, config, name = family()
    torch.manual_seed(0)
    model = kind._from_config(config, attn_implementation="eager").eval()
    for each in model.parameters():
        each *= 3  # weights that are not about equal
    weights = model(IDS, attention_mask=PADDING, output_attentions=True).attentions
    model.set_attn_implementation(implementation)
    expected = model(IDS, attention_mask=PADDING)[0]
    with saccade.observe(model, maps=False) as record:
        result = model(IDS, attention_mask=PADDING)[0]
    assert torch.equal(result, expected)
    assert [each.name for each in record.layers] == [name.format(n) for n in range(2)]
    for found, each in zip(record.statistics["entropy"][0], weights):
        entropy = -(each * each.clamp(min=1e-30).log()).sum(-1).mean((0, 2))
        numpy.testing.assert_allclose(found, entropy, rtol=1e-3)
    assert all(each.causal == (family is llama) for each in record.layers)


class Flex(nn.Module):
    """A module that calls the function of Transformers for flex_attention."""

    def forward(self, q, k, v, mask):
        function = transformers.AttentionInterface().get_interface("flex_attention", None)
        return function(self, q, k, v, mask, scaling=0.3, softcap=5.0)[0]


@pytest.mark.parametrize("is_block_mask", [True, False])
def test_flex_attention_of_transformers(is_block_mask, monkeypatch):
    def compute(q, k, v, **options):  # the function compiles
        return q

    monkeypatch.setattr("transformers.integrations.flex_attention.compile_friendly_flex_attention", compute)
    q, k, v = torch.randn(3, 2, 4, 12, 8, generator=torch.Generator().manual_seed(0))
    causal = torch.ones(12, 12, dtype=torch.bool).tril()
    mask = torch.zeros(2, 1, 12, 12).masked_fill(~causal, torch.finfo(torch.float32).min)
    if is_block_mask:
        mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 12, 12, "cpu")
    with saccade.observe(model := Flex(), maps=False) as record:
        model(q, k, v, mask)
    scores = 5 * torch.tanh(q @ k.mT * 0.3 / 5)
    weights = scores.masked_fill(~causal, -torch.inf).softmax(-1)
    entropy = -(weights * weights.clamp(min=1e-30).log()).sum(-1).mean((0, 2))
    numpy.testing.assert_allclose(record.statistics["entropy"][0][0], entropy, rtol=1e-4)


def test_generated_tokens_are_steps(no_grad):
    config = llama()[1]
    model = transformers.LlamaForCausalLM._from_config(config, attn_implementation="sdpa").eval()
    with saccade.observe(model, every=2, maps=False) as record:
        model.generate(IDS[:1], max_new_tokens=6, min_new_tokens=6, do_sample=False)
    assert record.steps == [0, 2, 4]
    layer = record.layers[0]
    assert (layer.heads, layer.queries, layer.keys) == (4, 1, 16)
