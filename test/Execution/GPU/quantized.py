#!/usr/bin/env python3
# REQUIRES: torch
# RUN: %python %s --count 8
"""Quantized and rotated caches on the simulated GPU: kernels compute keys and values when they load them.

Usage: quantized.py [--count N] [--seed N]

Draws element types, kinds of scales, head sizes, pages, rotary positions and lengths for the programs of
`saccade.attention`, and compares decode steps and prompts with the reference. Pages that no sequence needs and positions
after the end of a sequence have the largest stored values and scales of NaN. No kernel may make a copy of a cache. The
simulator reports accesses out of bounds.
"""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "Inputs"))
from program import normal, run, run_search

from saccade import _program
from saccade._cache_text import STORED, Rotation, is_packed
from saccade._form import Form

TARGETS = ("sm_80", "sm_75")


def draw_form(rng):
    depth, value_depth = (int(rng.choice([32, 40, 64, 128])) for _ in range(2))
    stored = str(rng.choice(list(STORED)))
    kinds = ["number", "head", 1] + [2, 4] * (depth != 40 and value_depth != 40)
    kind = kinds[rng.integers(len(kinds))]
    pages = "i32" if rng.integers(2) else None
    rotation = Rotation(depth // 4, bool(rng.integers(2)), "f32") if rng.integers(3) == 0 else None
    scales = None if rotation and rng.integers(2) else ((stored, kind),) * 2
    return Form(
        element=str(rng.choice(["f16", "bf16", "f32"])), head_dim=depth, head_dim_v=value_depth,
        layout=str(rng.choice(["bshd", "bhsd"])), causal="bottom_right" if rng.integers(2) else None, kv_len="i32", pages=pages,
        scales=scales, rotation=rotation)


def arranged(x, layout):
    """x [b, s, h, d] with the dimensions of `layout`."""
    return x if layout == "bshd" else x.transpose(0, 2, 1, 3)


LARGEST = {"int8": 127, "float8_e4m3fn": 448, "float8_e5m2": 1024, "int4": 15, "uint4": 15}


def draw_cache(rng, form, kind, batch, positions, heads, depth, lengths):
    """Stored elements [b, s, h, d] in f32, or words of eight codes, and scales [b, s, h, blocks]."""
    limit = LARGEST[form.scales[0][0]] if form.scales else 1
    is_codes = form.scales is not None and is_packed(form.scales[0][0])
    x = normal(rng, batch, positions, heads, depth)
    x = np.rint(np.clip(x / 3, -1, 1) * limit) if form.scales and form.scales[0][0] == "int8" else x / 3 * limit
    scale = rng.uniform(0.5, 2, (batch, positions, heads, kind if isinstance(kind, int) else 1)) * 3 / limit
    if is_codes:
        codes = rng.integers(0, 16, (batch, positions, heads, depth // 8, 8)).astype(np.uint32)
        x = np.bitwise_or.reduce(codes << np.arange(0, 32, 4, dtype=np.uint32), -1).view(np.int32)
    for sequence, length in enumerate(lengths):
        x[sequence, length:] = -1 if is_codes else limit if form.scales else np.nan
        scale[sequence, length:] = np.nan
    return x, scale.astype(np.float32)


def in_pages(rng, x, table, page, pages, fill):
    pool = np.full((pages, page, *x.shape[2:]), fill, x.dtype)
    pool[table] = x.reshape(len(x), -1, page, *x.shape[2:])
    return pool


def unaligned(text, form):
    """The program with keys that begin at the second element of a row of the argument."""
    dims, shape = form.key_layout, "x".join(str(form.head_dim) if dim == "d" else "?" for dim in form.key_layout)
    element = STORED[form.scales[0][0]][0]
    whole = f"tensor<{shape.replace(str(form.head_dim), str(form.head_dim + 8))}x{element}>"
    sizes = [str(form.head_dim) if dim == "d" else f"%size{i}" for i, dim in enumerate(dims)]
    lines = [f"  %at{i} = arith.constant {i} : index\n  %size{i} = tensor.dim %whole, %at{i} : {whole}\n"
             for i, dim in enumerate(dims) if dim != "d"]
    offsets = ", ".join("1" if dim == "d" else "0" for dim in dims)
    lines.append(f"  %k = tensor.extract_slice %whole[{offsets}] [{', '.join(sizes)}] [1, 1, 1, 1] : {whole} to "
                 f"tensor<{shape}x{element}>\n")
    signature, brace, body = text.replace(f"%k: tensor<{shape}x{element}>", f"%whole: {whole}", 1).partition("{\n")
    assert "%whole" in signature, signature
    return signature + brace + "".join(lines) + body


def search(count, seed):
    for case in range(seed, seed + count):
        rng, target = np.random.default_rng(case), TARGETS[case % 3 == 2]
        form = draw_form(rng)
        kind = form.scales[0][1] if form.scales else None
        kv_heads, group, page = (int(rng.choice(values)) for values in ([1, 2], [1, 3, 4], [1, 5, 16]))
        batch, queries = int(rng.integers(1, 3)), int(rng.choice([1, 1, 3, 17, 70]))
        entries = -(-int(rng.integers(queries, 400)) // page)
        lengths = rng.integers(1, entries * page + 1, batch).astype(np.int32)
        table = rng.permutation(batch * entries + 3)[: batch * entries].reshape(batch, entries).astype(np.int32)
        q = arranged(normal(rng, batch, queries, kv_heads * group, form.head_dim), form.layout)
        caches, scales = [], []
        for depth in (form.head_dim, form.head_dim_v):
            cache, scale = draw_cache(rng, form, kind, batch, entries * page, kv_heads, depth, lengths)
            if form.pages:
                cache = in_pages(rng, cache, table, page, len(table.flat) + 3, np.nan if not form.scales else cache.max())
                scale = in_pages(rng, scale, table, page, len(table.flat) + 3, np.nan)
            element = STORED[form.scales[0][0]][0] if form.scales else form.element
            cache = arranged(cache, form.key_layout)
            caches.append(cache if form.scales and is_packed(form.scales[0][0]) else (cache, element))
            if kind == "number":
                scales.append(3 / LARGEST[form.scales[0][0]])
            elif kind == "head":
                scales.append((rng.uniform(1, 4, kv_heads) / LARGEST[form.scales[0][0]]).astype(np.float32))
            elif kind:
                scales.append(arranged(scale, form.key_layout))
        if form.scales and form.scales[0][0] == "uint4":
            scales += [scale * 4 if kind == "number" else np.abs(scale) * np.float32(3) for scale in scales[:2]]
        if form.rotation:
            angles = np.arange(entries * page)[:, None] * 10.0 ** -np.arange(form.rotation.pairs)
            scales += [f(angles).astype(np.float32) for f in (np.cos, np.sin)]
        arguments = [(q, form.element), *caches, lengths, *[table] * bool(form.pages), *scales]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / f"quantized{case}.mlir"
            text = _program.program(form)
            if form.scales and not form.pages and case % 2 == 0 and not is_packed(form.scales[0][0]):
                text = unaligned(text, form)
                cache, element = arguments[1]
                arguments[1] = np.concatenate([cache[..., :1], cache, cache[..., :7]], -1), element
            path.write_text(text)
            explained = subprocess.run(["saccade-compile", path, f"--target={target}", "--explain"],
                                       capture_output=True, text=True, check=True)
            assert "computed on load" in explained.stdout + explained.stderr, f"case {case}: {form}"
            try:
                run(path, "attention", *arguments, options=["--device=ptxsim", f"--target={target}"])
            except AssertionError as error:
                raise AssertionError(f"case {case}: {form}") from error


if __name__ == "__main__":
    run_search(search)
