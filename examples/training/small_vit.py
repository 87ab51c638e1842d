"""Trains a small Vision Transformer on drawn shapes, with PyTorch's attention and with Saccade's, step by step.

    python examples/training/small_vit.py --variant relative

The model calls F.scaled_dot_product_attention. Within `saccade.torch.enabled()`, Saccade computes it and its gradients.
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from trainer import Run, add_options, chosen, finish, train

import saccade.torch

VARIANTS = ("plain", "relative")
SIDE, PATCH, CLASSES = 32, 4, 10
GRID = SIDE // PATCH


# --- model ------------------------------------------------------------------------------------------------------------


class SelfAttention(nn.Module):
    """Multi-head attention of all patches. "relative" adds a learned bias for each distance in rows and columns."""

    def __init__(self, width, heads, variant):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table = None
        if variant == "relative":
            self.table = nn.Parameter(0.02 * torch.randn(heads, 2 * GRID - 1, 2 * GRID - 1))

    def bias(self):
        """[heads, queries, keys], or None."""
        if self.table is None:
            return None
        row, column = torch.arange(GRID * GRID) // GRID, torch.arange(GRID * GRID) % GRID
        return self.table[:, row - row[:, None] + GRID - 1, column - column[:, None] + GRID - 1]

    def attend(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias())

    def forward(self, x):
        q, k, v = (y.unflatten(-1, (self.heads, -1)).transpose(1, 2) for y in self.qkv(x).chunk(3, -1))
        return self.out(self.attend(q, k, v).transpose(1, 2).flatten(2))


class ReorderedAttention(SelfAttention):
    """The formula with the keys in reverse order: the same function with other rounding errors."""

    def attend(self, q, k, v):
        s = q @ k.flip(2).mT * q.shape[3] ** -0.5
        if self.table is not None:
            s = s + self.bias().flip(-1)
        return s.softmax(-1) @ v.flip(2)


class Block(nn.Module):
    def __init__(self, attention, width):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = attention
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class SmallViT(nn.Module):
    """Logits of the classes for images [batch, 3, SIDE, SIDE]."""

    def __init__(self, attention, variant, layers=4, width=128, heads=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, PATCH, PATCH)
        self.position = nn.Parameter(0.1 * torch.randn(GRID * GRID, width))
        self.blocks = nn.Sequential(*(Block(attention(width, heads, variant), width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.position
        return self.head(self.norm(self.blocks(x)).mean(1))

    def loss(self, images, classes):
        return F.cross_entropy(self(images), classes)


# --- data -------------------------------------------------------------------------------------------------------------


def draw(classes, generator, noise=0.5):
    """Noisy images [batch, 3, SIDE, SIDE] of one shape each, with random places, sizes and colors."""

    def random(low, high):
        return low + (high - low) * torch.rand(len(classes), 1, 1, generator=generator)

    size = random(6, 11)
    grid = torch.arange(SIDE, dtype=torch.float32)
    y, x = grid[:, None] - random(12, SIDE - 12), grid - random(12, SIDE - 12)
    box, distance = torch.maximum(x.abs(), y.abs()), torch.hypot(x, y)
    bar = size / 3
    inside = box <= size
    shapes = torch.stack([
        distance <= size,  # disc
        (distance <= size) & (distance > 0.6 * size),  # ring
        inside,  # square
        inside & (box > 0.6 * size),  # frame
        x.abs() + y.abs() <= size,  # diamond
        (y <= size) & (y >= 2 * x.abs() - size),  # triangle
        inside & (torch.minimum(x.abs(), y.abs()) <= bar),  # plus
        inside & ((x.abs() - y.abs()).abs() <= bar),  # saltire
        inside & (torch.floor(y / 3) % 2 == 0),  # horizontal stripes
        inside & (torch.floor(x / 3) % 2 == 0),  # vertical stripes
    ])  # fmt: skip
    shape = shapes[classes, torch.arange(len(classes))][:, None]
    paint, ground = torch.rand(2, len(classes), 3, 1, 1, generator=generator)
    images = torch.where(shape, 1 + paint, -1 - ground)
    return images + noise * torch.randn(images.shape, generator=generator)


def batches(seed, size=16):
    """Endless pairs (images, classes)."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        classes = torch.randint(CLASSES, (size,), generator=generator)
        yield draw(classes, generator), classes


# --- training ---------------------------------------------------------------------------------------------------------


def make_runs(names, variant, seed, **sizes):
    """A run of each kind of attention, all from the same weights."""
    runs = []
    for name in names:
        torch.manual_seed(seed)
        model = SmallViT(ReorderedAttention if name == "reordered" else SelfAttention, variant, **sizes)
        model = model.double() if name == "f64" else model
        runs.append(Run(name, model, saccade.torch.enabled) if name == "saccade" else Run(name, model))
    return runs


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--variant", choices=(*VARIANTS, "all"), default="plain")
    add_options(parser)
    options = parser.parse_args()
    for variant in VARIANTS if options.variant == "all" else (options.variant,):
        runs = make_runs(chosen(options), variant, options.seed)
        train(runs, batches(options.seed), options.steps, options.seed, f"ViT, {variant}")
        finish(f"ViT, {variant}", runs, options)


if __name__ == "__main__":
    main()
