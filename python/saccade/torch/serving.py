"""Caches of keys and values for serving: functions that append to a cache in place and attend to it.

A call is one compiled program, which checks all lengths and pages, writes the new rows, and attends
(docs/guides/decoding.md). Under torch.compile and torch.export it is one operator, `saccade::attention_update`.
Programs do not depend on lengths.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch

from saccade import _operands, _parameters, scores
from saccade._cache_text import Append, Rotation, is_cached
from saccade._form import Form
from saccade.attention import attention
from saccade.merging import merge_state
from saccade.torch import cache_arguments as arguments
from saccade.torch import rotary, trees
from saccade.torch.cache_programs import call


def flash_attn_with_kvcache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    k: torch.Tensor | None = None,
    v: torch.Tensor | None = None,
    *,
    cache_seqlens: int | torch.Tensor | None = None,
    seqlens_new: torch.Tensor | None = None,
    cu_seqlens_q: torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    k_scale: float | torch.Tensor | None = None,
    v_scale: float | torch.Tensor | None = None,
    k_zero: float | torch.Tensor | None = None,
    v_zero: float | torch.Tensor | None = None,
    ring: int | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    rotary_on_read: bool = False,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int, int] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: None = None,
    cache_leftpad: None = None,
    num_splits: int = 0,
    tree: torch.Tensor | None = None,
    return_softmax_lse: bool = False,
    layout: str = "bshd",
    reproducible: str | None = None,
) -> Any:
    """Appends new keys and values to a cache in place, and attends to the cache, as FlashAttention's function of this
    name.

    Args:
        q: queries [batch, n, heads, head_dim] of float64, float32, float16 or bfloat16.
        k_cache: [batch, capacity, KV heads, head_dim], or with `page_table` the pool [pages, page size, KV heads,
            head_dim], of q's type, or quantized with scales. Any strides.
        v_cache: the same for values, whose head_dim may differ.
        k, v: the new rows [batch, n, KV heads, head_dim], of q's type. None attends to the cache as it is.
        cache_seqlens: the tokens of each sequence in the cache before the call: an int, or an int32 or int64 tensor
            [batch]. It is not updated. None is the whole cache, without k and v.
        seqlens_new: [batch], of the type of `cache_seqlens`: the new tokens of each sequence, at most n. Queries and
            rows from there on are padding: their output is 0. All n by default.
        cu_seqlens_q: the sequences are ragged: q, k and v [total, heads, head_dim] have the new tokens of one after
            another, those of sequence b from cu_seqlens_q[b] to cu_seqlens_q[b + 1], int32 or int64 [batch + 1]. A
            batch may mix prompts and single tokens. Without `seqlens_new`, `ring` and `tree`.
        cache_batch_idx: [batch], the row of the cache of each sequence, if it has rows for other sequences too.
        page_table: [batch, entries], int32 or int64: position i of sequence b is in page page_table[b, i // page size].
        block_table: FlashAttention 2's name of `page_table`.
        k_scale, v_scale: of caches of int8, float8_e4m3fn and float8_e5m2. New rows are quantized. Scales of each
            position and head, with the dimensions of the cache but the last one, are computed from the new
            rows, and updated in place; with a last dimension of n, those of n blocks of successive elements. A number,
            or scales of each head [KV heads], are used as they are. A cache of uint8 has head_dim / 2 bytes of a head:
            two codes of 4 bits each, the low bits first. An element is (code - 8) * scale; with zero points it is
            (code - zero) * scale.
        k_zero, v_zero: zero points of codes of 4 bits, of the kind and the shape of the scale, computed with it.
        ring: the cache is a ring, which keeps the first `ring` positions of a sequence (attention sinks) and the last
            of the others. It is never full. A query attends to the first `ring` positions and to the last
            capacity - ring up to its own. Several queries must be causal, and be in the call that appends their k and
            v. Without k and v, several queries attend to all that the ring holds, with `causal` false.
        rotary_cos, rotary_sin: [positions, pairs], the rotary positions by which q and k are rotated before they are
            used: pair n of a token with m tokens before it by the angle with cosine rotary_cos[m, n]. Tokens of a tree
            have before them the other tokens that they attend to. Without a mask by position (causal, window_size,
            tree) all queries have the position of the first one, as in FlashAttention. Without k and v, q are the last
            n tokens of the cache. Elements from 2 * pairs on are not rotated.
        rotary_interleaved: pairs are elements 2n and 2n + 1, else n and n + pairs.
        rotary_on_read: the cache has keys that are not rotated, and k is appended as it is. Keys are rotated when they
            are read, by their positions in the cache. The tables have all of its positions.
        softmax_scale: the factor of q k^T; 1/sqrt(head_dim) by default.
        causal: the last new query attends to all tokens, each one before to one token less.
        window_size: (left, right), the tokens before and after its own that a query attends to; -1 is open. With
            several queries `causal` must be true. Without `ring`.
        softcap: a score s becomes softcap * tanh(s / softcap), as in Gemma 2; 0 for scores as they are.
        alibi_slopes, cache_leftpad: of FlashAttention; only None is supported.
        num_splits: of FlashAttention; it has no effect.
        tree: the n new tokens are a tree of drafts. Every one attends to the tokens before them, and boolean [n, n] or
            [batch, n, n] says whether token i attends to token j of the new ones; or int32 or int64 [n] or [batch, n]
            are the parents, tokens before, or -1: a token attends to itself and its ancestors. `causal` applies in
            addition. Without k and v they are the last n tokens in the cache.
        return_softmax_lse: also returns the log-sum-exp of the scores, [batch, heads, n], or [heads, total] of ragged
            sequences, float32 (float64 for float64).
        layout: "bshd", or "bhsd" for tensors [batch, heads, n, head_dim].
        reproducible: "stream" gives a token equal bits however the text is cut into calls: as a prompt, in chunks, with
            drafts, or alone; in any batch, in contiguous caches and pages. Prompts take longer. On CPUs, without
            `cu_seqlens_q`, and without `ring` for several queries. None gives a token in a call of more than 8 others
            bits than in one of fewer.

    Returns:
        The output [batch, n, heads, head_dim of v], or (output, log-sum-exp).

    Raises:
        TypeError: an argument of another kind or element type.
        ValueError: other extents; a full cache or page table; a page that is not in the pool, or that two sequences
            write; new rows to quantize that are not finite; a number or scale of a head that is not positive and
            finite; a parent that is not before its token. The message names sequence and page. The cache does not
            change. On a GPU lengths and pages are clamped instead. In functions that torch.compile compiles it is a
            RuntimeError.

    There are no gradients.

    Example:
        >>> lengths = torch.tensor([100, 7], dtype=torch.int32)
        >>> out = saccade.torch.flash_attn_with_kvcache(q, k_cache, v_cache, k, v, cache_seqlens=lengths, causal=True)
        >>> lengths += 1
    """
    name = "flash_attn_with_kvcache"
    if (k is None) != (v is None):
        raise TypeError(f"{name}: one of k and v is None, expected both or neither")
    _check_flags(name, {"alibi_slopes": alibi_slopes, "cache_leftpad": cache_leftpad},
                 {"causal": causal, "return_softmax_lse": return_softmax_lse, "rotary_interleaved": rotary_interleaved,
                  "rotary_on_read": rotary_on_read})  # fmt: skip
    softcap = _parameters.soft_cap(f"{name}: softcap", softcap)
    if softmax_scale is not None:
        softmax_scale = _operands.check_finite_scale(softmax_scale, f"{name}: softmax_scale")
    rows_layout = layout if cu_seqlens_q is None else "shd"
    arguments.check(name, layout, {"q": q, "k": k, "v": v}, [k_cache, v_cache], ring, rows_layout)
    _check_reproducible(name, reproducible, q, cu_seqlens_q is not None, ring is not None)
    batch = q.shape[0]
    if cu_seqlens_q is not None:
        batch, rows = arguments.ragged_of(name, cu_seqlens_q, seqlens_new=seqlens_new, ring=ring, tree=tree)
    axis, n = layout.index("s"), q.shape[rows_layout.index("s")]
    table, page_table = arguments.pages_of(name, page_table, block_table, cache_batch_idx, batch, ring)
    if cu_seqlens_q is not None and page_table is None:
        table, page_table = "cu_seqlens_q", rows
    at = arguments.lengths_of(name, cache_seqlens, batch, q, k is not None or cu_seqlens_q is not None)
    window = arguments.window_of(name, window_size, causal, n)
    if tree is not None and (ring is not None or window is not None):
        raise ValueError(f"{name}: tree is given with {'ring' if ring is not None else 'window_size'}, expected one of "
                         "them")  # fmt: skip
    if tree is not None:
        tree = trees.visible_of(name, tree, q.shape[0], n, seqlens_new)
    if rotary_cos is not None or rotary_sin is not None:
        capacity = k_cache.shape[axis] * (page_table.shape[1] if page_table is not None else 1)
        rotary.check_tables(name, rotary_cos, rotary_sin, q.shape[-1], capacity if rotary_on_read else 0)
        first = torch.full((batch,), capacity, device=q.device) if at is None else at
        of_queries, of_keys = _positions(first, n, k is not None, causal or window is not None, seqlens_new, tree,
                                         cu_seqlens_q)  # fmt: skip
        turn = functools.partial(rotary.rotate, name, cos=rotary_cos, sin=rotary_sin, layout=rows_layout,
                                 interleaved=rotary_interleaved)  # fmt: skip
        if k is not None and not rotary_on_read:
            k = turn(k, positions=of_keys)
        q = turn(q, positions=of_queries)
    if rotary_on_read and (rotary_cos is None or ring is not None):
        raise ValueError(f"{name}: rotary_on_read is True, expected rotary_cos and no ring")
    _check_ring(name, ring, n, k is not None, causal, window is not None)
    given = arguments.Scales(k_scale, v_scale, k_zero, v_zero)
    if ring is not None and k is not None and n > 1:
        return _attend_to_ring(name, q, k_cache, v_cache, k, v, at, seqlens_new, given, ring, softmax_scale, softcap,
                               return_softmax_lse, layout)  # fmt: skip
    caches = [k_cache, v_cache]
    depth_v = None if v is None else v.shape[-1]
    kinds, stored, scales = arguments.scales_of(name, given, caches, layout, (q.shape[-1], depth_v))
    end, append = at, None
    new: list[Any] = []
    if k is not None:
        end, new, append = _new_rows(name, k, v, at, seqlens_new, cu_seqlens_q, ring, given, caches, rows_layout)
    elif seqlens_new is not None:
        raise TypeError(f"{name}: seqlens_new is given, expected None without k and v")
    if ring is not None and end is not None:
        end = end.clamp(max=k_cache.shape[axis])
    if ring is not None:
        causal = False  # the order of rows is not that of positions
    rotation = None
    if rotary_on_read:
        assert rotary_cos is not None
        rotation = Rotation(operator.index(rotary_cos.shape[1]), rotary_interleaved,
                            arguments.element_of(name, rotary_cos))
    sides, bounds = window or ("", (None,))
    form = Form(
        arguments.element_of(name, q), operator.index(q.shape[-1]), arguments.depth_of(v_cache), rows_layout,
        "bottom_right" if (causal and (n != 1 or cu_seqlens_q is not None)) or window else None, sides,
        softmax_scale is not None, arguments.index_of(name, end),
        None if cu_seqlens_q is None else (arguments.index_of(name, cu_seqlens_q, "cu_seqlens_q"), None),
        arguments.index_of(name, page_table, table), kinds, lse=return_softmax_lse,
        score="soft_cap" if softcap else None, rotation=rotation, append=append, tree=tree is not None,
        is_stream=reproducible is not None)  # fmt: skip
    operands = {"tree": tree, "scale": softmax_scale, "left": bounds[0], "kv_len": end, "cu_seqlens_q": cu_seqlens_q,
                "page_table": page_table, "rotary_cos": rotary_cos, "rotary_sin": rotary_sin, **scales}
    new += [softcap] if softcap else []
    return call(name, form, [q], stored, new, operands, k is not None, table)


def _check_flags(name: str, unsupported: dict[str, Any], flags: dict[str, Any]) -> None:
    """Refuses arguments of FlashAttention that are not supported, and flags that are no bools."""
    for what, x in unsupported.items():
        if x is not None:
            raise NotImplementedError(f"{name}: {what} is given, expected None: it is not supported")
    for what, given in flags.items():
        if type(given) is not bool:
            _parameters.flag(f"{name}: {what}", given)


def _new_rows(name: str, k: torch.Tensor, v: Any, at: Any, seqlens_new: torch.Tensor | None,
              cu_seqlens_q: torch.Tensor | None, ring: int | None, scales: arguments.Scales,
              caches: list[torch.Tensor], rows_layout: str) -> tuple[Any, list[Any], Append]:
    """The number of tokens after new rows are appended, the inputs of the program for them, and how it appends."""
    count = arguments.count_of(name, seqlens_new, at)
    first_rows = []
    if cu_seqlens_q is not None:
        first_rows, count = [cu_seqlens_q[:-1].to(at.dtype)], cu_seqlens_q.diff().to(at.dtype)
    end = at + (k.shape[rows_layout.index("s")] if count is None else count)
    new = arguments.new_rows(name, k, v, count, scales, caches, rows_layout)
    append = Append(arguments.index_of(name, at), count is not None, ring, cu_seqlens_q is not None)
    return end, [*new, *([at] if count is None else [at, count]), *first_rows], append


def _positions(first: torch.Tensor, n: int, has_new: bool, is_placed: bool, seqlens_new: torch.Tensor | None,
               tree: torch.Tensor | None, cu_seqlens_q: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """The positions of n queries and of n new keys of each sequence, whose first one is at `first`; without new keys
    `first` is the end. Unless queries are placed, by a mask or a tree, all have the position of the first one."""
    is_placed = is_placed or tree is not None
    if cu_seqlens_q is None:
        of_keys = rotary.positions_of(first if has_new else first - n, n, seqlens_new, tree)
        return of_keys if is_placed else of_keys[:, :1].expand_as(of_keys), of_keys
    first = first if has_new else first - cu_seqlens_q.diff()
    of_keys = rotary.ragged_positions_of(first, cu_seqlens_q, n)
    return (of_keys if is_placed else rotary.ragged_positions_of(first, cu_seqlens_q, n, is_first=True)), of_keys


def _check_ring(name: str, ring: int | None, n: int, has_new: bool, causal: bool, has_window: bool) -> None:
    """Refuses masks of n queries that a ring cannot have."""
    if ring is None:
        return
    if has_new and n > 1 and (has_window or not causal):
        raise ValueError(f"{name}: with a ring and {n} queries, expected causal=True without window_size")
    if has_window:
        raise ValueError(f"{name}: ring and window_size are given, expected one of them")
    if not has_new and causal and n > 1:
        raise ValueError(f"{name}: causal is True with a ring and {n} queries without k and v, expected k and v in the "
                         "call: a ring does not keep all tokens that the first queries attend to")  # fmt: skip


def append_kvcache(
    k: torch.Tensor,
    v: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    cache_seqlens: int | torch.Tensor,
    *,
    seqlens_new: torch.Tensor | None = None,
    cu_seqlens: torch.Tensor | None = None,
    cache_batch_idx: torch.Tensor | None = None,
    page_table: torch.Tensor | None = None,
    block_table: torch.Tensor | None = None,
    k_scale: float | torch.Tensor | None = None,
    v_scale: float | torch.Tensor | None = None,
    k_zero: float | torch.Tensor | None = None,
    v_zero: float | torch.Tensor | None = None,
    ring: int | None = None,
    rotary_cos: torch.Tensor | None = None,
    rotary_sin: torch.Tensor | None = None,
    rotary_interleaved: bool = True,
    layout: str = "bshd",
) -> None:
    """Appends new keys and values to a cache in place. The arguments are those of `flash_attn_with_kvcache`, of
    which `cu_seqlens` is called cu_seqlens_q, and so are the exceptions."""
    name = "append_kvcache"
    rows_layout, first_rows = layout if cu_seqlens is None else "shd", []
    if v is None:
        raise TypeError(f"{name}: v is None, expected a torch.Tensor")
    _parameters.flag(f"{name}: rotary_interleaved", rotary_interleaved)
    arguments.check(name, layout, {"k": k, "v": v}, [k_cache, v_cache], ring, rows_layout)
    batch = k.shape[0]
    if cu_seqlens is not None:
        batch, rows = arguments.ragged_of(name, cu_seqlens, seqlens_new=seqlens_new)
    table, page_table = arguments.pages_of(name, page_table, block_table, cache_batch_idx, batch, ring)
    if cu_seqlens is not None and page_table is None and ring is None:
        table, page_table = "cu_seqlens", rows
    at = arguments.lengths_of(name, cache_seqlens, batch, k, True)
    count = arguments.count_of(name, seqlens_new, at)
    if cu_seqlens is not None:
        first_rows, count = [cu_seqlens[:-1].to(at.dtype)], cu_seqlens.diff().to(at.dtype)
    if rotary_cos is not None or rotary_sin is not None:
        rotary.check_tables(name, rotary_cos, rotary_sin, k.shape[-1])
        n = k.shape[rows_layout.index("s")]
        positions = (rotary.positions_of(at, n, count, None) if cu_seqlens is None
                     else rotary.ragged_positions_of(at, cu_seqlens, n))  # fmt: skip
        k = rotary.rotate(name, k, rotary_cos, rotary_sin, positions, rows_layout, rotary_interleaved)
    given, caches = arguments.Scales(k_scale, v_scale, k_zero, v_zero), [k_cache, v_cache]
    kinds, stored, scales = arguments.scales_of(name, given, caches, layout, (k.shape[-1], v.shape[-1]))
    new = arguments.new_rows(name, k, v, count, given, caches, rows_layout)
    updated = [scales[f"{cache}_{what}"] for what in ("scale", "zero") for cache, (_, kind) in zip("kv", kinds or ())
               if is_cached(kind) and f"{cache}_{what}" in scales]  # fmt: skip
    form = Form(arguments.element_of(name, k), operator.index(k.shape[-1]), operator.index(v.shape[-1]), layout,
                pages=arguments.index_of(name, page_table, table), scales=kinds,
                append=Append(arguments.index_of(name, at), count is not None, ring, cu_seqlens is not None))
    new += [at, *([] if count is None else [count]), *first_rows]
    call(name, form, [], [*stored, *updated], new, {"page_table": page_table}, True, table)


def _check_reproducible(name: str, value: Any, q: torch.Tensor, is_ragged: bool, has_ring: bool) -> None:
    if value is None:
        return
    _operands.check_stream(value, f"{name}: ")
    if is_ragged or (has_ring and q.shape[1] != 1):
        raise ValueError(f'{name}: reproducible="stream" is given with '
                         f'{"cu_seqlens_q" if is_ragged else "a ring and several queries"}, expected one of them'
                         + " (seqlens_new has sequences of different lengths in a padded batch)" * is_ragged)
    if not q.is_cpu:
        raise ValueError(f'{name}: reproducible="stream" is given with tensors on {q.device}, expected the CPU')


# --- rings ------------------------------------------------------------------------------------------------------------


def _attend_to_ring(name: str, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: torch.Tensor,
                    v: torch.Tensor, at: torch.Tensor, seqlens_new: torch.Tensor | None, given: arguments.Scales,
                    ring: int, scale: float | None, softcap: float, return_lse: bool, layout: str) -> Any:
    """Several queries of each sequence: new rows overwrite rows of a ring that the first of the queries attend to. So
    these attend to the ring and to the new rows apart, and the results are merged before the rows are written."""
    rows, n = k_cache.shape[layout.index("s")], q.shape[layout.index("s")]
    span = rows - ring
    start = at.long()
    count = torch.full_like(start, n) if seqlens_new is None else arguments.count_of(name, seqlens_new, at).long()

    def in_ring(b: Any, h: Any, i: Any, j: Any) -> Any:
        last = start[b] - 1
        position = last - (last - j) % span  # of row j, unless it is one of the first
        is_first = (j < ring) & (j <= last)
        return (i < count[b]) & (is_first | ((j >= ring) & (position >= ring) & (position > last + 1 + i - span)))

    def among_new(b: Any, h: Any, i: Any, j: Any) -> Any:
        is_first = start[b] + j < ring
        return (i < count[b]) & (j <= i) & (is_first | (j > i - span))

    options: dict[str, Any] = {"scale": scale, "return_lse": True, "layout": layout}
    if softcap:
        options["score"] = scores.soft_cap(softcap)
    scales = given.given()
    arguments.scales_of(name, given, [k_cache, v_cache], layout, (q.shape[-1], v.shape[-1]))
    old = attention(q, k_cache, v_cache, mask=in_ring, kv_len=start.clamp(max=rows), **scales, **options)
    new = attention(q, k, v, mask=among_new, kv_len=count, **options)
    append_kvcache(k, v, k_cache, v_cache, at, seqlens_new=seqlens_new, ring=ring, layout=layout, **scales)
    merged = merge_state(*old, *new, layout=layout)
    return merged if return_lse else merged[0]


__all__ = ["append_kvcache", "flash_attn_with_kvcache"]
