"""Operators of com.microsoft: models as ONNX Runtime's tools write them, and what is refused. test/Fuzz/onnx_runtime_calls.py
compares random nodes with the runtime."""

import subprocess

import pytest

pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import saccade
from saccade.onnx import backend, reader

pytestmark = pytest.mark.filterwarnings("ignore")
onnxruntime.set_default_logger_severity(4)
RAND = np.random.default_rng(5)


def random(*shape):
    return RAND.standard_normal(shape).astype(np.float32)


def microsoft(name, inputs, outputs, **attributes):
    return helper.make_node(name, inputs, outputs, domain="com.microsoft", **attributes)


def model(nodes, inputs, outputs, weights=()):
    """`inputs`: shapes by name; integers of 32 bits where the name begins with i, of 64 bits with n."""
    kinds = {"i": TensorProto.INT32, "n": TensorProto.INT64}
    values = [helper.make_tensor_value_info(name, kinds.get(name[0], TensorProto.FLOAT), shape) for name, shape in inputs.items()]
    graph = helper.make_graph(nodes, "graph", values, [onnx.ValueInfoProto(name=name) for name in outputs],
                              [numpy_helper.from_array(x, name) for name, x in weights])
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def by_runtime(made, inputs):
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)


def compare(prepared, made, inputs):
    for x, y in zip(prepared.run(list(inputs.values())), by_runtime(made, inputs), strict=True):
        assert (x.dtype, x.shape) == (y.dtype, y.shape)
        np.testing.assert_allclose(x, y, rtol=2e-5, atol=2e-5)


# --- an encoder as the optimizer of transformers writes it ------------------------------------------------------------


def test_an_encoder_layer_with_a_count_of_valid_keys():
    width, heads, inner = 32, 4, 64
    nodes = [
        microsoft("EmbedLayerNormalization", ["i_ids", "", "word", "position", "", "gamma", "beta", "i_mask"],
                  ["x", "valid"], epsilon=1e-12),
        microsoft("Attention", ["x", "qkv", "qkv_bias", "valid"], ["context"], num_heads=heads),
        helper.make_node("MatMul", ["context", "out"], ["projected"]),
        microsoft("SkipLayerNormalization", ["projected", "x", "gamma", "beta", "bias"], ["h"], epsilon=1e-12),
        helper.make_node("MatMul", ["h", "up"], ["raised"]),
        microsoft("BiasGelu", ["raised", "up_bias"], ["active"]),
        helper.make_node("MatMul", ["active", "down"], ["lowered"]),
        microsoft("SkipLayerNormalization", ["lowered", "h", "gamma", "beta", "bias"], ["y"], epsilon=1e-12),
    ]
    shapes = {"word": (20, width), "position": (16, width), "gamma": (width,), "beta": (width,), "qkv": (width, 3 * width),
              "qkv_bias": (3 * width,), "out": (width, width), "bias": (width,), "up": (width, inner), "up_bias": (inner,),
              "down": (inner, width)}
    weights = [(name, random(*shape) / shape[0] ** 0.5) for name, shape in shapes.items()]
    made = model(nodes, {"i_ids": ["batch", "length"], "i_mask": ["batch", "length"]}, ["y"], weights)
    prepared = backend.prepare(made)
    for batch, length in ((1, 3), (3, 7), (2, 16)):
        mask = np.arange(length) < RAND.integers(1, length + 1, (batch, 1))
        compare(prepared, made, {"i_ids": RAND.integers(0, 20, (batch, length)).astype(np.int32), "i_mask": mask.astype(np.int32)})


# --- a decoder as the model builder of GenAI writes it ----------------------------------------------------------------


