"""Weights in blocks of 4 to 8 bits: results are those of the numbers that the package gguf dequantizes."""

import importlib.util
import pathlib
import subprocess
import sys

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Kind

import gguf_models
import saccade
import saccade.gguf
from saccade.gguf import Container, FileError

torch = pytest.importorskip("torch")
TOKENS = np.random.default_rng(1).integers(0, 96, 40).tolist()
KINDS = [Kind.Q4_0, Kind.Q4_1, Kind.Q8_0, Kind.Q4_K, Kind.Q6_K]
WIDE = dict(hidden_size=256, intermediate_size=512, tie_word_embeddings=True)


def blocks_of(kind, values):
    """Blocks near `values`: the package's, or, where it only dequantizes, blocks with random numbers of the same size."""
    try:
        return gguf.quantize(values, kind)
    except NotImplementedError:
        pass
    size = gguf.GGML_QUANT_SIZES[kind][1]
    rows, columns = values.shape
    data = np.random.default_rng(values.size).integers(0, 256, (rows, columns // 256, size), np.uint8)
    scale = np.float16(values.std() / {Kind.Q4_K: 300, Kind.Q6_K: 1500}[kind])
    places = {Kind.Q4_K: ((0, scale), (2, scale * 8)), Kind.Q6_K: ((size - 2, scale),)}[kind]
    for place, number in places:
        data[..., place : place + 2] = np.frombuffer(np.float16(number).tobytes(), np.uint8)
    return data.reshape(rows, -1)


def save(path, architecture, model, kind_of):
    """Writes a file, and gives the model what its matrices mean."""
    out, meant = gguf_models.writer(path, architecture, model.config, {}), {}
    for name, value in gguf_models.tensors(architecture, model).items():
        kind = kind_of(name) if value.ndim == 2 else Kind.F32
        stored = value if kind == Kind.F32 else blocks_of(kind, value)
        meant[name] = value if kind == Kind.F32 else gguf.dequantize(stored, kind)
        out.add_tensor(name, stored, raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    gguf_models.assign(architecture, model, meant)


def check(ours, model):
    """Prompts, chunks and single tokens, against Transformers."""
    expected = model(torch.tensor([TOKENS])).logits[0].numpy()
    bound = 1e-5 * max(abs(expected).max(), 1)
    assert abs(ours.session().logits(TOKENS) - expected).max() < bound
    session = ours.session()
    for start, end in ((0, 20), (20, 21), (21, 22), (22, 38), (38, 40)):
        assert abs(session.prefill(TOKENS[start:end]) - expected[end - 1]).max() < bound


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_of_one_type(kind, tmp_path):
    model, path = gguf_models.make("qwen2", **WIDE), tmp_path / "model.gguf"
    save(path, "qwen2", model, lambda name: kind)
    check(saccade.gguf.load(path), model)


@pytest.mark.parametrize(("architecture", "prepack"), [("gemma2", False), ("qwen3", True)])
def test_types_are_mixed(architecture, prepack, tmp_path):
    """As files have them: larger types for the embedding and some matrices, plain numbers beside blocks."""
    model, path = gguf_models.make(architecture, **WIDE), tmp_path / "model.gguf"
    kinds = {"token_embd": Kind.Q6_K, "ffn_down": Kind.Q8_0, "attn_v": Kind.BF16, "attn_q": Kind.F16, "attn_k": Kind.Q4_1,
             "attn_output": Kind.F32}
    save(path, architecture, model, lambda name: kinds.get(name.split(".")[-2], Kind.Q4_K))
    check(saccade.gguf.load(path, prepack=prepack), model)
    # With activations of bf16 the error is that of rounding them, whatever the number of rows.
    rounded, exact = (saccade.gguf.load(path, prepack=prepack, activations=each).session() for each in ("bf16", "f32"))
    for start, end in ((0, 20), (20, 21), (21, 40)):
        found, expected = (session.prefill(TOKENS[start:end]) for session in (rounded, exact))
        assert 1e-5 < abs(found - expected).max() / abs(expected).max() < 5e-2


def test_blocks_keep_the_bytes_of_the_file(tmp_path):
    """Arguments are blocks, and their memory is the mapped file, also if other weights are packed."""
    model, path = gguf_models.make("qwen2", **WIDE), tmp_path / "model.gguf"
    save(path, "qwen2", model, lambda name: Kind.Q4_0)
    text = saccade.gguf.write(Container(path)).text
    assert "%blk_0_ffn_gate_weight: tensor<512x8x18xi8>" in text and "%token_embd_weight: tensor<96x8x18xi8>" in text
    for prepack in (False, True):
        names = [value.name for value in saccade.compile(text, prepack=prepack).main.inputs]
        assert "blk_0_ffn_gate_weight" in names and "token_embd_weight" in names


def test_types_that_are_not_supported_are_counted(tmp_path):
    model, path = gguf_models.make("qwen2", **WIDE), tmp_path / "model.gguf"
    save(path, "qwen2", model, lambda name: Kind.Q5_0 if "ffn" in name else Kind.Q4_0)
    with pytest.raises(FileError) as error:
        saccade.gguf.load(path)
    assert str(error.value) == (f"{path}: 6 of 26 tensors are Q5_0, the first is 'blk.0.ffn_gate.weight'; supported are "
                                "F32, F16, BF16, Q4_0, Q4_1, Q8_0, Q4_K, Q6_K")
    done = subprocess.run([sys.executable, "-m", "saccade.gguf", path], capture_output=True, text=True)
    assert done.returncode == 0 and "26 tensors: " in done.stdout
    assert done.stdout.splitlines()[-1] == "not supported: " + str(error.value).removeprefix(f"{path}: ")


@pytest.fixture(scope="module")
def example(root):
    """The modules of examples/generate."""
    pytest.importorskip("safetensors.torch")
    sys.path.insert(0, str(root / "examples" / "generate"))
    try:
        import gguf_file
        import model
    finally:
        sys.path.pop(0)
    return model, gguf_file


def rounded(x):
    """Blocks of 32 activations in 8 bits."""
    blocks = x.unflatten(-1, (-1, 32))
    step = blocks.abs().amax(dim=-1, keepdim=True) / 127
    return (torch.round(blocks / step).nan_to_num() * step).flatten(-2)


def opticks():
    """Newton's Opticks, which the package apache-tvm-ffi has; the decoder was not trained with its end."""
    package = pathlib.Path(importlib.util.find_spec("tvm_ffi").origin).parent
    path = package / "3rdparty" / "libbacktrace" / "Isaac.Newton-Opticks.txt"
    return path.read_bytes()


@pytest.mark.parametrize(("kind", "activations"), [(Kind.Q4_0, "f32"), (Kind.Q8_0, "f32"), (Kind.Q4_0, "bf16"), (Kind.Q4_0, "int8"),
                                                  (Kind.Q8_0, "int8")])  # fmt: skip
def test_perplexity_of_a_text(kind, activations, example, tmp_path):
    """The perplexity that a trained model of bytes gives a text is that of PyTorch with the dequantized weights."""
    model, file = example
    decoder, path, meant = model.load(), tmp_path / "model.gguf", {}

    def store(name, weight):
        """The matrices in blocks; `meant` has the numbers that the file means."""
        stored = gguf.quantize(weight, kind) if weight.ndim == 2 else weight
        meant[name] = gguf.dequantize(stored, kind) if weight.ndim == 2 else weight
        return stored, kind if weight.ndim == 2 else None

    file.write_gguf(decoder, path, store)
    text = list(opticks()[-420:])
    session = saccade.gguf.load(path, activations=activations).session()
    ours = torch.from_numpy(session.logits(text[:-1]))
    if activations == "int8":
        # A prompt in pieces is computed with products of integers, and as a whole with those of the same numbers in f32.
        session.rewind(0)
        pieces = [session.logits(text[:-1][i : i + 7]) for i in range(0, len(text) - 1, 7)]
        assert abs(np.concatenate(pieces) - ours.numpy()).max() < 0.05 * abs(ours).max()
    for name, parameter, heads in file.parameters(decoder):
        value = torch.from_numpy(np.array(meant[name]))
        parameter.copy_(file.separated(value, heads) if heads else value)
    if activations == "int8":
        for module in decoder.modules():
            if isinstance(module, torch.nn.Linear):
                module.register_forward_pre_hook(lambda _, operands: (rounded(operands[0]),))
        # The output shares the matrix of the embedding.
        decoder.norm.register_forward_hook(lambda module, operands, result: rounded(result))
    theirs = decoder(torch.tensor([text[:-1]]))[0]
    if activations == "int8":
        # The first token, before a rounding goes to a neighbour, which changes all that follows.
        assert (ours - theirs).abs().amax(dim=1)[0] < 1e-4
    following = torch.tensor(text[1:])
    found, expected = (torch.nn.functional.cross_entropy(each, following).exp().item() for each in (ours, theirs))
    assert abs(found - expected) < (1e-5 if activations == "f32" else 1e-3) * expected and 1 < expected < 20
