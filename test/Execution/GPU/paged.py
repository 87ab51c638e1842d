#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --count 8
"""Paged caches on the simulated GPU: kernels compute the address of each row from the page table.

Usage: paged.py [--count N] [--seed N]

Draws types, head sizes, layouts of the pages, page sizes, masks and lengths, and compares decode steps and prompts with
the reference. Pages that no sequence needs and positions after the end of a sequence contain NaN. The same cache in
other places must give the same bits. The simulator reports accesses out of bounds.
"""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "Inputs"))
from program import normal, run, run_search

TARGETS = ("sm_80", "sm_75")
MASKS = ("", " mask causal<bottom_right>", " mask causal<bottom_right> mask window<40, *>")
LAYOUTS = ("b,h,s,d", "b,s,h,d")


def program(dtype, heads, kv_heads, depth, value_depth, layout, mask, static_page):
    """Attention over two pools with one page table; `static_page` is the page size or None."""
    page = str(static_page or "?")

    def tensor(size, is_pool):
        sizes = {"b": "?", "h": str(kv_heads), "s": page if is_pool else "?", "d": str(size)}
        return f"tensor<{'x'.join(sizes[dim] for dim in layout.split(','))}x{dtype}>"

    q, o = (f"tensor<?x{heads}x?x{size}x{dtype}>" for size in (depth, value_depth))
    views = "".join(
        f"  %{name} = attn.paged %{name}p[{layout}], %table : {tensor(size, True)}, tensor<?x?xi32> -> {tensor(size, False)}\n"
        for name, size in (("k", depth), ("v", value_depth)))
    return (f"func.func @decode(%q: {q}, %kp: {tensor(depth, True)}, %vp: {tensor(value_depth, True)}, "
            f"%table: tensor<?x?xi32>, %len: tensor<?xi32>) -> {o} {{\n{views}"
            f"  %o = attn.attention %q[b,h,s,d], %k[{layout}], %v[{layout}] kv_len(%len : tensor<?xi32>){mask}\n"
            f"    : ({q}, {tensor(depth, False)}, {tensor(value_depth, False)}) -> {o}\n  return %o : {o}\n}}\n")


def in_pages(rng, array, table, page, pages, layout):
    """A pool with the positions of array [b, s, h, d]; the pages that the table does not name contain NaN."""
    batch, _, heads, depth = array.shape
    pool = np.full((pages, page, heads, depth), np.nan, np.float32)
    pool[table] = array.reshape(batch, -1, page, heads, depth)
    return pool if layout == "b,s,h,d" else pool.transpose(0, 2, 1, 3)


def search(count, seed):
    for case in range(seed, seed + count):
        rng, target = np.random.default_rng(case), TARGETS[case % 3 == 2]
        dtype = str(rng.choice(["f16", "bf16", "f32"]))
        kv_heads, group, page = (int(rng.choice(values)) for values in ([1, 2], [1, 3, 4], [1, 2, 5, 16, 64]))
        depth, value_depth = (int(rng.choice([33, 40, 64, 128])) for _ in range(2))
        layout, mask = str(rng.choice(LAYOUTS)), str(rng.choice(MASKS))
        text = program(dtype, kv_heads * group, kv_heads, depth, value_depth, layout, mask, rng.choice([None, page]))
        batch, queries = int(rng.integers(1, 4)), int(rng.choice([1, 1, 3, 17, 70]))
        entries = -(-int(rng.integers(queries, 600)) // page)
        lengths = rng.integers(0, entries * page + 1, batch).astype(np.int32)
        pages = batch * entries + 3
        q = normal(rng, batch, kv_heads * group, queries, depth)
        k, v = (normal(rng, batch, entries * page, kv_heads, size) for size in (depth, value_depth))
        for sequence, length in enumerate(lengths):
            k[sequence, length:] = v[sequence, length:] = np.nan  # not read
        outputs = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "paged.mlir"
            path.write_text(text)
            for is_checked in (True, False):
                table = rng.permutation(pages)[:batch * entries].reshape(batch, entries).astype(np.int32)
                pools = [(in_pages(rng, x, table, page, pages, layout), dtype) for x in (k, v)]
                outputs.append(run(path, "decode", (q, dtype), *pools, table, lengths, check=is_checked,
                                   options=["--device=ptxsim", f"--target={target}"]))
        assert (outputs[0] == outputs[1]).all(), f"case {case}: pages in other places give other bits"


if __name__ == "__main__":
    run_search(search)
