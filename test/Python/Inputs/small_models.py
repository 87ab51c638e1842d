"""Small models of `transformers` with random weights, and what they take."""

import logging
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)  # exporters miss packages that these models do not need

import torch
import transformers

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def build(kind, config, **settings):
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(**settings)).eval()


MODELS = {
    "bert": lambda: build("BertModel", "BertConfig", vocab_size=100, **SIZES),
    "vit": lambda: build("ViTModel", "ViTConfig", image_size=32, patch_size=8, **SIZES),
    "swin": lambda: build("SwinModel", "SwinConfig", image_size=32, patch_size=2, window_size=4, embed_dim=32,
                          depths=[2, 2], num_heads=[2, 4]),
    "t5": lambda: build("T5ForConditionalGeneration", "T5Config", vocab_size=100, d_model=64, d_kv=16, d_ff=128,
                        num_layers=2, num_heads=4, use_cache=False),
    "gpt2": lambda: build("GPT2LMHeadModel", "GPT2Config", vocab_size=100, n_embd=64, n_layer=2, n_head=4,
                          bos_token_id=0, eos_token_id=0, use_cache=False),
    "llama": lambda: build("LlamaForCausalLM", "LlamaConfig", vocab_size=100, num_key_value_heads=2, use_cache=False,
                           **SIZES),
    "bigbird": lambda: build("BigBirdModel", "BigBirdConfig", vocab_size=100, block_size=4, num_random_blocks=1,
                             max_position_embeddings=130, **SIZES),
    "longformer": lambda: Local(build("LongformerModel", "LongformerConfig", vocab_size=100, attention_window=[8, 8],
                                      max_position_embeddings=130, **SIZES)),
}


class Local(torch.nn.Module):
    """Longformer without tokens that all others see: whether there are any is asked of data, which no graph can."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask):
        hidden = self.model.embeddings(input_ids)
        mask = (1 - attention_mask.to(hidden.dtype)) * -10000
        for layer in self.model.encoder.layer:
            result = layer(hidden, attention_mask=mask, is_index_masked=mask < 0, is_index_global_attn=mask > 0,
                           is_global_attn=False)
            hidden = result[0] if isinstance(result, tuple) else result
        return hidden


def inputs_of(name, batch, length):
    """What the model takes by name: the last row of tokens has padding at its end."""
    if name in ("vit", "swin"):
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    given = {"input_ids": torch.randint(2, 100, (batch, length))}
    if name == "gpt2":
        return given
    given["attention_mask"] = torch.ones(batch, length, dtype=torch.int64)
    given["attention_mask"][-1, length * 2 // 3:] = 0
    if name == "t5":
        given["decoder_input_ids"] = torch.randint(0, 100, (batch, length // 2))
    return given
