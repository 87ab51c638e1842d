"""Arguments of the functions for caches (serving.py): their kinds, and the tensors and numbers that programs take.
`name` is that of the function, for messages."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any

import torch

from saccade import _operands
from saccade._opaque import is_compiling
from saccade.torch import quantizing

_LAYOUTS = ("bshd", "bhsd")
_INTEGERS = {torch.int32: "i32", torch.int64: "i64"}
_DIMENSIONS = {"b": "batch", "s": "rows", "h": "heads", "d": "head_dim"}


def element_of(name: str, q: torch.Tensor) -> str:
    return _operands.element_of(q.dtype, f"{name}: q or k")


def index_of(name: str, x: torch.Tensor | None, what: str = "cache_seqlens") -> Any:
    return None if x is None else _INTEGERS.get(x.dtype) or _operands.integer_type(f"{name}: {what}", x)


def rows_of(name: str, rows: torch.Tensor, batch: int) -> torch.Tensor:
    """A page table for the rows of a cache that sequences have: each row is one page."""
    _check_rank(name, "cache_batch_idx", rows, 1)
    if rows.shape[0] != batch:
        raise ValueError(f"{name}: cache_batch_idx has {rows.shape[0]} elements, expected {batch}, one for each "
                         "sequence")  # fmt: skip
    return rows.unsqueeze(1)


def lengths_of(name: str, lengths: Any, batch: Any, like: torch.Tensor, is_needed: bool) -> Any:
    """The lengths as a tensor [batch]."""
    if isinstance(lengths, torch.Tensor):
        if lengths.dim() > 1:
            raise ValueError(f"{name}: cache_seqlens has shape {list(lengths.shape)}, expected [{batch}]")
        return lengths.expand(batch) if lengths.dim() == 0 else lengths
    if lengths is None:
        if is_needed:
            raise TypeError(f"{name}: cache_seqlens is None, expected the tokens of each sequence in the cache")
        return None
    if isinstance(lengths, bool) or not isinstance(lengths, (numbers.Integral, torch.SymInt)):
        raise TypeError(f"{name}: cache_seqlens is {lengths!r:.80}, expected an int or a tensor")
    if not isinstance(lengths, torch.SymInt) and not -(2**63) <= int(lengths) < 2**63:
        raise ValueError(f"{name}: cache_seqlens is {lengths}, expected an integer of 64 bits")
    return torch.full((batch,), lengths, dtype=torch.int64, device=like.device)


def count_of(name: str, count: torch.Tensor | None, at: torch.Tensor) -> Any:
    if count is None:
        return None
    _check_rank(name, "seqlens_new", count, 1)
    if count.shape[0] != at.shape[0]:
        raise ValueError(f"{name}: seqlens_new has {count.shape[0]} elements, expected {at.shape[0]}, one for each "
                         "sequence")  # fmt: skip
    index_of(name, count, "seqlens_new")
    return count.to(at.dtype)


def check_no_gradient(name: str, what: str, x: torch.Tensor) -> None:
    """Refuses a tensor that requires grad in a graph. Calls outside of graphs check all tensors."""
    if x.requires_grad:
        raise ValueError(f"{name}: {what} requires grad, and this function has no backward: call under torch.no_grad() "
                         "or pass its .detach()")  # fmt: skip


def pages_of(name: str, page_table: torch.Tensor | None, block_table: torch.Tensor | None,
             cache_batch_idx: torch.Tensor | None, batch: int, ring: int | None) -> tuple[str, torch.Tensor | None]:
    """The parameter that states the pages or the rows of a cache, and the page table."""
    given = {"page_table": page_table, "block_table": block_table, "cache_batch_idx": cache_batch_idx}
    names = [what for what, x in given.items() if x is not None]
    if len(names) > 1:
        raise TypeError(f"{name}: {names[0]} and {names[1]} are given, expected one of them")
    if ring is not None and names:
        raise ValueError(f"{name}: ring and {names[0]} are given, expected one of them")
    if cache_batch_idx is not None:
        return "cache_batch_idx", rows_of(name, cache_batch_idx, batch)
    table = page_table if block_table is None else block_table
    if table is not None:
        _check_rank(name, names[0], table, 2)
    return names[0] if names else "page_table", table


def ragged_of(name: str, cu_seqlens: torch.Tensor, **excluded: Any) -> tuple[int, torch.Tensor]:
    """The number of ragged sequences, and the table by which each row of a cache is a page."""
    if cu_seqlens.dim() != 1 or cu_seqlens.shape[0] < 1:
        raise ValueError(f"{name}: cu_seqlens has shape {tuple(cu_seqlens.shape)}, expected [sequences + 1]")
    for what, x in excluded.items():
        if x is not None:
            raise ValueError(f"{name}: {what} is given, expected None with ragged rows")
    batch = cu_seqlens.shape[0] - 1
    return batch, torch.arange(batch, dtype=torch.int32, device=cu_seqlens.device).unsqueeze(1)


def check(name: str, layout: str, new: dict[str, torch.Tensor | None], caches: Sequence[torch.Tensor], ring: int | None,
          rows_layout: str) -> None:
    """Checks the layout, the dimensions of caches, that the new tensors have the dimensions `rows_layout` and as many
    rows as the first one, and a ring."""
    if layout not in _LAYOUTS:
        raise ValueError(f"{name}: layout is {layout!r}, expected 'bshd' or 'bhsd'")
    if layout != "bshd" and "b" not in rows_layout:
        raise ValueError(f"{name}: layout is {layout!r}, expected 'bshd' with ragged rows")
    axis, first, rank = rows_layout.index("s"), next(iter(new)), len(rows_layout)
    for what, x in new.items():
        if x is None and what != first:
            continue
        _check_rank(name, what, x, rank)
        assert x is not None
        expected = new[first].shape[axis]  # type: ignore[union-attr]
        if x.shape[axis] != expected:
            raise ValueError(f"{name}: {what} has {x.shape[axis]} rows, expected {expected}, those of {first}, in "
                             f"layout {rows_layout!r}")  # fmt: skip
    for what, x in zip(("k_cache", "v_cache"), caches):
        _check_rank(name, what, x, 4)
    _check_heads(name, layout, new, caches, rows_layout)
    capacity = caches[0].shape[layout.index("s")]
    if ring is not None and (isinstance(ring, bool) or not isinstance(ring, (int, torch.SymInt))):
        raise TypeError(f"{name}: ring is {ring!r:.80}, expected an int")
    if ring is not None and not 0 <= ring < capacity:
        raise ValueError(f"{name}: ring is {ring}, expected 0 or more and less than the {capacity} rows of the cache")


def _check_heads(name: str, layout: str, new: dict[str, torch.Tensor | None], caches: Sequence[torch.Tensor],
                 rows_layout: str) -> None:
    """Reports caches that fit in the other layout only. Programs check all extents."""
    other = _LAYOUTS[1 - _LAYOUTS.index(layout)]
    for what, x in new.items():
        if x is None:
            continue
        heads = x.shape[rows_layout.index("h")]
        for cache_name, cache in zip(("k_cache", "v_cache"), caches):
            own, others = cache.shape[layout.index("h")], cache.shape[other.index("h")]
            if what == "q":
                fits, fits_there = (n != 0 and heads % n == 0 for n in (own, others))
            else:
                fits, fits_there = own == heads, others == heads
            if not fits and fits_there:
                raise ValueError(f"{name}: {cache_name} has shape {tuple(cache.shape)}, which is {own} heads in layout "
                                 f"{layout!r}, and {what} has {heads}: give layout={other!r} if the cache and the rows "
                                 f"are [{', '.join(_DIMENSIONS[dim] for dim in other)}]")  # fmt: skip


def _check_rank(name: str, what: str, x: torch.Tensor, rank: int) -> None:
    if not isinstance(x, torch.Tensor):
        found = "None" if x is None else f"a {type(x).__name__}"
        raise TypeError(f"{name}: {what} is {found}, expected a torch.Tensor")
    if x.dim() != rank:
        raise ValueError(f"{name}: {what} has {x.dim()} dimension{'s' * (x.dim() != 1)}, expected {rank}")


def window_of(name: str, window_size: Any, causal: bool, n: int) -> tuple[str, tuple[int, ...]] | None:
    """The bounded sides and their distances, or None."""
    if not isinstance(window_size, (tuple, list)):
        raise TypeError(f"{name}: window_size is {window_size!r:.80}, expected (left, right)")
    if tuple(window_size) in ((-1, -1), (None, None)):
        return None
    if not causal and n > 1:
        raise ValueError(f"{name}: window_size is {window_size} for {n} queries, expected causal=True")
    sides, bounds = _operands.check_window(tuple(window_size), True, f"{name}: window_size")
    return (sides, bounds) if sides else None


def blocks_of(scale: Any) -> int | None:
    """How many scales each position of a head has; None if they are given for all positions."""
    if not isinstance(scale, torch.Tensor) or scale.dim() not in (3, 4):
        return None
    return 1 if scale.dim() == 3 else operator.index(scale.shape[3])


def scales_of(name: str, k_scale: Any, v_scale: Any, caches: Sequence[torch.Tensor],
              layout: str) -> tuple[Any, list[Any]]:
    """The element types of the caches of keys and values with the kinds of their scales (`_cache_text.scale_type`), and
    the scales as inputs of the program."""
    if k_scale is None and v_scale is None:
        for what, cache in zip("kv", caches):
            if cache.dtype in quantizing.LARGEST:
                raise TypeError(f"{name}: {what}_cache has element type {cache.dtype}, expected {what}_scale to be "
                                "given")  # fmt: skip
        return None, []
    kinds: list[tuple[str, str | int]] = []
    values: list[Any] = []
    for what, x, cache in zip("kv", (k_scale, v_scale), caches):
        if cache.dtype not in quantizing.LARGEST:
            expected = ", ".join(str(dtype) for dtype in quantizing.LARGEST)
            raise TypeError(f"{name}: {what}_cache has element type {cache.dtype}, expected {expected}: {what}_scale "
                            "is given")  # fmt: skip
        element, blocks = _operands.dtype_name(cache), blocks_of(x)
        if blocks is not None:
            if x.shape[:3] != cache.shape[:3]:
                raise ValueError(f"{name}: {what}_scale has shape {list(x.shape)}, expected {list(cache.shape[:3])}, "
                                 f"one for each position and head of {what}_cache")  # fmt: skip
            _operands.check_blocks(f"{name}: {what}_scale", blocks, operator.index(cache.shape[-1]))
            kinds.append((element, blocks if x.dim() == 4 else "position"))
            values.append(x)
            continue
        if isinstance(x, torch.Tensor) and x.dim() <= 1:
            kinds.append((element, "head"))
            values.append(x.expand(cache.shape[layout.index("h")]) if x.numel() == 1 else x)
        elif isinstance(x, (int, float)) and not isinstance(x, bool):
            kinds.append((element, "number"))
            values.append(float(x))
        else:
            raise TypeError(f"{name}: {what}_scale is {x!r:.80}, expected a number, or a float32 tensor of 0, 1, 3 or "
                            "4 dimensions")  # fmt: skip
        if not is_compiling():
            quantizing.check_scale(name, f"{what}_scale", torch.as_tensor(values[-1]))
    return tuple(kinds), values


def new_rows(name: str, k: torch.Tensor, v: torch.Tensor, count: torch.Tensor | None, k_scale: Any, v_scale: Any,
             caches: Sequence[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """The rows to append, quantized if there are scales, and those of the scales of positions."""
    if k_scale is None and v_scale is None:
        return [k, v]
    rows, scales = [], []
    for what, x, scale, cache in (("k", k, k_scale, caches[0]), ("v", v, v_scale, caches[1])):
        blocks = blocks_of(scale)
        given = scale if blocks is None else None
        quantized, own = quantizing.quantize_rows(name, what, x, count, given, cache.dtype, blocks or 1, layout)
        rows.append(quantized)
        if blocks is not None:
            scales.append(own.squeeze(-1) if scale.dim() == 3 else own)
    return rows + scales
