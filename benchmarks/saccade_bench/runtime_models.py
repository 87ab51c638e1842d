"""Models with random weights as ONNX Runtime's transformer optimizer writes them: whole models of `transformers`, and a
decoder as the model builder of onnxruntime-genai writes it.

The optimizer finds attention by the form of its ops. `transformers` writes that form for BERT only. For ViT, GPT-2 and
Whisper, an attention function with the form that `transformers` 4 had is registered, and the optimizer does the rest.
What it makes of T5 needs RelativePositionBias, which ONNX Runtime has no CPU kernel for. T5 has an attention function
that is exported as MultiHeadAttention itself, with relative positions in the bias.
"""

import contextlib
import dataclasses
import io
import logging
import math
import os
import pathlib
from collections.abc import Callable
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import onnx
import torch
import transformers
from onnx import TensorProto, helper, numpy_helper

OPSET = 17  # of the exporter whose graphs the optimizer knows


@dataclasses.dataclass(frozen=True)
class Size:
    """Extents of a model. `positions` bounds the length of a sequence."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    positions: int
    image: int
    patch: int
    frames: int
    """Positions of Whisper's encoder."""

    @property
    def depth(self):
        return self.width // self.heads


TINY = Size(layers=2, width=64, heads=4, vocabulary=100, positions=64, image=32, patch=8, frames=24)
BASE = Size(layers=4, width=768, heads=12, vocabulary=1000, positions=2048, image=224, patch=16, frames=1500)


# --- attention of transformers 4 ---------------------------------------------------------------------------------------


def divided(module, query, key, value, mask, **_):
    """Scores are divided by √d, as in ViT of transformers 4."""
    weights = torch.softmax(query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]), -1)
    return (weights @ value).transpose(1, 2), None


def of_scaled_queries(module, query, key, value, mask, **_):
    """Queries are scaled before, as in BART and Whisper. Decoders are causal."""
    scores = query @ key.transpose(-1, -2)
    if module.is_causal:
        at = torch.arange(query.shape[2])
        scores = scores + torch.where(at[None] <= at[:, None], 0.0, torch.finfo(scores.dtype).min)
    return (torch.softmax(scores, -1) @ value).transpose(1, 2), None


def extent_of(tensor, dim):
    """An extent as the exporter wrote it for `transformers` 4: Shape, Slice, Squeeze."""
    extents = torch._shape_as_tensor(tensor)
    return (extents[dim:] if dim == -1 else extents[dim : dim + 1]).squeeze(0)


def cut_from_triangle(module, query, key, value, mask, padding=None, **_):
    """The causal mask is a part of a constant, as in GPT-2 of transformers 4. `padding` is 1 for valid keys, [b,keys]."""
    scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
    rows, columns = (extent_of(scores, -2), extent_of(scores, -1)) if padding is None else (extent_of(query, -2), extent_of(key, -2))
    visible = module.triangle[..., columns - rows : columns, :columns]
    least = torch.finfo(scores.dtype).min
    scores = torch.where(visible, scores, torch.tensor(least))
    if padding is not None:
        scores = scores + (1.0 - padding[:, None, None, :]) * least
    return (torch.softmax(scores, -1) @ value).transpose(1, 2), None


def as_operator(module, query, key, value, mask, scaling=None, position_bias=None, **_):
    """MultiHeadAttention itself, with the mask and relative positions as its bias."""
    merged = [each.transpose(1, 2).flatten(2) for each in (query, key, value)]
    bias = position_bias
    if mask is not None:
        bias = mask if bias is None else bias + mask
    inputs = [*merged] if bias is None else [*merged, None, None, bias]
    made = torch.onnx.ops.symbolic("com.microsoft::MultiHeadAttention", inputs,
                                   {"num_heads": query.shape[1], "scale": float(scaling)}, dtype=query.dtype,
                                   shape=merged[0].shape, version=1)
    return made.unflatten(-1, (query.shape[1], -1)), None


for function in (divided, of_scaled_queries, cut_from_triangle, as_operator):
    transformers.AttentionInterface.register(function.__name__, function)
transformers.AttentionMaskInterface.register("as_operator", transformers.masking_utils.eager_mask)


# --- models of transformers --------------------------------------------------------------------------------------------


class Call(torch.nn.Module):
    """A model called by a function of it and the inputs."""

    def __init__(self, model, call):
        super().__init__()
        self.model, self.call = model, call

    def forward(self, *inputs):
        return self.call(self.model, *inputs)


@dataclasses.dataclass
class Made:
    """A module, its inputs by name, the open extents of each and the names of the outputs."""

    module: torch.nn.Module
    inputs: dict[str, torch.Tensor]
    axes: list[dict[int, str]]
    outputs: list[str]


def tokens(size, batch, length):
    return torch.randint(0, size.vocabulary, (batch, length))


