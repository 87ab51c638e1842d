"""Trains a character-level hybrid model of Transformers on Newton's Opticks, with its own code and with Saccade's.

    OMP_WAIT_POLICY=passive python examples/training/hybrid_lm.py --noise reordered --plot losses.png

Of four layers, three are of Gated DeltaNet and one of softmax attention, as in Qwen3-Next. The runs differ in one
argument, `attn_implementation`.
"""

import argparse
import contextlib
import functools

import torch
import torch.nn.functional as F
import transformers
from char_gpt import batches, encode, read_text
from torch import nn
from trainer import Run, add_options, chosen, finish, train
from transformers.models.qwen3_next import modeling_qwen3_next as qwen3_next

import saccade.transformers  # noqa: F401  (registers the name "saccade")

LAYERS = ("linear_attention", "linear_attention", "linear_attention", "full_attention")


class HybridLM(nn.Module):
    """Logits of the next character at each position."""

    def __init__(self, implementation, characters, layers=LAYERS, width=128, heads=4):
        super().__init__()
        config = transformers.Qwen3NextConfig(
            vocab_size=characters, hidden_size=width, intermediate_size=4 * width, num_hidden_layers=len(layers),
            layer_types=list(layers), num_experts=0, num_attention_heads=heads, num_key_value_heads=heads // 2,
            head_dim=width // heads, linear_num_key_heads=heads // 2, linear_num_value_heads=heads,
            linear_key_head_dim=width // heads, linear_value_head_dim=width // heads, use_cache=False,
            eos_token_id=None)  # fmt: skip
        self.model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=implementation)

    def forward(self, text):
        return self.model(text).logits

    def loss(self, text, following):
        return F.cross_entropy(self(text).flatten(0, 1), following.flatten())


@contextlib.contextmanager
def half_chunks():
    """Runs the model's own code in chunks of 32 positions: the same function with other rounding errors."""
    original = qwen3_next.torch_chunk_gated_delta_rule
    qwen3_next.torch_chunk_gated_delta_rule = functools.partial(original, chunk_size=32)
    try:
        yield
    finally:
        qwen3_next.torch_chunk_gated_delta_rule = original


def make_runs(names, characters, seed, **sizes):
    """A run of each name, all from the same weights."""
    runs = []
    for name in names:
        torch.manual_seed(seed)
        model = HybridLM("saccade" if name == "saccade" else "eager", characters, **sizes)
        context = half_chunks if name == "reordered" else contextlib.nullcontext
        runs.append(Run(name, model.double() if name == "f64" else model, context))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", metavar="FILE", help="a text to train on instead of Newton's Opticks")
    add_options(parser)
    options = parser.parse_args()
    data, characters = encode(read_text(options.text))
    runs = make_runs(chosen(options), characters, options.seed)
    train(runs, batches(data, options.seed), options.steps, options.seed, "hybrid model")
    finish("hybrid model", runs, options)


if __name__ == "__main__":
    main()
