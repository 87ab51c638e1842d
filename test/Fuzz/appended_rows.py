#!/usr/bin/env python3
# REQUIRES: torch
# RUN: %python %s --first-seed 0 --count 60
"""Random appends to caches of keys and values against the same writes in numpy.

Usage: appended_rows.py [--first-seed N] [--count N] [--seed N]
The seed determines the kind of cache (contiguous, ring, pages), layout, element type, scales, zero points, extents, and
three calls with random lengths, padded or ragged. All bytes of caches, scales and zero points are compared, also those
that no call writes.
"""

import pathlib
import sys
import traceback

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from seeds import chosen_seeds, run_seeds, seed_options

from saccade.torch import append_kvcache

LARGEST = {torch.int8: 127, torch.float8_e4m3fn: 448, torch.float8_e5m2: 57344, torch.uint8: 7}
CALLS = 3


def quantized(row, scale, element, zero=None):
    """Of one position and head [depth]: the stored row. Bytes have two codes of 4 bits, the low bits first."""
    row = (row / (scale if scale > 0 else np.float32(1))).astype(np.float32)
    if element == torch.uint8:
        codes = np.clip(np.rint(row), -7, 7) + 8 if zero is None else np.clip(np.rint(row + zero), 0, 15)
        return torch.from_numpy((codes[0::2] + 16 * codes[1::2]).astype(np.uint8))
    row = np.clip(np.rint(row) if element == torch.int8 else row, -LARGEST[element], LARGEST[element])
    return torch.from_numpy(row).to(element)


def numbers_of(part, element, has_zero):
    """The scale and the zero point of elements."""
    if not has_zero:
        return np.float32(np.abs(part).max() / np.float32(LARGEST[element])), None
    scale = (part.max() - part.min()) / np.float32(15)
    with np.errstate(divide="ignore", invalid="ignore"):
        zero = -part.min() / scale
    return (scale, zero) if scale != 0 and np.isfinite(zero) else (np.float32(1), -part.min())


