"""Small models of `transformers` with random weights, exported by PyTorch and run through `saccade.onnx`."""

import contextlib
import io
import logging
import os
import tempfile
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.simplefilter("ignore")
logging.disable(logging.WARNING)  # the exporter misses packages that these models do not need

import numpy as np
import torch
import transformers

import saccade
from saccade.onnx import backend, read

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def build(kind, config, **settings):
    torch.manual_seed(0)
    return getattr(transformers, kind)(getattr(transformers, config)(**settings))


MODELS = {
    "bert": lambda: build("BertModel", "BertConfig", vocab_size=100, **SIZES),
    "vit": lambda: build("ViTModel", "ViTConfig", image_size=32, patch_size=8, **SIZES),
    "t5": lambda: build("T5ForConditionalGeneration", "T5Config", vocab_size=100, d_model=64, d_kv=16, d_ff=128,
                        num_layers=2, num_heads=4, use_cache=False),
    "gpt2": lambda: build("GPT2LMHeadModel", "GPT2Config", vocab_size=100, n_embd=64, n_layer=2, n_head=4,
                          bos_token_id=0, eos_token_id=0, use_cache=False),
    "llama": lambda: build("LlamaForCausalLM", "LlamaConfig", vocab_size=100, num_key_value_heads=2, use_cache=False,
                           **SIZES),
}


def inputs_of(name, batch, length):
    """What the model takes by name: the last row of tokens has padding at its end."""
    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 32, 32)}
    given = {"input_ids": torch.randint(0, 100, (batch, length))}
    if name == "gpt2":
        return given
    given["attention_mask"] = torch.ones(batch, length, dtype=torch.int64)
    given["attention_mask"][-1, length * 2 // 3:] = 0
    if name == "t5":
        given["decoder_input_ids"] = torch.randint(0, 100, (batch, length // 2))
    return given


class First(torch.nn.Module):
    """The first output of a model that takes its inputs by name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), return_dict=False)[0]


def check(name, attention, dynamic, wanted):
    """Exports a model, with PyTorch's `attention` (eager, sdpa), all lengths and batches open where `dynamic`; it must
    agree with PyTorch, and `wanted` attentions must have been found in it."""
    given = inputs_of(name, 2, 12)
    model = MODELS[name]().eval()
    model.set_attn_implementation(attention)
    model = First(model, list(given))
    shapes = None
    if dynamic:
        any_size = torch.export.Dim.DYNAMIC
        shapes = (tuple(dict.fromkeys(range(2 if each.dim() == 2 else 1), any_size) for each in given.values()),)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
        path = os.path.join(folder, f"{name}.onnx")
        torch.onnx.export(model, tuple(given.values()), path, dynamo=True, dynamic_shapes=shapes, verbose=False)
        program = read(path)
    compiled = backend.Model(program)
    found = saccade.compile(program.text).ir("transforms").count("= attn.attention")
    assert found == wanted, f"{name}: found {found} attentions, wanted {wanted}"
    for batch, length in ((2, 12), (3, 29)) if dynamic else ((2, 12),):
        given = tuple(inputs_of(name, batch, length).values())
        with torch.no_grad():
            expected = model(*given).numpy()
        (result,) = compiled.run([each.numpy() for each in given])
        error = np.linalg.norm(result - expected) / np.linalg.norm(expected)
        assert error <= 1e-5, f"{name} {attention}, batch {batch}, length {length}: differs by {error:.2g}"
    print(f"{name} {attention} {'any size' if dynamic else 'one size'}: {found} attentions, differs by {error:.2g}")
