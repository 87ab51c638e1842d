"""The decoder as a GGUF file."""

import gguf

NAMES = {"attention.q": "attn_q", "attention.k": "attn_k", "attention.v": "attn_v", "attention.out": "attn_output",
         "feed.gate": "ffn_gate", "feed.up": "ffn_up", "feed.down": "ffn_down", "norm1": "attn_norm",
         "norm2": "ffn_norm"}


def interleaved(weight, heads):
    """The rows of q or k in llama.cpp's order, in which a rotated pair is two neighbours."""
    return weight.unflatten(0, (heads, 2, -1)).transpose(1, 2).reshape(weight.shape)


def separated(weight, heads):
    """The inverse of `interleaved`."""
    return weight.unflatten(0, (heads, -1, 2)).transpose(1, 2).reshape(weight.shape)


def parameters(decoder):
    """The name in the file, the parameter, and the number of heads if its rows are in llama.cpp's order, else None."""
    shape = decoder.shape
    yield "token_embd.weight", decoder.embedding.weight, None
    yield "output_norm.weight", decoder.norm.weight, None
    for i, block in enumerate(decoder.blocks):
        weights = dict(block.named_parameters())
        for name, own in NAMES.items():
            heads = {"attn_q": shape.heads, "attn_k": shape.kv_heads}.get(own)
            yield f"blk.{i}.{own}.weight", weights[f"{name}.weight"], heads


def write_gguf(decoder, path, store=lambda name, weight: (weight, None)):
    """Writes `decoder` to a GGUF file. `store` returns the array of a weight in the file, and its element type as a
    number of gguf, or None for that of the array."""
    shape = decoder.shape
    writer = gguf.GGUFWriter(path, "llama")
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
    for name, parameter, heads in parameters(decoder):
        weight = parameter.detach().float()
        weight = (interleaved(weight, heads) if heads else weight).contiguous().numpy()
        stored, kind = store(name, weight)
        writer.add_tensor(name, stored, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
