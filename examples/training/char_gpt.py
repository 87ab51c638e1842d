"""Trains a character-level GPT on Newton's Opticks, with PyTorch's attention and with Saccade's, step by step.

    python examples/training/char_gpt.py --variant t5 --plot losses.png

Both models start from the same weights and see the same batches. They differ in one method, `attend`.
"""

import argparse
import functools
import importlib.util
import pathlib
import sys

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Run, add_options, chosen, finish, train

import saccade
import saccade.torch
from saccade import scores
from saccade.dropout import dropout_mask

VARIANTS = ("causal", "alibi", "alibi-learned", "t5", "window", "dropout")
WINDOW = 64  # keys that a query of "window" attends to, with the biases of "alibi"
RATE = 0.1  # of the attention weights that "dropout" drops, with the biases of "alibi"
BUCKETS, MAX_DISTANCE = 32, 128  # of "t5"


# --- attention --------------------------------------------------------------------------------------------------------


def draw_seed():
    """A seed of dropout. All runs draw the same ones, from PyTorch's generator."""
    return int(torch.randint(2**62, ()))


@functools.lru_cache(maxsize=8)
def kept(shape, seed):
    """What Saccade's dropout multiplies weights [batches, heads, queries, keys] by."""
    return torch.from_numpy(dropout_mask(tuple(shape), RATE, seed).copy()) / (1 - RATE)


class SelfAttention(nn.Module):
    """Causal multi-head attention with one of the variants."""

    def __init__(self, width, heads, variant, dropout):
        super().__init__()
        self.heads, self.variant = heads, variant
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)  # of the residual branch: `attend` drops no weights
        slopes = torch.from_numpy(scores.alibi_slopes(heads))
        if variant in ("alibi", "alibi-learned", "window", "dropout"):
            self.slopes = nn.Parameter(slopes, requires_grad=variant == "alibi-learned")
        if variant == "t5":  # starts near ALiBi, because 300 steps are few to learn positions from nothing
            self.table = nn.Parameter(-slopes * torch.arange(BUCKETS)[:, None])

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.dropout(self.out(self.attend(q, k, v).transpose(1, 2).flatten(2)))


class SaccadeAttention(SelfAttention):
    """Masks and scores are functions. No tensor has a dimension of queries and one of keys."""

    def attend(self, q, k, v):
        if self.variant == "causal":
            return saccade.torch.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.variant == "t5":
            score = scores.t5_bias(self.table, MAX_DISTANCE, bidirectional=False)
        else:
            score = scores.alibi(self.slopes)
        if self.variant == "window":
            mask = lambda b, h, i, j: (j <= i) & (j > i - WINDOW)
            return saccade.torch.flex_attention(q, k, v, score_mod=score, block_mask=mask)
        if self.variant == "dropout":
            return saccade.attention(q, k, v, score=score, causal="top_left", dropout_p=RATE, seed=draw_seed())
        return saccade.attention(q, k, v, score=score, causal="top_left")


class EagerAttention(SelfAttention):
    """PyTorch's function with a mask or bias [heads, queries, keys]; for dropout the formula with Saccade's bits."""

    def attend(self, q, k, v):
        if self.variant == "causal":
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        if self.variant == "dropout":
            weights = (q @ k.mT * q.shape[3] ** -0.5 + self.mask(q)).softmax(-1)
            return weights * kept(weights.shape, draw_seed()).to(q.dtype) @ v
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.mask(q))

    def mask(self, q):
        positions = torch.arange(q.shape[2])
        distance = positions - positions[:, None]  # of the key from the query
        hidden = distance > 0
        if self.variant == "causal":
            bias = torch.zeros_like(distance, dtype=q.dtype)
        elif self.variant == "t5":
            buckets = torch.from_numpy(scores.t5_buckets(BUCKETS, MAX_DISTANCE, bidirectional=False)).long()
            bias = self.table[buckets[distance.clamp(-MAX_DISTANCE, 0) + MAX_DISTANCE]].permute(2, 0, 1)
        else:
            bias = self.slopes[:, None, None] * distance
        if self.variant == "window":
            hidden = hidden | (distance <= -WINDOW)
        return bias.masked_fill(hidden, float("-inf"))