def decoder():
    """One layer with packed queries, keys and values, rotary positions and lengths computed from the attention mask."""
    heads, kv_heads, size, inner = 4, 2, 16, 96
    width = heads * size
    nodes = [
        helper.make_node("ReduceSum", ["n_mask", "axis"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "one"], ["last"]),
        helper.make_node("Cast", ["last"], ["seqlens"], to=TensorProto.INT32),
        helper.make_node("Shape", ["n_mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "second"], ["total_64"], axis=0),
        helper.make_node("Cast", ["total_64"], ["total"], to=TensorProto.INT32),
        helper.make_node("SimplifiedLayerNormalization", ["x", "gamma"], ["normed"], epsilon=1e-6, axis=-1, stash_type=1),
        helper.make_node("MatMul", ["normed", "qkv"], ["packed"]),
        microsoft("GroupQueryAttention", ["packed", "", "", "past_k", "past_v", "seqlens", "total", "cos", "sin", "", "", ""],
                  ["context", "present_k", "present_v"], num_heads=heads, kv_num_heads=kv_heads, scale=size**-0.5, do_rotary=1,
                  rotary_interleaved=0, local_window_size=-1, softcap=0.0),
        helper.make_node("MatMul", ["context", "out"], ["projected"]),
        microsoft("SkipSimplifiedLayerNormalization", ["x", "projected", "gamma"], ["h", "", "", "sum"], epsilon=1e-6),
        helper.make_node("MatMul", ["h", "gate"], ["gated"]),
        helper.make_node("Sigmoid", ["gated"], ["open"]),
        helper.make_node("Mul", ["gated", "open"], ["silu"]),
        helper.make_node("MatMul", ["h", "up"], ["raised"]),
        helper.make_node("Mul", ["silu", "raised"], ["inner"]),
        helper.make_node("MatMul", ["inner", "down"], ["lowered"]),
        microsoft("SkipSimplifiedLayerNormalization", ["sum", "lowered", "gamma"], ["y"], epsilon=1e-6),
    ]
    angles = np.arange(64)[:, None] / 10000.0 ** (np.arange(size // 2) / (size // 2))
    shapes = {"gamma": (width,), "qkv": (width, (heads + 2 * kv_heads) * size), "out": (width, width), "gate": (width, inner),
              "up": (width, inner), "down": (inner, width)}
    weights = [(name, random(*shape) / shape[0] ** 0.5) for name, shape in shapes.items()]
    weights += [("cos", np.cos(angles).astype(np.float32)), ("sin", np.sin(angles).astype(np.float32)),
                ("axis", np.array([1])), ("one", np.array([1])), ("second", np.array(1))]
    past = ["batch", kv_heads, "past", size]
    inputs = {"x": ["batch", "length", width], "n_mask": ["batch", "total"], "past_k": past, "past_v": past}
    return model(nodes, inputs, ["y", "present_k", "present_v"], weights), width, kv_heads, size


def test_a_decoder_with_a_cache_that_grows():
    made, width, kv_heads, size = decoder()
    prepared = backend.prepare(made)
    past = [np.zeros((2, kv_heads, 0, size), np.float32)] * 2
    total = 0
    for length in (5, 1, 1, 1):
        total += length
        inputs = {"x": random(2, length, width), "n_mask": np.ones((2, total), np.int64), "past_k": past[0], "past_v": past[1]}
        compare(prepared, made, inputs)
        past = by_runtime(made, inputs)[1:]


def test_a_decoder_with_a_cache_that_keeps_its_size():
    made, width, kv_heads, size = decoder()
    prepared = backend.prepare(made)
    past = [np.zeros((2, kv_heads, 12, size), np.float32)] * 2
    total = 0
    for length in (4, 1, 1):
        total += length
        inputs = {"x": random(2, length, width), "n_mask": np.ones((2, total), np.int64), "past_k": past[0], "past_v": past[1]}
        compare(prepared, made, inputs)
        past = by_runtime(made, inputs)[1:]


def test_the_decoder_runs_the_kernels_of_attention(tmp_path):
    program = tmp_path / "decoder.mlir"
    program.write_text(reader.read_model(decoder()[0]).text)
    command = ["saccade-compile", str(program), "--target=v4", "--explain"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert report.count("attention in ") == 1, report
    for words in ("split_kv: kernel family v4 unpacked", "attention: kernel family v4 packed", "mask: closed form"):
        assert words in report, report


# --- what is refused --------------------------------------------------------------------------------------------------

QKV = {"q": [2, 3, 16], "k": [2, 3, 16], "v": [2, 3, 16]}
GQA = {"q": [2, 1, 16], "k": [2, 1, 16], "v": [2, 1, 16], "i_lengths": [2]}
CASES = {
    "packed inputs": (microsoft("MultiHeadAttention", ["q"], ["y"], num_heads=2), {"q": [2, 3, 2, 3, 8]}, "MultiHeadAttention"),
    "a buffer of the cache": (
        microsoft("MultiHeadAttention", ["q", "k", "v", "", "", "", "", "", "i_past"], ["y"], num_heads=2),
        QKV | {"i_past": [1]}, "input 8 ('past_sequence_length') is not supported"),
    "a mask of other shape": (
        microsoft("MultiHeadAttention", ["q", "k", "v", "", "i_mask"], ["y"], num_heads=2), QKV | {"i_mask": [1, 3]},
        "the padding mask is"),
    "keys of other positions": (
        microsoft("GroupQueryAttention", ["q", "k", "v", "", "", "i_lengths", "total"], ["y"], num_heads=2, kv_num_heads=2),
        GQA | {"k": [2, 2, 16], "v": [2, 2, 16]}, "the key has 2 positions, expected those of the query, 1"),
    "positions of one sequence": (
        microsoft("GroupQueryAttention", ["q", "k", "v", "", "", "i_lengths", "total", "cos", "cos", "n_at"], ["y"], num_heads=1,
                  kv_num_heads=1, do_rotary=1), GQA | {"cos": [8, 8], "n_at": [1, 1]}, "position_ids is 'tensor<1x1xi64>'"),
    "tables without columns": (
        microsoft("RotaryEmbedding", ["q", "n_at", "cos", "cos"], ["y"]), {"q": [2, 3, 16], "n_at": [1], "cos": [8, 0]},
        "cos_cache is 'tensor<8x0xf32>'"),
    "a bias of other shape": (
        microsoft("MultiHeadAttention", ["q", "k", "v", "", "", "bias"], ["y"], num_heads=2), QKV | {"bias": [2, 2, 3, 1]},
        "attention_bias is"),
    "rotary positions in Attention": (
        microsoft("Attention", ["q", "w"], ["y"], num_heads=2, do_rotary=1), {"q": [2, 3, 16], "w": [16, 48]},
        "'do_rotary' is 1, expected 0"),
    "a past of other heads": (
        microsoft("Attention", ["q", "w", "", "", "past"], ["y", "present"], num_heads=2),
        {"q": [2, 3, 16], "w": [16, 48], "past": [2, 2, 3, 4, 8]}, "the past is 'tensor<2x2x3x4x8xf32>', new keys and values are"),
    "weights without three parts": (
        microsoft("Attention", ["q", "w"], ["y"], num_heads=2), {"q": [2, 3, 16], "w": [16, 40]},
        "expected columns for queries, as many for keys, and for values"),
    "a quantized cache": (
        microsoft("GroupQueryAttention", ["q", "k", "v", "", "", "i_lengths", "total"], ["y"], num_heads=2, kv_num_heads=2,
                  k_quant_type="PER_TENSOR"), GQA, "'k_quant_type' is 'PER_TENSOR', expected 'NONE'"),
    "heads that do not divide": (
        microsoft("GroupQueryAttention", ["q", "k", "v", "", "", "i_lengths", "total"], ["y"], num_heads=3, kv_num_heads=2), GQA,
        "found 3 query heads, expected a multiple of the 2 KV heads"),
    "one of two caches": (
        microsoft("GroupQueryAttention", ["q", "k", "v", "past", "", "i_lengths", "total"], ["y"], num_heads=2, kv_num_heads=2),
        GQA | {"past": [2, 2, 4, 8]}, "found only one of past_key and past_value"),
    "a skip of one row": (
        microsoft("SkipLayerNormalization", ["q", "skip", "gamma"], ["y"]),
        {"q": [2, 3, 16], "skip": [1, 1, 16], "gamma": [16]}, "expected the last two dimensions"),
    "a scale of other length": (
        microsoft("SkipLayerNormalization", ["q", "skip", "gamma"], ["y"]),
        {"q": [2, 3, 16], "skip": [2, 3, 16], "gamma": [8]}, "gamma is"),
    "an unknown operator": (microsoft("LongformerAttention", ["q"], ["y"]), {"q": [2, 3, 16]}, "LongformerAttention"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_refused_is_named(case):
    node, inputs, message = CASES[case]
    made = model([node], inputs, ["y"], [("total", np.array(1, np.int32))] if "total" in node.input else [])
    with pytest.raises((ValueError, saccade.CompileError)) as error:
        backend.prepare(made)
    assert message in str(error.value)
