"""The decoder in llama.cpp, for compare.py: a GGUF file with its weights, and steps of generation.

Needs the packages gguf and llama-cpp-python, which builds llama.cpp. The matrices and the caches of keys and values are
f32, as those of the other steps.
"""

import ctypes

import llama_cpp
import torch
from gguf import GGUFWriter

NAMES = {"attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.out": "attn_output",
         "feed.gate": "ffn_gate", "feed.up": "ffn_up", "feed.down": "ffn_down", "norm1": "attn_norm",
         "norm2": "ffn_norm"}


def interleaved(weight, heads):
    """The rows of q or k in llama.cpp's order, in which a rotated pair is two neighbours."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)


def write_gguf(decoder, path):
    """Writes `decoder` to a GGUF file."""
    shape = decoder.shape
    writer = GGUFWriter(path, "llama")
    writer.add_context_length(shape.positions)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.hidden)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_vocab_size(shape.tokens)
    writer.add_tokenizer_model("none")
    tensors = {"token_embd": decoder.embedding.weight, "output_norm": decoder.norm.weight}
    for i, block in enumerate(decoder.blocks):
        weights = dict(block.named_parameters())
        for name, own in NAMES.items():
            tensors[f"blk.{i}.{own}"] = weights[f"{name}.weight"]
        for name, heads in (("attn_q", shape.heads), ("attn_k", shape.kv_heads)):
            tensors[f"blk.{i}.{name}"] = interleaved(tensors[f"blk.{i}.{name}"], heads)
    for name, weight in tensors.items():
        writer.add_tensor(f"{name}.weight", weight.detach().float().contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@llama_cpp.llama_log_callback
def _ignore(level, text, data):
    pass


class LlamaStep:
    """Steps of one sequence. The cache is that of llama.cpp; a step with length 0 clears it."""

    def __init__(self, decoder, path, threads):
        write_gguf(decoder, path)
        llama_cpp.llama_log_set(_ignore, None)
        llama_cpp.llama_backend_init()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = options.n_batch = options.n_ubatch = decoder.shape.positions
        options.n_threads = options.n_threads_batch = threads
        options.type_k = options.type_v = llama_cpp.GGML_TYPE_F32
        self.context, self.count = llama_cpp.llama_init_from_model(model, options), decoder.shape.tokens

    def __call__(self, tokens, lengths, caches):
        if int(lengths[0]) == 0:
            llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)
        own = (llama_cpp.llama_token * tokens.shape[1])(*tokens[0].tolist())
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(own, len(own))) != 0:
            raise RuntimeError("llama_decode failed")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return torch.frombuffer(ctypes.cast(logits, ctypes.POINTER(ctypes.c_float * self.count)).contents,
                                dtype=torch.float32)[None]
