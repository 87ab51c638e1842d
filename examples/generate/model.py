"""A small decoder of the shape of Llama: RMSNorm, rotary positions, grouped queries and SwiGLU (Touvron et al. 2023).

Tokens are the bytes of a text. `Decoder` computes the logits of a whole text, for training. `Step` appends tokens to
caches of keys and values, and computes the logits of the next token.
"""

import dataclasses
import pathlib

import torch
import torch.nn.functional as F
from torch import nn

import saccade.torch

WEIGHTS = pathlib.Path(__file__).resolve().parent / "weights.safetensors"


@dataclasses.dataclass(frozen=True)
class Shape:
    """The sizes of a decoder."""

    tokens: int = 256
    width: int = 256
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    hidden: int = 640  # width of the feed-forward network
    positions: int = 512  # the longest text

    @property
    def head_dim(self):
        return self.width // self.heads


def rotate(x, cos, sin):
    """Rotary positions (Su et al. 2021) for x [..., tokens, heads, head_dim]; cos, sin: [..., tokens, head_dim/2]."""
    first, second = x.chunk(2, -1)
    cos, sin = cos.unsqueeze(-2), sin.unsqueeze(-2)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


class Attention(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        self.q = nn.Linear(shape.width, shape.width, bias=False)
        self.k = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.v = nn.Linear(shape.width, shape.kv_heads * shape.head_dim, bias=False)
        self.out = nn.Linear(shape.width, shape.width, bias=False)

    def forward(self, x, cos, sin, attend):
        q, k, v = (project(x).unflatten(-1, (-1, self.shape.head_dim)) for project in (self.q, self.k, self.v))
        return self.out(attend(rotate(q, cos, sin), rotate(k, cos, sin), v).flatten(-2))


class FeedForward(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.gate = nn.Linear(shape.width, shape.hidden, bias=False)
        self.up = nn.Linear(shape.width, shape.hidden, bias=False)
        self.down = nn.Linear(shape.hidden, shape.width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.attention, self.feed = Attention(shape), FeedForward(shape)
        self.norm1, self.norm2 = (nn.RMSNorm(shape.width, eps=1e-5) for _ in range(2))

    def forward(self, x, cos, sin, attend):
        x = x + self.attention(self.norm1(x), cos, sin, attend)
        return x + self.feed(self.norm2(x))


class Decoder(nn.Module):
    """Logits of the next token. The embedding is also the output matrix."""

    def __init__(self, shape=None):
        super().__init__()
        self.shape = shape = shape or Shape()
        self.embedding = nn.Embedding(shape.tokens, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.width, eps=1e-5)
        rates = 10000.0 ** -(torch.arange(0, shape.head_dim, 2) / shape.head_dim)
        angles = torch.arange(shape.positions)[:, None] * rates
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)
        for name, weight in self.named_parameters():
            if weight.ndim == 2:  # the last matrix of a branch is smaller, so that layers add little to the variance
                scale = (2 * shape.layers) ** -0.5 if name.endswith(("out.weight", "down.weight")) else 1
                nn.init.normal_(weight, std=0.04 * scale)

    def forward(self, text):
        """The logits [batch, length, tokens] at each position of a text [batch, length]."""
        def attend(q, k, v):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2)

        x, length = self.embedding(text), text.shape[1]
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length], attend)
        return self.logits(x)

    def logits(self, x):
        """The logits of the next token for the output x [..., width] of the last block."""
        return F.linear(self.norm(x), self.embedding.weight)

    def loss(self, text, following):
        return F.cross_entropy(self(text).flatten(0, 1), following.flatten())


class Step(nn.Module):
    """One step of generation: the tokens of a prompt, or one token."""

    def __init__(self, decoder, attend):
        """`attend(q, k, v, k_cache, v_cache, lengths)` appends k and v [batch, n, KV heads, head_dim] to the caches
        [batch, positions, KV heads, head_dim] after the first `lengths` positions, and attends to the cache with q."""
        super().__init__()
        self.decoder, self.attend = decoder, attend

    def forward(self, tokens, lengths, caches):
        """The logits [batch, tokens] after new tokens [batch, n]. `caches` has keys and values of each layer, which are
        updated, and `lengths` [batch] how many tokens are in them."""
        places = lengths[:, None] + torch.arange(tokens.shape[1])
        return self.decoder.logits(self.output(tokens, places, caches, lengths)[:, -1])

    def output(self, tokens, places, caches, *options):
        """The output of the last block for tokens at these positions. `options` are passed on to `attend`."""
        decoder = self.decoder
        x, cos, sin = decoder.embedding(tokens), decoder.cos[places], decoder.sin[places]
        for i, block in enumerate(decoder.blocks):
            k_cache, v_cache = caches[2 * i : 2 * i + 2]
            x = block(x, cos, sin, lambda q, k, v: self.attend(q, k, v, k_cache, v_cache, *options))
        return x

    def new_caches(self, batch):
        shape = self.decoder.shape
        size = (batch, shape.positions, shape.kv_heads, shape.head_dim)
        return [torch.zeros(size) for _ in range(2 * shape.layers)]


def saccade_attention(q, k, v, k_cache, v_cache, lengths):
    return saccade.torch.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)


def torch_attention(q, k, v, k_cache, v_cache, lengths):
    """PyTorch's function on the part of the cache in use. All sequences have the same length."""
    start, n = int(lengths[0]), q.shape[1]
    k_cache[:, start : start + n], v_cache[:, start : start + n] = k, v
    q, k, v = (x.transpose(1, 2) for x in (q, k_cache[:, : start + n], v_cache[:, : start + n]))
    mask = None if n == 1 else torch.ones(n, start + n, dtype=torch.bool).tril(start)
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


def static_attention(q, k, v, k_cache, v_cache, lengths):
    """The same on the whole cache, with a mask, so that torch.compile makes one graph for all lengths."""
    places = lengths[0] + torch.arange(q.shape[1])
    k_cache.index_copy_(1, places, k)
    v_cache.index_copy_(1, places, v)
    mask = torch.arange(k_cache.shape[1]) <= places[:, None]
    q, k, v = (x.transpose(1, 2) for x in (q, k_cache, v_cache))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True).transpose(1, 2)


def generate(step, caches, prompt, count):
    """The likeliest `count` tokens after a prompt, one by one, in caches of one sequence."""
    tokens, lengths = torch.tensor([list(prompt.encode())]), torch.zeros(1, dtype=torch.int32)
    generated = []
    for _ in range(count):
        logits = step(tokens, lengths, caches)
        lengths = lengths + tokens.shape[1]
        tokens = logits.argmax(-1, keepdim=True)
        generated.append(tokens.item())
    return generated


def load(path=WEIGHTS, dtype=torch.float32):
    """The trained decoder, with weights of bfloat16 converted to `dtype`."""
    from safetensors.torch import load_file

    decoder = Decoder().eval().requires_grad_(False)
    decoder.load_state_dict(load_file(path))
    return decoder.to(dtype)