def padded(batch, length):
    """1 for valid keys; the last sequence has a third less."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, length * 2 // 3 + 1 :] = 0
    return mask


def bert(size, batch, length):
    config = transformers.BertConfig(vocab_size=size.vocabulary, hidden_size=size.width, num_hidden_layers=size.layers,
                                     num_attention_heads=size.heads, intermediate_size=4 * size.width,
                                     max_position_embeddings=size.positions)
    model = transformers.BertModel._from_config(config, attn_implementation="eager")
    inputs = {"input_ids": tokens(size, batch, length), "attention_mask": padded(batch, length),
              "token_type_ids": torch.arange(length).ge(length // 2).long().expand(batch, -1).contiguous()}
    call = lambda model, ids, mask, types: model(ids, mask, types, return_dict=False)
    return Made(Call(model, call), inputs, [{0: "batch", 1: "length"}] * 3, ["last", "pooled"])


def vit(size, batch, length):
    config = transformers.ViTConfig(hidden_size=size.width, num_hidden_layers=size.layers, num_attention_heads=size.heads,
                                    intermediate_size=4 * size.width, image_size=size.image, patch_size=size.patch)
    model = transformers.ViTModel._from_config(config, attn_implementation="divided")
    return Made(Call(model, lambda model, x: model(x, return_dict=False)[0]),
                {"pixels": torch.randn(batch, 3, size.image, size.image)}, [{0: "batch"}], ["last"])


def gpt2_model(size):
    config = transformers.GPT2Config(vocab_size=size.vocabulary, n_embd=size.width, n_layer=size.layers, n_head=size.heads,
                                     n_positions=size.positions, bos_token_id=0, eos_token_id=1)
    model = transformers.GPT2LMHeadModel._from_config(config, attn_implementation="cut_from_triangle")
    triangle = torch.ones(size.positions, size.positions, dtype=torch.bool).tril()[None, None]
    for block in model.transformer.h:
        block.attn.register_buffer("triangle", triangle, persistent=False)
    return model


def gpt2(size, batch, length):
    call = lambda model, ids: model(ids, use_cache=False, return_dict=False)[0]
    return Made(Call(gpt2_model(size), call), {"input_ids": tokens(size, batch, length)}, [{0: "batch", 1: "length"}],
                ["logits"])


def gpt2_cached(size, batch, length, past=5):
    """With a cache of keys and values [2,b,h,s,d] for each layer."""

    def call(model, ids, positions, mask, *pasts):
        cache = transformers.DynamicCache([(each[0], each[1]) for each in pasts])
        logits = model(ids, past_key_values=cache, position_ids=positions, padding=mask, use_cache=True).logits
        return logits, *(torch.stack((each.keys, each.values)) for each in cache.layers)

    inputs = {"input_ids": tokens(size, batch, length),
              "position_ids": torch.arange(past, past + length).expand(batch, -1).contiguous(),
              "attention_mask": torch.ones(batch, past + length)}
    inputs["attention_mask"][-1, : past // 2] = 0
    layers = range(size.layers)
    inputs |= {f"past_{i}": torch.randn(2, batch, size.heads, past, size.depth) for i in layers}
    axes = [{0: "batch", 1: "length"}] * 2 + [{0: "batch", 1: "total"}] + [{1: "batch", 3: "past"}] * size.layers
    return Made(Call(gpt2_model(size), call), inputs, axes, ["logits", *(f"present_{i}" for i in layers)])


def t5_model(size):
    config = transformers.T5Config(vocab_size=size.vocabulary, d_model=size.width, d_kv=size.depth, d_ff=4 * size.width,
                                   num_layers=size.layers, num_heads=size.heads)
    return transformers.T5ForConditionalGeneration._from_config(config, attn_implementation="as_operator")


def t5_encoder(size, batch, length):
    call = lambda model, ids, mask: model.encoder(input_ids=ids, attention_mask=mask, return_dict=False)[0]
    return Made(Call(t5_model(size), call), {"input_ids": tokens(size, batch, length), "attention_mask": padded(batch, length)},
                [{0: "batch", 1: "length"}] * 2, ["hidden"])


def t5_decoder(size, batch, length):
    def call(model, ids, mask, hidden):
        found = model.decoder(input_ids=ids, encoder_hidden_states=hidden, encoder_attention_mask=mask, use_cache=False,
                              return_dict=False)[0]
        return model.lm_head(found * size.width**-0.5)

    keys = 2 * length
    inputs = {"input_ids": tokens(size, batch, length), "encoder_mask": padded(batch, keys),
              "hidden": torch.randn(batch, keys, size.width)}
    axes = [{0: "batch", 1: "length"}, {0: "batch", 1: "keys"}, {0: "batch", 1: "keys"}]
    return Made(Call(t5_model(size), call), inputs, axes, ["logits"])


def whisper_model(size):
    config = transformers.WhisperConfig(
        vocab_size=size.vocabulary, d_model=size.width, encoder_layers=size.layers, decoder_layers=size.layers,
        encoder_attention_heads=size.heads, decoder_attention_heads=size.heads, encoder_ffn_dim=4 * size.width,
        decoder_ffn_dim=4 * size.width, num_mel_bins=80, max_source_positions=size.frames,
        max_target_positions=size.positions, pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=1)
    return transformers.WhisperForConditionalGeneration._from_config(config, attn_implementation="of_scaled_queries")


def whisper_encoder(size, batch, length):
    call = lambda model, mel: model.model.encoder(mel, return_dict=False)[0]
    return Made(Call(whisper_model(size), call), {"mel": torch.randn(batch, 80, 2 * size.frames)}, [{0: "batch"}], ["hidden"])


def whisper_decoder(size, batch, length):
    def call(model, ids, hidden):
        found = model.model.decoder(input_ids=ids, encoder_hidden_states=hidden, use_cache=False, return_dict=False)[0]
        return model.proj_out(found)

    inputs = {"input_ids": tokens(size, batch, length), "hidden": torch.randn(batch, size.frames, size.width)}
    return Made(Call(whisper_model(size), call), inputs, [{0: "batch", 1: "length"}, {0: "batch"}], ["logits"])


# --- export and optimize -----------------------------------------------------------------------------------------------


def export(made, path, is_scripted):
    """Writes a module as ONNX, by TorchScript or by torch.export."""
    options: dict[str, Any] = {"input_names": list(made.inputs), "output_names": made.outputs}
    if is_scripted:
        options |= {"dynamo": False, "opset_version": OPSET, "dynamic_axes": dict(zip(made.inputs, made.axes))}
    else:
        any_size = torch.export.Dim.DYNAMIC
        options |= {"dynamo": True, "verbose": False, "external_data": False,
                    "dynamic_shapes": (tuple(dict.fromkeys(each, any_size) for each in made.axes),)}
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), torch.no_grad():
        torch.onnx.export(made.module.eval(), tuple(made.inputs.values()), path, **options)


def optimize(path, kind, size):
    """What ONNX Runtime's optimizer for models of a kind makes of a file: a ModelProto."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions(kind)
    options.use_multi_head_attention = kind == "bart"  # else cross attention is left
    with contextlib.redirect_stdout(io.StringIO()):
        return optimize_model(str(path), kind, num_heads=size.heads, hidden_size=size.width, opt_level=0,
                              optimization_options=options).model


