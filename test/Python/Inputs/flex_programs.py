"""Programs of flex_attention: the masks and scores that models and papers use, by name.

A program has a score_mod, a mask_mod, and whether query heads share KV heads. Queries and keys have LENGTH positions, or
an image of SIDE x SIDE; captured tensors are made here once.
"""

import math
from typing import Any, NamedTuple

import torch
from torch.nn.attention.flex_attention import and_masks, noop_mask, or_masks

BATCH, HEADS, SIDE = 2, 4, 6
LENGTH = SIDE * SIDE
generator = torch.Generator().manual_seed(5)


class Program(NamedTuple):
    """What flex_attention is called with."""

    score_mod: Any = None
    mask_mod: Any = None
    options: dict = {}


# --- captured tensors ---------------------------------------------------------------------------------------------------

documents = torch.tensor([0] * 10 + [1] * 7 + [2] * 19)
batch_documents = torch.stack([documents, documents.flip(0).contiguous()])
lengths = torch.tensor([20, 33])
prefixes = torch.tensor([5, 12])
slopes = 2.0 ** (-8.0 / HEADS * torch.arange(1, HEADS + 1))
bias = torch.randn(LENGTH, LENGTH, generator=generator)
head_bias = torch.randn(HEADS, LENGTH, LENGTH, generator=generator)
half_bias = torch.randn(HEADS, 2 * LENGTH, generator=generator).half()
relative = torch.randn(HEADS, 2 * LENGTH - 1, generator=generator)
buckets = torch.randn(32, HEADS, generator=generator)
swin_table = torch.randn((2 * SIDE - 1) ** 2, HEADS, generator=generator)
keep = torch.rand(LENGTH, LENGTH, generator=generator) > 0.4
layout = torch.rand(HEADS, LENGTH // 4, LENGTH // 4, generator=generator) > 0.3
enter, leave = torch.arange(LENGTH), torch.arange(LENGTH) + torch.tensor([4, 1, 2, 1] * (LENGTH // 4))
is_global = torch.rand(LENGTH, generator=generator) > 0.8
offset = torch.tensor(3)
temperature = torch.tensor(0.7)
gates = torch.rand(BATCH, HEADS, generator=generator)
caps = torch.tensor([1.0, 2.0, 5.0, 9.0])
kinds = torch.tensor([0, 1, 1, 2])
windows = torch.tensor([2, 4, 8, 100])

# --- masks --------------------------------------------------------------------------------------------------------------


def causal(b, h, i, j):
    return i >= j


def sliding_window(size):
    return lambda b, h, i, j: (i - j <= size) & (i >= j)


def around(size):
    return lambda b, h, i, j: (i - j).abs() <= size


def dilated(step):
    return lambda b, h, i, j: (i >= j) & ((i - j) % step == 0)


def natten(radius):
    def mask(b, h, i, j):
        row, column = i // SIDE, i % SIDE
        center_row, center_column = row.clamp(radius, SIDE - 1 - radius), column.clamp(radius, SIDE - 1 - radius)
        return ((center_row - j // SIDE).abs() <= radius) & ((center_column - j % SIDE).abs() <= radius)

    return mask


def padding(b, h, i, j):
    return j < lengths[b]


def document(b, h, i, j):
    return documents[i] == documents[j]


def batch_document(b, h, i, j):
    return batch_documents[b, i] == batch_documents[b, j]


def prefix_lm(b, h, i, j):
    return (j < prefixes[b]) | (j <= i)


def global_tokens(b, h, i, j):
    return is_global[i] | is_global[j]


def swin_window(b, h, i, j):
    block = lambda position: (position // SIDE // 3) * 2 + position % SIDE // 3
    return block(i) == block(j)


MASKS = {
    "causal": causal,
    "causal with an offset in a tensor": lambda b, h, i, j: i + offset >= j,
    "sliding window": sliding_window(5),
    "sliding window of 1": sliding_window(0),
    "around": around(4),
    "windows of heads": lambda b, h, i, j: (i - j).abs() < windows[h],
    "dilated": dilated(3),
    "dilated window": lambda b, h, i, j: (i >= j) & (i - j <= 12) & ((i - j) % 4 == 0),
    "strided of Sparse Transformers": lambda b, h, i, j: (i >= j) & ((i - j < 6) | (j % 6 == 5)),
    "padding": padding,
    "padding on both sides": lambda b, h, i, j: (i < lengths[b]) & (j < lengths[b]),
    "documents": document,
    "documents of batches": batch_document,
    "causal documents": and_masks(document, causal),
    "documents with positions within": lambda b, h, i, j: document(b, h, i, j) & (i - j < 4) & (i >= j),
    "prefix LM": prefix_lm,
    "prefix LM of documents": and_masks(document, or_masks(causal, lambda b, h, i, j: j % 12 < 3)),
    "neighborhood": natten(1),
    "neighborhood of 5": natten(2),
    "windows of Swin": swin_window,
    "tiles": lambda b, h, i, j: (i // 4 == j // 4) | (j // 4 == 0),
    "tree": lambda b, h, i, j: (enter[j] <= enter[i]) & (enter[i] < leave[j]),
    "global tokens": global_tokens,
    "Longformer": or_masks(global_tokens, around(3)),
    "BigBird": lambda b, h, i, j: layout[h, i // 4, j // 4] | (i < 4) | (j < 4) | ((i // 4 - j // 4).abs() <= 1),
    "block layout": lambda b, h, i, j: layout[h, i // 4, j // 4],
    "a matrix": lambda b, h, i, j: keep[i, j],
    "StreamingLLM": or_masks(and_masks(causal, sliding_window(6)), lambda b, h, i, j: (j < 2) & (i >= j)),
    "three masks": and_masks(causal, or_masks(around(3), document), padding),
    "not": lambda b, h, i, j: ~document(b, h, i, j),
    "exclusive or": lambda b, h, i, j: causal(b, h, i, j) ^ document(b, h, i, j),
    "nothing": noop_mask,
    "rows without keys": lambda b, h, i, j: (i >= 7) & (j < 30),
    "heads of two kinds": lambda b, h, i, j: torch.where(h % 2 == 0, i >= j, i <= j),
    "mixed heads by a table": lambda b, h, i, j: (kinds[h] == 0) | (kinds[h] == 1) & (i >= j) | (i == j),
    "image rows": lambda b, h, i, j: (i // SIDE == j // SIDE) | (i % SIDE == j % SIDE),
    "checkerboard": lambda b, h, i, j: (i + j) % 2 == 0,
}

# --- scores -------------------------------------------------------------------------------------------------------------


def alibi(score, b, h, i, j):
    return score + slopes[h] * (j - i)


def soft_cap(cap):
    return lambda score, b, h, i, j: cap * torch.tanh(score / cap)


def t5(score, b, h, i, j):
    """The bidirectional buckets of T5, 32 for distances up to 128."""
    distance = j - i
    bucket = (distance > 0).to(torch.int32) * 16
    distance = distance.abs()
    far = 8 + (torch.log(distance.float() / 8) / math.log(128 / 8) * 8).to(torch.int32)
    far = torch.minimum(far, torch.full_like(far, 15))
    return score + buckets[bucket + torch.where(distance < 8, distance.to(torch.int32), far), h]


def swin_bias(score, b, h, i, j):
    rows, columns = i // SIDE - j // SIDE + SIDE - 1, i % SIDE - j % SIDE + SIDE - 1
    return score + swin_table[rows * (2 * SIDE - 1) + columns, h]


SCORES = {
    "the score": lambda score, b, h, i, j: score,
    "ALiBi": alibi,
    "symmetric ALiBi": lambda score, b, h, i, j: score - slopes[h] * (i - j).abs(),
    "relative position": lambda score, b, h, i, j: score + (i - j),
    "relative position of half": lambda score, b, h, i, j: score + half_bias[h, i - j + LENGTH],
    "learned relative position": lambda score, b, h, i, j: score + relative[h, j - i + LENGTH - 1],
    "T5": t5,
    "Swin": swin_bias,
    "bias": lambda score, b, h, i, j: score + bias[i, j],
    "bias of heads": lambda score, b, h, i, j: score + head_bias[h, i, j],
    "bias of heads, chained": lambda score, b, h, i, j: score + head_bias[h][i][j],
    "soft cap": soft_cap(3.0),
    "soft cap of heads": lambda score, b, h, i, j: caps[h] * torch.tanh(score / caps[h]),
    "temperature": lambda score, b, h, i, j: score / temperature,
    "gates": lambda score, b, h, i, j: score * gates[b, h],
    "a mask as a score": lambda score, b, h, i, j: torch.where(i >= j, score, -float("inf")),
    "a penalty": lambda score, b, h, i, j: torch.where(documents[i] == documents[j], score, score - 4),
    "clamped": lambda score, b, h, i, j: score.clamp(-1, 1),
    "logarithm of the length": lambda score, b, h, i, j: score * torch.log(i.float() + 2),
    "decay": lambda score, b, h, i, j: score * torch.exp(-0.1 * (i - j).abs().float()),
    "sigmoid": lambda score, b, h, i, j: 2 * torch.sigmoid(score) - 1,
    "sine of the distance": lambda score, b, h, i, j: score + torch.sin((i - j) * 0.3),
    "even heads": lambda score, b, h, i, j: torch.where(h % 2 == 0, score, score * 0.5),
    "ALiBi, soft cap": lambda score, b, h, i, j: soft_cap(4.0)(alibi(score, b, h, i, j), b, h, i, j),
}

PROGRAMS = {f"mask: {name}": Program(None, mask) for name, mask in MASKS.items()}
PROGRAMS |= {f"score: {name}": Program(score) for name, score in SCORES.items()}
PROGRAMS |= {
    "ALiBi, causal": Program(alibi, causal),
    "Gemma 2: soft cap, sliding window": Program(soft_cap(5.0), sliding_window(8), {"enable_gqa": True}),
    "MPT: ALiBi, prefix LM": Program(alibi, prefix_lm),
    "Swin: bias, windows": Program(swin_bias, swin_window),
    "T5, padding": Program(t5, padding),
    "groups of heads": Program(None, None, {"enable_gqa": True}),
    "groups of heads, ALiBi, causal documents": Program(alibi, and_masks(document, causal), {"enable_gqa": True}),
    "scale": Program(None, causal, {"scale": 0.2}),
    "scale, bias": Program(SCORES["bias"], None, {"scale": 2.0}),
}
