#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --count 4
# RUN: %python %s --chunks --count 2
"""Paged caches on the simulated GPU: kernels compute the place of each row, or of each box of rows, from the page table.

Usage: paged.py [--count N] [--seed N] [--chunks]

Draws types, head sizes, layouts of the pages, page sizes, masks and lengths, and compares decode steps, prompts and ragged
chunks of prompts with the reference. Pages that no sequence needs and positions after the end of a sequence contain NaN, and
entries of pages after it are out of range. The same cache in other places must give the same bits. The simulator reports
accesses out of bounds. With --chunks, queries are chunks of prompts on sm_90a, whose warpgroups must compute them.
"""

import pathlib
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "Inputs"))
from program import normal, run, run_search

TARGETS = ("sm_80", "sm_90a", "sm_75")
MASKS = ("", " mask causal<bottom_right>", " mask causal<bottom_right> mask window<40, *>")
LAYOUTS = ("b,h,s,d", "b,s,h,d")


def program(dtype, heads, kv_heads, depth, value_depth, layout, mask, static_page, is_ragged=False):
    """Attention over two pools with one page table; `static_page` is the page size or None. Ragged queries have offsets."""
    page = str(static_page or "?")

    def tensor(size, is_pool):
        sizes = {"b": "?", "h": str(kv_heads), "s": page if is_pool else "?", "d": str(size)}
        return f"tensor<{'x'.join(sizes[dim] for dim in layout.split(','))}x{dtype}>"

    q, o = (f"tensor<?x{heads}x{size}x{dtype}>" if is_ragged else f"tensor<?x{heads}x?x{size}x{dtype}>"
            for size in (depth, value_depth))  # fmt: skip
    views = "".join(
        f"  %{name} = attn.paged %{name}p[{layout}], %table : {tensor(size, True)}, tensor<?x?xi32> -> {tensor(size, False)}\n"
        for name, size in (("k", depth), ("v", value_depth)))
    offsets = "cu_seqlens_q(%cu : tensor<?xi32>)" if is_ragged else ""
    return (f"func.func @decode(%q: {q}, %kp: {tensor(depth, True)}, %vp: {tensor(value_depth, True)}, "
            f"%table: tensor<?x?xi32>, %len: tensor<?xi32>{', %cu: tensor<?xi32>' * is_ragged}) -> {o} {{\n{views}"
            f"  %o = attn.attention %q[{'s,h,d' if is_ragged else 'b,h,s,d'}], %k[{layout}], %v[{layout}] {offsets}\n"
            f"    kv_len(%len : tensor<?xi32>){mask}\n"
            f"    : ({q}, {tensor(depth, False)}, {tensor(value_depth, False)}) -> {o}\n  return %o : {o}\n}}\n")


def in_pages(rng, array, table, page, pages, layout):
    """A pool with the positions of array [b, s, h, d]; the pages that the table does not name contain NaN."""
    batch, _, heads, depth = array.shape
    pool = np.full((pages, page, heads, depth), np.nan, np.float32)
    pool[table] = array.reshape(batch, -1, page, heads, depth)
    return pool if layout == "b,s,h,d" else pool.transpose(0, 2, 1, 3)


def page_table(rng, lengths, page, entries, pages):
    """Different pages for the positions of all sequences; the other entries are no pages."""
    table = rng.permutation(pages)[:len(lengths) * entries].reshape(len(lengths), entries).astype(np.int32)
    used = table.copy()
    for row, length in zip(used, lengths):
        row[-(-length // page):] = rng.choice([-9, 10**8])
    return table, used


def search(count, seed, are_chunks=False):
    for case in range(seed, seed + count):
        rng, target = np.random.default_rng(case), "sm_90a" if are_chunks else TARGETS[case % 3]
        dtype = str(rng.choice(["f16", "bf16"] if are_chunks else ["f16", "bf16", "f32"]))
        kv_heads, group, page = (int(rng.choice(values)) for values in ([1, 2], [1, 3, 4], [8, 16, 64] if are_chunks
                                                                        else [1, 2, 5, 16, 64]))  # fmt: skip
        depth, value_depth = (int(rng.choice([40, 64, 128, 256] if are_chunks else [33, 40, 64, 128])) for _ in range(2))
        layout, mask, is_ragged = str(rng.choice(LAYOUTS)), str(rng.choice(MASKS)), rng.random() < 0.4
        text = program(dtype, kv_heads * group, kv_heads, depth, value_depth, layout, mask, rng.choice([None, page]), is_ragged)
        batch, queries = int(rng.integers(1, 4)), int(rng.choice([17, 70, 140] if are_chunks else [1, 1, 3, 17, 70]))
        entries = -(-int(rng.integers(queries, 600)) // page)
        lengths = rng.integers(0, entries * page + 1, batch).astype(np.int32)
        if case % 2:
            lengths[-1] = entries * page  # the last entries of the table
        pages = batch * entries + 3
        q = normal(rng, batch, kv_heads * group, queries, depth)
        k, v = (normal(rng, batch, entries * page, kv_heads, size) for size in (depth, value_depth))
        for sequence, length in enumerate(lengths):
            k[sequence, length:] = v[sequence, length:] = np.nan  # not read
        others = []
        if is_ragged:
            counts = [queries, *rng.integers(0, queries + 1, batch - 1)]
            q = np.concatenate([q[i, :, :n].transpose(1, 0, 2) for i, n in enumerate(counts)])
            others = [np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)]
        outputs = []
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "paged.mlir"
            path.write_text(text)
            for is_checked in (True, False):
                table, used = page_table(rng, lengths, page, entries, pages)
                pools = [(in_pages(rng, x, table, page, pages, layout), dtype) for x in (k, v)]
                outputs.append(run(path, "decode", (q, dtype), *pools, used, lengths, *others, check=is_checked,
                                   options=["--device=ptxsim", f"--target={target}", "--explain"],
                                   expected="kernel family sm_90a, in pages, ran" if are_chunks else ""))  # fmt: skip
        assert (outputs[0] == outputs[1]).all(), f"case {case}: pages in other places give other bits"


if __name__ == "__main__":
    are_chunks = "--chunks" in sys.argv
    sys.argv = [argument for argument in sys.argv if argument != "--chunks"]
    run_search(lambda count, seed: search(count, seed, are_chunks))