# --- a decoder of the model builder --------------------------------------------------------------------------------------


def genai(size, seed=0):
    """A Llama-like decoder as the model builder of onnxruntime-genai writes it: packed queries, keys and values with rotary
    positions in GroupQueryAttention, lengths computed from the attention mask, a quarter of KV heads."""
    random = np.random.default_rng(seed)
    kv, depth, inner = size.heads // 4 or 1, size.depth, 8 * size.width // 3 // 8 * 8
    columns = (size.heads + 2 * kv) * depth
    weights: list[Any] = []
    nodes = []

    def weight(name, *shape):
        weights.append(numpy_helper.from_array(random.standard_normal(shape, np.float32) / np.float32(shape[0] ** 0.5), name))
        return name

    def node(kind, inputs, outputs, domain="", **attributes):
        nodes.append(helper.make_node(kind, inputs, outputs, domain=domain, **attributes))
        return outputs[0]

    angles = np.arange(size.positions)[:, None] / 10000.0 ** (np.arange(depth // 2) / (depth // 2))
    constants = {"cos": np.cos(angles).astype(np.float32), "sin": np.sin(angles).astype(np.float32),
                 "axis": np.array([1]), "one": np.array([1]), "second": np.array(1)}
    weights += [numpy_helper.from_array(array, name) for name, array in constants.items()]
    node("ReduceSum", ["attention_mask", "axis"], ["counts"], keepdims=0)
    node("Sub", ["counts", "one"], ["last"])
    node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32)
    node("Shape", ["attention_mask"], ["mask_shape"])
    node("Gather", ["mask_shape", "second"], ["total_64"], axis=0)
    node("Cast", ["total_64"], ["total"], to=TensorProto.INT32)
    x = node("Gather", [weight("embedding", size.vocabulary, size.width), "input_ids"], ["x"])
    norm = {"epsilon": 1e-6}
    h = node("SimplifiedLayerNormalization", [x, weight("norm", size.width)], ["h"], axis=-1, stash_type=1, **norm)
    outputs = ["logits"]
    for i in range(size.layers):
        name = lambda text: f"{text}_{i}"
        packed = node("MatMul", [h, weight(name("qkv"), size.width, columns)], [name("packed")])
        present = [f"present.{i}.key", f"present.{i}.value"]
        context = node("GroupQueryAttention", [packed, "", "", f"past_key_values.{i}.key", f"past_key_values.{i}.value",
                                               "seqlens", "total", "cos", "sin", "", "", ""],
                       [name("context"), *present], "com.microsoft", num_heads=size.heads, kv_num_heads=kv,
                       scale=depth**-0.5, do_rotary=1, rotary_interleaved=0, local_window_size=-1, softcap=0.0)
        outputs += present
        y = node("MatMul", [context, weight(name("out"), size.width, size.width)], [name("projected")])
        h = node("SkipSimplifiedLayerNormalization", [x, y, weight(name("norm_a"), size.width)],
                 [name("h_a"), "", "", name("x_a")], "com.microsoft", **norm)
        x = name("x_a")
        gated = node("MatMul", [h, weight(name("gate"), size.width, inner)], [name("gated")])
        node("Sigmoid", [gated], [name("open")])
        node("Mul", [gated, name("open")], [name("silu")])
        node("MatMul", [h, weight(name("up"), size.width, inner)], [name("raised")])
        node("Mul", [name("silu"), name("raised")], [name("inner")])
        y = node("MatMul", [name("inner"), weight(name("down"), inner, size.width)], [name("lowered")])
        is_last = i + 1 == size.layers
        h = node("SkipSimplifiedLayerNormalization", [x, y, weight(name("norm_b"), size.width)],
                 [name("h_b")] if is_last else [name("h_b"), "", "", name("x_b")], "com.microsoft", **norm)
        x = name("x_b")
    node("MatMul", [h, weight("head", size.width, size.vocabulary)], ["logits"])
    value = helper.make_tensor_value_info
    inputs = [value("input_ids", TensorProto.INT64, ["batch", "length"]),
              value("attention_mask", TensorProto.INT64, ["batch", "total"])]
    inputs += [value(f"past_key_values.{i}.{part}", TensorProto.FLOAT, ["batch", kv, "past", depth])
               for i in range(size.layers) for part in ("key", "value")]
    graph = helper.make_graph(nodes, "genai", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], weights)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def genai_inputs(size, batch, length, past, capacity=0):
    """Inputs of `genai` with a cache of `past` rows in use, and of `capacity` rows if given, in which the last sequence is
    the shorter one."""
    random, kv = np.random.default_rng(past), size.heads // 4 or 1
    mask = np.ones((batch, past + length), np.int64)
    rows = capacity or past
    cache = {f"past_key_values.{i}.{part}": random.standard_normal((batch, kv, rows, size.depth), np.float32)
             for i in range(size.layers) for part in ("key", "value")}
    return {"input_ids": random.integers(0, size.vocabulary, (batch, length)), "attention_mask": mask} | cache


