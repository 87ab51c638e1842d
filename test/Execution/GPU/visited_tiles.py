#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Kernels compute no block of pairs that the mask leaves empty, and do not evaluate the mask in full tiles.

The simulator counts the matrix products (mma) that the warps execute. A block has 16 queries and 16 keys; an mma takes
16 × 8 × 16, so the count gives the blocks that a kernel computes. numpy counts the blocks in which the mask holds for some
pair. A tile has 128 queries and 64 keys. Evaluations of the mask are seen in the number of instructions.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

DEPTH, ROWS, COLUMNS, BLOCK = 64, 128, 64, 16
PRODUCTS = 2 * BLOCK * BLOCK * DEPTH // (16 * 8 * 16)  # of a block: Q·Kᵀ and P·V
# The most pairs that are multiplied for one that the mask keeps, with 64 documents in 4,096 tokens.
MAX_RATIO = {"documents": 1.30, "documents, causal": 1.43}
# The same for masks of bounds, as on a CPU (test/Benchmarks/visited.py).
MAX_BOUNDS_RATIO = {"causal": 1.15, "window": 1.2}

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

    def command(self, mask, queries, keys, ids=None, check="--check=full"):
        """Runs the kernel of attention; agrees with the reference if the exit code is 0."""
        file, array = self.folder / "program.mlir", self.folder / "ids.npy"
        file.write_text(program(mask, ids is not None))
        line = ["saccade-run", str(file), "--device=ptxsim", "--target=sm_80", check, "--explain",
                *[f"--arg=1x1x{n}x{DEPTH}:bf16:{i}" for i, n in enumerate([queries, keys, keys])]]
        if ids is not None:
            np.save(array, ids.astype(np.int32))
            line.append(f"--arg={array}")
        return line

    def run(self, *args, **options):
        """(mma, instructions) of the kernel of attention. The results agree with the reference."""
        result = subprocess.run(self.command(*args, **options), capture_output=True, text=True, timeout=300)
        assert result.returncode == 0, result.stdout + result.stderr
        return counts(result.stdout)


def counts(output):
    """(mma, instructions) of the kernel of attention."""
    found = re.search(r"kernel family sm_80, ran \d+ CTAs?, (\d+) instructions of warps, (\d+) of them mma", output)
    assert found, output
    return int(found[2]), int(found[1])


def blocks(visible, rows=BLOCK, columns=BLOCK):
    """The number of blocks with a visible pair."""
    queries, keys = visible.shape
    padded = np.pad(visible, ((0, -queries % rows), (0, -keys % columns)))
    return int(padded.reshape(padded.shape[0] // rows, rows, -1, columns).any(axis=(1, 3)).sum())


def document_ids(length, count):
    """The document of each token: `count` documents of random lengths, concatenated."""
    cuts = np.sort(np.random.default_rng(5).choice(np.arange(1, length), count - 1, replace=False))
    return np.repeat(np.arange(count), np.diff([0, *cuts, length]))


def check_ratios(runner):
    """Few pairs are multiplied for each that the mask keeps."""
    length = 4096
    ids = document_ids(length, 64)
    same = ids[:, None] == ids
    for name, limit in MAX_RATIO.items():
        is_causal = "causal" in name
        visible = same & np.tri(length, dtype=bool) if is_causal else same
        mask = ("mask causal<top_left> " if is_causal else "") + DOCUMENTS
        products, _ = runner.run(mask, length, length, ids, check="--check")
        needed, pairs = int(visible.sum()), products // PRODUCTS * BLOCK**2
        narrow, whole = blocks(visible, 16, 8) * 16 * 8, blocks(visible, ROWS, COLUMNS) * ROWS * COLUMNS
        print(f"64 {name}: {needed} pairs, {pairs / needed:.3f} multiplied for each; {narrow / needed:.3f} "
              f"are in blocks of 16 × 8, {whole / needed:.3f} in tiles", flush=True)
        assert 1 <= pairs / needed <= limit, name
    length = 1024
    distance = np.arange(length)[:, None] - np.arange(length)
    causal, window = distance >= 0, (distance >= 0) & (distance <= 127)
    for name, visible, mask in [("causal", causal, "mask causal<top_left>"),
                                ("window", window, "mask causal<top_left> mask window<127, *>")]:
        products, _ = runner.run(mask, length, length, check="--check")
        ratio = products // PRODUCTS * BLOCK**2 / visible.sum()
        print(f"{name} of {length}: {ratio:.3f} multiplied for each pair", flush=True)
        assert 1 <= ratio <= MAX_BOUNDS_RATIO[name], name


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
            expected = blocks(visible)
            print(f"{name}: {products / PRODUCTS:g} blocks, {expected} have a visible pair", flush=True)
            assert products == expected * PRODUCTS, name
        # 35 queries are in three groups of 16 rows; the rows after them have no blocks.
        numbers = np.arange(2 * COLUMNS) // 30
        products, _ = runner.run(DOCUMENTS, 35, 2 * COLUMNS, numbers)
        expected = blocks(numbers[:35, None] == numbers)
        print(f"35 queries: {products / PRODUCTS:g} blocks, {expected} have a visible pair")
        assert products == expected * PRODUCTS
        check_ratios(runner)

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
