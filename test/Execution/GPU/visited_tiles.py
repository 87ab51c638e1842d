#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Kernels compute no key tile that the mask leaves empty, and do not evaluate the mask in full tiles.

The simulator counts the matrix products (mma) that the warps execute. A tile has 128 queries and 64 keys, of which every
mma takes 16 × 8 × 16, so the count gives the tiles that a kernel computes. numpy counts the tiles in which the mask holds
for some pair. Evaluations of the mask are seen in the number of instructions.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

DEPTH, ROWS, COLUMNS = 64, 128, 64
PRODUCTS = 2 * ROWS * COLUMNS * DEPTH // (16 * 8 * 16)  # of a tile: Q·Kᵀ and P·V

DOCUMENTS = """mask(%b, %h, %i, %j, %ids) {
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %same = arith.cmpi eq, %x, %y : i32
    attn.yield %same : i1
  }"""
# Pairs with two ids below a number, which a table with exchanged minima and maxima calls full.
BELOW = """mask(%b, %h, %i, %j, %ids) {
    %x = tensor.extract %ids[%i] : tensor<?xi32>
    %y = tensor.extract %ids[%j] : tensor<?xi32>
    %limit = arith.constant 1 : i32
    %first = arith.cmpi slt, %x, %limit : i32
    %second = arith.cmpi slt, %y, %limit : i32
    %both = arith.andi %first, %second : i1
    attn.yield %both : i1
  }"""


def program(mask, reads):
    tensor = f"tensor<?x?x?x{DEPTH}xbf16>"
    ids, captures = (", %ids: tensor<?xi32>", "captures(%ids : tensor<?xi32>)") if reads else ("", "")
    return (f"func.func @attend(%q: {tensor}, %k: {tensor}, %v: {tensor}{ids}) -> {tensor} {{\n"
            f"  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {captures} {mask}\n"
            f"    : ({tensor}, {tensor}, {tensor}) -> {tensor}\n  return %o : {tensor}\n}}\n")


class Runner:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)

    def run(self, mask, queries, keys, ids=None):
        """(mma, instructions) of the kernel of attention. The results agree with the reference."""
        file, array = self.folder / "program.mlir", self.folder / "ids.npy"
        file.write_text(program(mask, ids is not None))
        line = ["saccade-run", str(file), "--device=ptxsim", "--target=sm_80", "--check=full", "--explain",
                *[f"--arg=1x1x{n}x{DEPTH}:bf16:{i}" for i, n in enumerate([queries, keys, keys])]]
        if ids is not None:
            np.save(array, ids.astype(np.int32))
            line.append(f"--arg={array}")
        result = subprocess.run(line, capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        counts = re.search(r"kernel family sm_80, ran \d+ CTAs, (\d+) instructions of warps, (\d+) of them mma",
                           result.stdout)
        assert counts, result.stdout
        return int(counts[2]), int(counts[1])


def tiles(visible):
    """The number of tiles with a visible pair."""
    queries, keys = visible.shape
    padded = np.pad(visible, ((0, -queries % ROWS), (0, -keys % COLUMNS)))
    return int(padded.reshape(padded.shape[0] // ROWS, ROWS, -1, COLUMNS).any(axis=(1, 3)).sum())


def main():
    random = np.random.default_rng(5)
    length = 640
    ids = np.cumsum(random.random(length) < 1 / 64)
    same, causal = ids[:, None] == ids, np.tri(length, dtype=bool)
    position = np.arange(length)
    window = (position <= position[:, None]) & (position[:, None] - position <= 100)
    two = (position >= 480).astype(int) + (position >= 580)
    cases = {
        "causal": ("mask causal<top_left>", causal, None),
        "window": ("mask causal<top_left> mask window<100, *>", window, None),
        "documents": (DOCUMENTS, same, ids),
        "documents in reverse order": (DOCUMENTS, same, ids.max() - ids),
        "documents, causal": ("mask causal<top_left> " + DOCUMENTS, same & causal, ids),
        "ids below a number": (BELOW, (two[:, None] < 1) & (two < 1), two),
        "no visible pair": (BELOW, np.zeros((length, length), bool), two + 1),
    }
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(folder)
        for name, (mask, visible, numbers) in cases.items():
            products, _ = runner.run(mask, length, length, numbers)
            expected = tiles(visible)
            print(f"{name}: {products / PRODUCTS:g} tiles, {expected} have a visible pair", flush=True)
            assert products == expected * PRODUCTS, name

        # 39 keys in the last tile: it is not full, although the mask holds for all of its pairs.
        keys = 39 + 9 * COLUMNS
        plain = runner.run("", ROWS, keys)[1]
        full = runner.run(DOCUMENTS, ROWS, keys, np.ones(keys))[1]
        partial = runner.run(DOCUMENTS, ROWS, keys, np.where(np.arange(keys) % COLUMNS == 63, 0, 1))[1]
        print(f"instructions: {plain} without a mask, {full} with full tiles, {partial} with partial tiles")
        assert full < 1.3 * plain, "the mask is evaluated in full tiles"
        assert partial > 1.5 * plain, "the mask is not evaluated in partial tiles"


if __name__ == "__main__":
    sys.exit(main())