# --- the table -----------------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Model:
    """A whole model of `transformers`."""

    make: Callable[..., Made]
    kind: str
    """The optimizer's name of the kind of model."""
    operators: dict[str, int]
    """The operators of attention that a layer becomes."""
    is_scripted: bool = True


MODELS = {
    "bert": Model(bert, "bert", {"Attention": 1}),
    "vit": Model(vit, "vit", {"Attention": 1}),
    "gpt2": Model(gpt2, "gpt2", {"Attention": 1}),
    "gpt2-cached": Model(gpt2_cached, "gpt2", {"Attention": 1}),
    "t5-encoder": Model(t5_encoder, "t5", {"MultiHeadAttention": 1}, is_scripted=False),
    "t5-decoder": Model(t5_decoder, "t5", {"MultiHeadAttention": 2}, is_scripted=False),
    "whisper-encoder": Model(whisper_encoder, "bart", {"Attention": 1}),
    "whisper-decoder": Model(whisper_decoder, "bart", {"Attention": 1, "MultiHeadAttention": 1}),
}


def inputs_of(name, size, **extents):
    """The inputs of a model by name, as NumPy arrays."""
    torch.manual_seed(1)
    return {key: each.numpy() for key, each in MODELS[name].make(size, **extents).inputs.items()}


def optimized(name, size, folder, attention=None):
    """A model as the optimizer leaves it, a ModelProto. With an `attention` of `transformers` (eager, sdpa), torch.export
    exports it, and the optimizer leaves attention as it is."""
    logging.disable(logging.WARNING)  # the exporter and the optimizer warn about forms that they do not know
    model = MODELS[name]
    torch.manual_seed(0)
    path, made = pathlib.Path(folder, f"{name}.onnx"), model.make(size, 2, 12)
    if attention:
        made.module.model.set_attn_implementation(attention)
    export(made, path, model.is_scripted and not attention)
    # The optimizer for GPT-2 fails on what torch.export writes.
    return optimize(path, "bert" if attention and model.kind == "gpt2" else model.kind, size)
