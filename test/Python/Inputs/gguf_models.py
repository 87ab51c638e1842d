"""Small language models of Transformers with random weights, and GGUF files of them, which the package gguf writes."""

import gguf
import numpy as np
import torch
import transformers

COMMON = dict(vocab_size=96, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=256, attn_implementation="eager")
CLASSES = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma", "gemma2": "Gemma2",
           "gemma3": "Gemma3"}
OWN = {
    "llama": dict(rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0}),
    "qwen2": dict(rms_norm_eps=1e-6, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen3": dict(rms_norm_eps=1e-6, head_dim=24, tie_word_embeddings=True),
    "gemma": dict(head_dim=32, num_key_value_heads=1),
    "gemma2": dict(head_dim=32, num_hidden_layers=3, sliding_window=7, query_pre_attn_scalar=32,
                   attn_logit_softcapping=2.0, final_logit_softcapping=3.0),
    "gemma3": dict(head_dim=32, num_hidden_layers=7, sliding_window=7, query_pre_attn_scalar=32),
}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
         "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm"}


def make(architecture, **changes):
    """A model with weights that are large enough for every part to matter."""
    name = CLASSES[architecture]
    config = getattr(transformers, f"{name}{'Text' if name == 'Gemma3' else ''}Config")(
        **{**COMMON, **OWN[architecture], **changes})
    torch.manual_seed(0)
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval().requires_grad_(False)
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name:
            parameter += 0.3 * torch.randn_like(parameter)
        elif parameter.ndim == 1:
            parameter += torch.randn_like(parameter)
        elif "embed" not in parameter_name:
            parameter *= 6
    return model


def tensors(architecture, model, config=None, state=None):
    """The tensors of a file by name, as llama.cpp stores them: those of a model, or of its `state`."""
    config, found = config or model.config, {}
    for name, value in (state or model.state_dict()).items():
        value = value.detach().float().numpy()
        stem, _, kind = name.removeprefix("model.").rpartition(".")
        if stem == "lm_head" and config.tie_word_embeddings:
            continue
        if architecture.startswith("gemma") and stem.endswith("norm"):
            value = value + np.float32(1)
        if stem.startswith("layers."):
            _, layer, part = stem.split(".", 2)
            is_post = architecture in ("gemma2", "gemma3")
            norms = {"post_attention_layernorm": "post_attention_norm" if is_post else "ffn_norm",
                     "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm"}
            own = {**NAMES, **norms}[part]
            if architecture == "llama" and own in ("attn_q", "attn_k"):  # rotated pairs are neighbours
                heads = config.num_attention_heads if own == "attn_q" else config.num_key_value_heads
                value = value.reshape(heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
            stem = f"blk.{layer}.{own}"
        else:
            stem = {"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"}[stem]
        found[f"{stem}.{kind}"] = value
    return found


def assign(architecture, model, meant):
    """Gives the matrices of a model the numbers `meant` of a file, by the names of tensors. Not for llama, whose file
    has other orders of rows."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            (own,) = tensors(architecture, None, model.config, {name: parameter})
            parameter.copy_(torch.from_numpy(np.array(meant[own])))


def writer(path, architecture, config, metadata):
    """A writer with the metadata of a model; `metadata` has further keys of the architecture, with dots as __."""
    out = gguf.GGUFWriter(path, architecture)
    out.add_context_length(config.max_position_embeddings)
    out.add_embedding_length(config.hidden_size)
    out.add_block_count(config.num_hidden_layers)
    out.add_feed_forward_length(config.intermediate_size)
    out.add_head_count(config.num_attention_heads)
    out.add_head_count_kv(config.num_key_value_heads)
    out.add_layer_norm_rms_eps(config.rms_norm_eps)
    depth = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    out.add_key_length(depth)
    out.add_value_length(depth)
    out.add_rope_dimension_count(depth)
    parameters = config.rope_parameters
    out.add_rope_freq_base(parameters.get("full_attention", parameters)["rope_theta"])
    if architecture in ("gemma2", "gemma3"):
        out.add_sliding_window(config.sliding_window)
    if architecture == "gemma2":
        out.add_attn_logit_softcapping(config.attn_logit_softcapping)
        out.add_final_logit_softcapping(config.final_logit_softcapping)
    out.add_vocab_size(config.vocab_size)
    add_vocabulary(out, config.vocab_size)
    for key, value in metadata.items():
        key = f"{architecture}.{key.replace('__', '.')}"
        out.kv_data[0].pop(key, None)
        out.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    return out


def add_vocabulary(out, count):
    """Texts and scores of tokens, which Saccade leaves to the tokenizer's library."""
    out.add_tokenizer_model("llama")
    out.add_token_list([f"<{i}>" for i in range(count)])
    out.add_token_scores([0.0] * count)
    out.add_token_types([1] * count)
    out.add_eos_token_id(count - 1)


def save(path, architecture, model, types=None, more=None, replaced=None, **metadata):
    """Writes a model to a file. `types` has gguf's element types by the names of tensors, `more` further tensors;
    others are f32. `metadata` and `replaced` have keys of the architecture, with dots as __. Returns the numbers that
    the file means, by name."""
    out, meant = writer(path, architecture, model.config, {**metadata, **(replaced or {})}), {}
    for name, value in {**tensors(architecture, model), **(more or {})}.items():
        kind = (types or {}).get(name, gguf.GGMLQuantizationType.F32)
        stored = value if kind == gguf.GGMLQuantizationType.F32 else gguf.quantize(value, kind)
        meant[name] = value if stored is value else gguf.dequantize(stored, kind)
        out.add_tensor(name, stored, raw_dtype=None if stored is value else kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return meant