class Trace:
    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.kind, self.layout = str(rng.choice(["contiguous", "ring", "pages"])), str(rng.choice(["bshd", "bhsd"]))
        self.element = [torch.float32, torch.bfloat16, *LARGEST, torch.uint8][rng.integers(7)]
        self.has_zero = self.element == torch.uint8 and bool(rng.integers(2))
        self.batch, self.heads, self.depth = int(rng.integers(1, 5)), int(rng.integers(1, 4)), int(rng.choice([8, 16, 40]))
        self.page, self.entries = int(rng.choice([1, 3, 8])), int(rng.integers(2, 7))
        self.pinned, self.rows = int(rng.integers(0, 4)), int(rng.integers(5, 40))
        pages = self.batch * self.entries + 3
        self.table = rng.permutation(pages)[: self.batch * self.entries].reshape(self.batch, self.entries).astype(np.int32)
        shape = (pages, self.page) if self.kind == "pages" else (self.batch, self.rows)
        self.capacity = self.page * self.entries if self.kind == "pages" else self.rows
        self.scale_kind = str(rng.choice(["number", "head", "position", "blocks"])) if self.element in LARGEST else None
        blocks = {"blocks": (int(rng.choice([1, self.depth // 8])),)}.get(self.scale_kind, ())
        # In the order of "bshd"; a call gets views in the order of the layout.
        stored_depth = self.depth // 2 if self.element == torch.uint8 else self.depth
        self.caches = [torch.from_numpy(rng.integers(-60, 60, (*shape, self.heads, stored_depth))).to(self.element) for _ in "kv"]
        self.scales = self.zeros = None
        if self.scale_kind in ("position", "blocks"):
            self.scales = [torch.full((*shape, self.heads, *blocks), 5.0) for _ in "kv"]
        elif self.scale_kind:
            self.scales = [0.03, 0.25] if self.scale_kind == "number" else [torch.rand(self.heads) + 0.01 for _ in "kv"]
        self.expected = [x.clone() for x in self.caches]
        self.is_computed = self.scale_kind in ("position", "blocks")
        if self.has_zero:
            self.zeros = [x * 3 for x in self.scales] if not self.is_computed else [torch.full_like(x, 6.0) for x in self.scales]
        copied = [[x.clone() for x in numbers] if numbers and self.is_computed else numbers for numbers in (self.scales, self.zeros)]
        self.expected_scales, self.expected_zeros = copied
        self.length = np.zeros(self.batch, np.int64)
        self.text = f"{self.kind}, {self.layout}, {self.element}, scales: {self.scale_kind}, zero points: {self.has_zero}"

    def place(self, sequence, position):
        if self.kind == "pages":
            return int(self.table[sequence, position // self.page]), position % self.page
        if self.kind == "ring" and position >= self.pinned:
            return sequence, self.pinned + (position - self.pinned) % (self.rows - self.pinned)
        return sequence, position

    def write(self, i, sequence, position, row):
        """Writes a new row [heads, depth] of keys or values (`i`)."""
        place = self.place(sequence, position)
        for h in range(self.heads):
            if not self.scale_kind:
                self.expected[i][place][h] = row[h].to(self.element)
                continue
            scales, zeros = self.expected_scales[i], self.expected_zeros[i] if self.has_zero else None
            if not self.is_computed:
                own = [None if x is None else np.float32(x if self.scale_kind == "number" else x[h]) for x in (scales, zeros)]
                self.expected[i][place][h] = quantized(row[h].numpy(), own[0], self.element, own[1])
                continue
            parts = row[h].numpy().reshape(scales.shape[3] if scales.dim() == 4 else 1, -1)
            own = [numbers_of(part, self.element, self.has_zero) for part in parts]
            stored = [quantized(part, scale, self.element, zero) for part, (scale, zero) in zip(parts, own)]
            self.expected[i][place][h] = torch.cat(stored)
            for target, of_parts in ((scales, [x for x, _ in own]), (zeros, [x for _, x in own])):
                if target is not None:
                    target[place][h] = torch.tensor(np.array(of_parts)) if target.dim() == 4 else float(of_parts[0])

    def call(self):
        rng, most = self.rng, 12
        if self.kind != "ring":
            most = min(most, self.capacity)
        counts = rng.integers(0, most + 1, self.batch)
        if self.kind != "ring":
            counts = np.minimum(counts, self.capacity - self.length)
        n = max(int(counts.max()), 1) + int(rng.integers(3))
        rows = [torch.from_numpy(rng.standard_normal((self.batch, n, self.heads, self.depth), np.float32)) for _ in "kv"]
        if not self.scale_kind:
            rows = [x.to(self.element) for x in rows]
        elif rng.random() < 0.3:  # rows of equal and of nearly equal elements
            rows[0][:, 0] = float(rng.choice([0.0, -3.0, 2.5]))
            rows[1] = rows[1] * 1e-30 + float(rng.choice([0.0, 1.0]))
        for i, x in enumerate(rows):
            for b in range(self.batch):
                for j in range(counts[b]):
                    self.write(i, b, int(self.length[b]) + j, x[b, j])
                x[b, counts[b] :] = torch.nan  # padding is not read
        index = [torch.int32, torch.int64][rng.integers(2)]
        options = {"page_table": torch.from_numpy(self.table)} if self.kind == "pages" else {}
        if self.kind == "ring":
            options["ring"] = self.pinned
        if self.scales:
            options |= {"k_scale": self.scales[0], "v_scale": self.scales[1]}
        if self.zeros:
            options |= {"k_zero": self.zeros[0], "v_zero": self.zeros[1]}
        if rng.random() < 0.5:
            rows = [torch.cat([x[b, :count] for b, count in enumerate(counts)]) for x in rows]
            options["cu_seqlens"] = torch.from_numpy(np.cumsum([0, *counts])).to(index)
            append_kvcache(*rows, *self.caches, torch.from_numpy(self.length).to(index), **options)
        else:
            def arranged(x):
                return x.transpose(1, 2) if self.layout == "bhsd" and isinstance(x, torch.Tensor) and x.dim() > 2 else x

            options = {name: arranged(x) for name, x in options.items()}
            append_kvcache(*map(arranged, rows), *map(arranged, self.caches), torch.from_numpy(self.length).to(index),
                           seqlens_new=torch.from_numpy(counts).to(index), layout=self.layout, **options)
        self.length += counts

    def check(self):
        found, expected = list(self.caches), list(self.expected)
        if self.scales and isinstance(self.scales[0], torch.Tensor):
            found, expected = found + self.scales, expected + self.expected_scales
            if self.zeros:
                found, expected = found + self.zeros, expected + self.expected_zeros
        for what, x, y in zip(("keys", "values", "scales of keys", "scales of values", "zero points of keys",
                               "zero points of values"), found, expected):
            if not torch.equal(x.contiguous().view(torch.uint8), y.contiguous().view(torch.uint8)):
                place = (x.float() != y.float()).nonzero()[0].tolist()
                raise AssertionError(f"{what} differ at {place}: {x[tuple(place)]}, expected {y[tuple(place)]}")


def run(seed):
    trace = Trace(seed)
    try:
        for _ in range(CALLS):
            trace.call()
            trace.check()
    except Exception:
        return f"{trace.text}: {traceback.format_exc(limit=3)}"
    return None


def main():
    seeds = chosen_seeds(seed_options(__doc__, count=60).parse_args())
    failures = run_seeds(__file__, seeds, run)
    print(f"{len(seeds)} traces of {CALLS} calls, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