class ReorderedAttention(EagerAttention):
    """The formula with the keys in reverse order: the same function with other rounding errors."""

    def attend(self, q, k, v):
        weights = (q @ k.flip(2).mT * q.shape[3] ** -0.5 + self.mask(q).flip(-1)).softmax(-1)
        if self.variant == "dropout":
            weights = weights * kept(weights.shape, draw_seed()).flip(-1)
        return weights @ v.flip(2)


# --- model ------------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self, attention, width, dropout):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
                                 nn.Dropout(dropout))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class CharGPT(nn.Module):
    """Logits of the next character at each of up to `context` positions."""

    def __init__(self, attention, variant, characters, layers=4, width=128, heads=4, context=256, dropout=0.0):
        super().__init__()
        self.token, self.position = nn.Embedding(characters, width), None
        nn.init.normal_(self.token.weight, std=0.1)
        if variant == "causal":  # the others have positions in their scores
            self.position = nn.Parameter(0.1 * torch.randn(context, width))
        self.blocks = nn.Sequential(*(Block(attention(width, heads, variant, dropout), width, dropout)
                                      for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, characters)

    def forward(self, text):
        x = self.token(text)
        if self.position is not None:
            x = x + self.position[: text.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    def loss(self, text, following):
        return F.cross_entropy(self(text).flatten(0, 1), following.flatten())


# --- data -------------------------------------------------------------------------------------------------------------


def read_text(path=None):
    """The characters of a file: by default of Isaac Newton's Opticks (1730), which is part of the package
    apache-tvm-ffi, as the test data of a library in it."""
    if path is None:
        package = importlib.util.find_spec("tvm_ffi")
        if package is not None:
            path = pathlib.Path(package.origin).parent / "3rdparty" / "libbacktrace" / "Isaac.Newton-Opticks.txt"
    if path is None or not pathlib.Path(path).is_file():
        where = "the package tvm_ffi is not installed" if path is None else f"{path} does not exist"
        sys.exit(f"no text to train on: {where}; name another text of 300 kB or more with --text FILE")
    return pathlib.Path(path).read_text(encoding="utf-8")


def encode(text):
    """The number of each character, and of how many different ones."""
    characters = sorted(set(text))
    number = {character: n for n, character in enumerate(characters)}
    return torch.tensor([number[character] for character in text]), len(characters)


def batches(data, seed, size=4, context=256):
    """Endless pairs (text, following characters), [size, context] each."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(data) - context, (size, 1), generator=generator)
        places = starts + torch.arange(context)
        yield data[places], data[places + 1]


# --- training ---------------------------------------------------------------------------------------------------------


KINDS = {"eager": EagerAttention, "saccade": SaccadeAttention, "reordered": ReorderedAttention, "f64": EagerAttention}


def make_runs(names, variant, characters, seed, **sizes):
    """A run of each kind of attention, all from the same weights."""
    runs = []
    for name in names:
        torch.manual_seed(seed)
        model = CharGPT(KINDS[name], variant, characters, **sizes)
        runs.append(Run(name, model.double() if name == "f64" else model))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=(*VARIANTS, "all"), default="causal")
    parser.add_argument("--text", metavar="FILE", help="a text to train on instead of Newton's Opticks")
    parser.add_argument("--dropout", type=float, default=0.0, help="of the residual branches (default: 0)")
    add_options(parser)
    options = parser.parse_args()
    data, characters = encode(read_text(options.text))
    for variant in VARIANTS if options.variant == "all" else (options.variant,):
        runs = make_runs(chosen(options), variant, characters, options.seed, dropout=options.dropout)
        train(runs, batches(data, options.seed), options.steps, options.seed, f"GPT, {variant}")
        finish(f"GPT, {variant}", runs, options)


if __name__ == "__main__":
    main()
