"""Model families of `transformers` that use its attention interface: small configurations with random weights."""

import dataclasses
import logging
import os
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
logging.disable(logging.WARNING)

import torch
import transformers

LENGTH = 12
SIZES = {"vocab_size": 100, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
DECODER = {**SIZES, "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 32}
BART = {"vocab_size": 100, "d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": None, "decoder_start_token_id": 1, "forced_eos_token_id": None}
T5 = {"vocab_size": 100, "d_model": 64, "d_kv": 16, "d_ff": 64, "num_layers": 2, "num_heads": 4, "pad_token_id": 0,
      "decoder_start_token_id": 1, "eos_token_id": None}
LATENT = {"kv_lora_rank": 16, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
          "head_dim": 8, "num_key_value_heads": 4}


@dataclasses.dataclass
class Family:
    """A model class and its configuration."""

    model: str
    config: str
    settings: dict
    kind: str = "decoder"
    """"encoder", "decoder", "encoder-decoder", "image" or "text and image"."""

    def build(self):
        torch.manual_seed(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = getattr(transformers, self.config)(**self.settings)
            model = getattr(transformers, self.model)._from_config(config, attn_implementation="eager").eval()
        for parameter in model.parameters():
            # Initial weights give equal weights to all keys, so that errors of scores and masks would not show.
            if parameter.ndim >= 2 or parameter.shape == (4,):
                torch.nn.init.normal_(parameter, std=0.2)
        return model


FAMILIES = {
    "bert": Family("BertModel", "BertConfig", SIZES, "encoder"),
    "roberta": Family("RobertaModel", "RobertaConfig", {**SIZES, "pad_token_id": 0}, "encoder"),
    "distilbert": Family("DistilBertModel", "DistilBertConfig",
                         {"vocab_size": 100, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}, "encoder"),
    "modernbert": Family("ModernBertModel", "ModernBertConfig",
                         {**SIZES, "local_attention": 6, "global_attn_every_n_layers": 2, "pad_token_id": 0}, "encoder"),
    "gpt2": Family("GPT2LMHeadModel", "GPT2Config",
                   {"vocab_size": 100, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 1, "eos_token_id": None}),
    "gpt_neox": Family("GPTNeoXForCausalLM", "GPTNeoXConfig", {**SIZES, "bos_token_id": 1, "eos_token_id": None}),
    "llama": Family("LlamaForCausalLM", "LlamaConfig", DECODER),
    "llama4": Family("Llama4ForCausalLM", "Llama4TextConfig",
                     {**DECODER, "intermediate_size_mlp": 64, "num_local_experts": 2, "attention_chunk_size": 5,
                      "layer_types": ["chunked_attention", "full_attention"]}),
    "mistral": Family("MistralForCausalLM", "MistralConfig", {**DECODER, "sliding_window": 4}),
    "qwen3": Family("Qwen3ForCausalLM", "Qwen3Config", DECODER),
    "gemma2": Family("Gemma2ForCausalLM", "Gemma2Config",
                     {**DECODER, "sliding_window": 4, "attn_logit_softcapping": 2.0, "query_pre_attn_scalar": 4}),
    "gemma3": Family("Gemma3ForCausalLM", "Gemma3TextConfig",
                     {**DECODER, "sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}),
    "gpt_oss": Family("GptOssForCausalLM", "GptOssConfig",
                      {**DECODER, "sliding_window": 4, "num_local_experts": 2, "num_experts_per_tok": 1}),
    "deepseek_v3": Family("DeepseekV3ForCausalLM", "DeepseekV3Config",
                          {**DECODER, **LATENT, **MOE, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                           "first_k_dense_replace": 1}),
    "deepseek_v32": Family("DeepseekV32ForCausalLM", "DeepseekV32Config",
                           {**DECODER, **LATENT, **MOE, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
                            "first_k_dense_replace": 1, "index_topk": 4, "index_head_dim": 16, "index_n_heads": 2}),
    # Appends compressed keys in its layers, and extends its mask for them.
    "deepseek_v4": Family("DeepseekV4ForCausalLM", "DeepseekV4Config",
                          {**DECODER, **MOE, "num_hidden_layers": 3, "num_key_value_heads": 1, "q_lora_rank": 32,
                           "n_routed_experts": 4, "num_local_experts": 4, "sliding_window": 4, "o_groups": 2,
                           "o_lora_rank": 16, "hc_mult": 2, "index_topk": 2, "index_head_dim": 16, "index_n_heads": 2,
                           "compress_rates": {"compressed_sparse_attention": 2, "heavily_compressed_attention": 4},
                           "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention",
                                           "sliding_attention"],
                           "mlp_layer_types": ["hash_moe", "moe", "moe"]}),
    "t5": Family("T5ForConditionalGeneration", "T5Config", T5, "encoder-decoder"),
    "bart": Family("BartForConditionalGeneration", "BartConfig", BART, "encoder-decoder"),
    "whisper": Family("WhisperForConditionalGeneration", "WhisperConfig",
                      {**BART, "num_mel_bins": 8, "max_source_positions": 8, "max_target_positions": 64,
                       "begin_suppress_tokens": None, "suppress_tokens": None}, "sound"),
    "vit": Family("ViTModel", "ViTConfig", {**SIZES, "image_size": 32, "patch_size": 8}, "image"),
    "swin": Family("SwinModel", "SwinConfig", {"image_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 32,
                                               "depths": [2, 2], "num_heads": [2, 4]}, "image"),
    "clip": Family("CLIPModel", "CLIPConfig",
                   {"text_config": {**SIZES, "eos_token_id": 99}, "projection_dim": 32,
                    "vision_config": {**SIZES, "image_size": 32, "patch_size": 8}}, "text and image"),
}


def padding(side, lengths=(LENGTH, LENGTH - 5)):
    """The 2-D mask of a padded batch; `side` "left", "right" or "middle", a hole that is no length."""
    mask = torch.ones(len(lengths), LENGTH, dtype=torch.int64)
    for row, length in zip(mask, lengths):
        start = {"left": 0, "right": length, "middle": 3}[side]
        row[start : start + LENGTH - length] = 0
    return mask


def inputs_of(family, side=None):
    """Inputs of a batch of two by name; `side` as in `padding`, None for no mask."""
    torch.manual_seed(1)
    given = {}
    if family.kind in ("image", "text and image"):
        given["pixel_values"] = torch.randn(2, 3, 32, 32)
    if family.kind == "sound":
        given["input_features"] = torch.randn(2, 8, 16)
    elif family.kind != "image":
        given["input_ids"] = torch.randint(2, 99, (2, LENGTH))
        if side is not None:
            given["attention_mask"] = padding(side)
    if family.kind in ("encoder-decoder", "sound"):
        given["decoder_input_ids"] = torch.randint(2, 99, (2, 7))
    return given


def outputs_of(model, given, implementation):
    """The outputs by name, after switching the attention implementation."""
    model.set_attn_implementation(implementation)
    with torch.no_grad():
        result = model(**given)
    return {name: value for name, value in result.items() if isinstance(value, torch.Tensor)}
