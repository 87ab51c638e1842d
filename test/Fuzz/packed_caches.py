#!/usr/bin/env python3
# REQUIRES: torch
# RUN: %python %s --first-seed 0 --count 40
"""Random attention over caches of 4 bits against attention in float64 over the dequantized cache.

Usage: packed_caches.py [--first-seed N] [--count N] [--seed N]
The seed determines the kind of cache (contiguous, pages, ragged), groups of elements, zero points, element type of the
queries, head sizes, grouped heads, lengths, the number of queries, and causal masks, windows, sinks, softcaps and mask
functions. Positions that no query may attend to have scales of NaN.
"""

import pathlib
import sys
import traceback

import numpy as np
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from seeds import chosen_seeds, run_seeds, seed_options

import saccade

# The error of the result for elements of about 1. Keys of tiles are rounded to the type of the queries.
TOLERANCES = {torch.float32: 4e-6, torch.bfloat16: 3e-2, torch.float16: 4e-3}


class Call:
    def __init__(self, seed):
        rng = self.rng = np.random.default_rng(seed)
        self.kind = str(rng.choice(["contiguous", "pages", "ragged", "ragged pages"]))
        self.dtype = list(TOLERANCES)[rng.choice([0, 0, 1, 2])]
        self.depth, self.depth_v = (int(rng.choice([32, 64, 96, 128, 40])) for _ in range(2))
        self.group = int(rng.choice([0, 32, 64, 128]))  # elements that share a scale; 0 for all of a head
        if any(depth % max(self.group, 1) for depth in (self.depth, self.depth_v)):
            self.group = 0
        self.has_zero, self.heads, self.share = bool(rng.integers(2)), int(rng.choice([1, 2])), int(rng.choice([1, 3, 4, 8]))
        self.batch, queries = int(rng.integers(1, 4)), [1, 1, 2, 8, 9, 16, 70]
        same = int(rng.choice(queries))
        self.counts = [int(rng.choice(queries)) if "ragged" in self.kind else same for _ in range(self.batch)]
        longest = int(rng.choice([40, 301, 2500]))
        self.lengths = [int(rng.integers(count, max(longest, count) + 1)) for count in self.counts]
        self.page = int(rng.choice([1, 5, 16, 64]))
        self.options = {"causal": "bottom_right"} if rng.integers(2) else {}
        self.window = int(rng.integers(0, 60)) if self.options and rng.integers(3) == 0 else None
        self.cap = 3.0 if rng.integers(4) == 0 else None
        self.has_mask, self.has_sink = rng.integers(4) == 0, rng.integers(4) == 0
        self.text = (f"{self.kind}, {self.dtype}, heads of {self.depth} and {self.depth_v}, groups of {self.group}, zero points: "
                     f"{self.has_zero}, {self.heads} x {self.share} heads, queries {self.counts} of {self.lengths}, page {self.page}, "
                     f"{self.options}, window {self.window}, cap {self.cap}, mask {self.has_mask}, sink {self.has_sink}")

    def quantized(self, rows, depth):
        """Random bytes, scales and zero points of `rows` positions [rows, heads, ...], and what they stand for."""
        rng, groups = self.rng, depth // self.group if self.group else 1
        codes = rng.integers(0, 16, (rows, self.heads, depth))
        scale = rng.uniform(0.05, 0.3, (rows, self.heads, groups)).astype(np.float32)
        zero = rng.uniform(-3, 18, scale.shape).astype(np.float32)
        wide = [x.repeat(depth // groups, 2).astype(np.float64) for x in (scale, zero)]
        elements = (codes - (wide[1] if self.has_zero else 8)) * wide[0]
        stored = (codes[..., 0::2] + 16 * codes[..., 1::2]).astype(np.uint8)
        return stored, *(x if self.group else x[..., 0] for x in (scale, zero)), elements

    def caches(self):
        """For keys and values: the arrays of the call, and the elements of each sequence [length, heads, depth]."""
        result, elements = [], []
        capacity = max(self.lengths) + int(self.rng.integers(3))
        entries = -(-capacity // self.page)
        for depth in (self.depth, self.depth_v):
            if self.kind == "ragged":
                *arrays, dense = self.quantized(sum(self.lengths), depth)
                ends = np.cumsum(self.lengths)
                result.append(arrays)
                elements.append([dense[end - length:end] for end, length in zip(ends, self.lengths)])
                continue
            is_paged = "pages" in self.kind
            pages, page = (self.batch * entries + 2, self.page) if is_paged else (self.batch, capacity)
            *arrays, dense = self.quantized(pages * page, depth)
            if not result:
                self.table = (self.rng.permutation(pages)[:self.batch * entries].reshape(self.batch, entries) if is_paged
                              else np.arange(self.batch)[:, None]).astype(np.int32)
            arrays = [x.reshape(pages, page, *x.shape[1:]) for x in arrays]
            dense = dense.reshape(pages, page, *dense.shape[1:])
            sequences = [dense[row].reshape(-1, *dense.shape[2:])[:length] for row, length in zip(self.table, self.lengths)]
            used = np.zeros((pages, page), bool)
            for row, length in zip(self.table, self.lengths):
                used[row[np.arange(length) // page], np.arange(length) % page] = True
            for x in arrays[1:]:
                x[~used] = np.nan
            # Pages are [pages, heads, positions, ...] without ragged queries.
            result.append(arrays if self.kind == "ragged pages" else [x.swapaxes(1, 2) for x in arrays])
            elements.append(sequences)
        return result, elements

    def oracle(self, q, b, keys, values, sink, allowed):
        """Of sequence b: q [n, heads, depth]."""
        keys, values = (x.repeat(self.share, 1) for x in (keys, values))
        scores = np.einsum("nhd,mhd->hnm", q.astype(np.float64), keys) / np.sqrt(self.depth)
        if self.cap:
            scores = self.cap * np.tanh(scores / self.cap)
        n, m = scores.shape[1:]
        own, place = np.arange(n)[:, None] + m - n, np.arange(m)[None]
        visible = (place <= own) if self.options else np.ones((n, m), bool)
        if self.window is not None:
            visible = visible & (place >= own - self.window)
        if self.has_mask:
            visible = visible & allowed[b][place]
        scores = np.where(visible, scores, -np.inf)
        top = np.maximum(scores.max(-1, keepdims=True), sink[:, None, None]) if self.has_sink else scores.max(-1, keepdims=True)
        weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
        total = weights.sum(-1, keepdims=True)
        if self.has_sink:
            total = total + np.exp(sink[:, None, None] - top)
        return np.einsum("hnm,mhd->nhd", weights / np.where(total == 0, 1, total), values)

    def run(self):
        rng, is_ragged = self.rng, "ragged" in self.kind
        arrays, (keys, values) = self.caches()
        q = [torch.from_numpy(rng.standard_normal((count, self.heads * self.share, self.depth))).to(self.dtype)
             for count in self.counts]
        sink = rng.standard_normal(self.heads * self.share).astype(np.float32)
        allowed = rng.random((self.batch, max(self.lengths) + 1)) < 0.7
        tensors = [[torch.from_numpy(np.ascontiguousarray(x)) for x in each] for each in arrays]
        options = dict(self.options)
        for name, (_, scale, zero) in zip("kv", tensors):
            options[f"{name}_scale"] = scale
            if self.has_zero:
                options[f"{name}_zero"] = zero
        if self.window is not None:
            options["window"] = (self.window, 0)
        if self.cap:
            options["score"] = saccade.scores.soft_cap(self.cap)
        if self.has_sink:
            options["sink"] = torch.from_numpy(sink)
        if self.has_mask:
            table = torch.from_numpy(allowed)
            options["mask"] = lambda b, h, i, j: table[b, j]
        if "pages" in self.kind:
            options["page_table"] = torch.from_numpy(self.table)
        if self.kind != "ragged":
            options["kv_len"] = torch.tensor(self.lengths, dtype=torch.int32)
        if is_ragged:
            offsets = torch.tensor(np.cumsum([0, *self.counts]), dtype=torch.int32)
            options["cu_seqlens_q"] = offsets
            if self.kind == "ragged":
                options["cu_seqlens_k"] = torch.tensor(np.cumsum([0, *self.lengths]), dtype=torch.int32)
            out = saccade.attention(torch.cat(q), tensors[0][0], tensors[1][0], **options)
            found = out.split(self.counts)
        else:
            out = saccade.attention(torch.stack(q).transpose(1, 2), tensors[0][0], tensors[1][0], **options)
            found = out.transpose(1, 2)
        for b in range(self.batch):
            expected = self.oracle(q[b].double().numpy(), b, keys[b], values[b], sink, allowed)
            error = np.abs(found[b].double().numpy() - expected).max()
            limit = TOLERANCES[self.dtype] * max(1, np.abs(expected).max())
            if not error <= limit:
                return f"sequence {b}: error {error:.3g}, allowed {limit:.3g}"
        return None


def run(seed):
    call = Call(seed)
    try:
        wrong = call.run()
    except Exception:
        wrong = traceback.format_exc(limit=4)
    return wrong and f"{call.text}: {wrong}"


def main():
    seeds = chosen_seeds(seed_options(__doc__, count=60).parse_args())
    failures = run_seeds(__file__, seeds, run)
    print(f"{len(seeds)} calls, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
