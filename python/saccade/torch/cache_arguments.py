"""Arguments of the functions for caches (serving.py): their kinds, and the tensors and numbers that programs take.
`name` is that of the function, for messages."""

from __future__ import annotations

import numbers
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from saccade import _operands, _packed
from saccade._cache_text import is_packed
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


def depth_of(cache: torch.Tensor) -> int:
    """The head dimension of a cache."""
    return operator.index(cache.shape[-1]) * (_packed.CODES_OF_BYTE if cache.dtype == torch.uint8 else 1)


def blocks_of(scale: Any) -> int | None:
    """How many scales each position of a head has; None if they are given for all positions."""
    if not isinstance(scale, torch.Tensor) or scale.dim() not in (3, 4):
        return None
    return 1 if scale.dim() == 3 else operator.index(scale.shape[3])


class Scales(NamedTuple):
    """The scales of quantized caches, and the zero points of codes of 4 bits."""

    k_scale: Any
    v_scale: Any
    k_zero: Any = None
    v_zero: Any = None

    def given(self) -> dict[str, Any]:
        return {what: x for what, x in self._asdict().items() if x is not None}


def scales_of(name: str, scales: Scales, caches: Sequence[torch.Tensor], layout: str,
              heads: Sequence[int | None]) -> tuple[Any, list[torch.Tensor], dict[str, Any]]:
    """The element types of the caches of keys and values with the kinds of their scales (`_cache_text.scale_type`), the
    caches as the program takes them, and the scales and zero points as its operands. `heads` are the head sizes of keys
    and values, if they are known."""
    if not scales.given():
        for what, cache in zip("kv", caches):
            if cache.dtype in quantizing.LARGEST:
                raise TypeError(f"{name}: {what}_cache has element type {cache.dtype}, expected {what}_scale to be "
                                "given")  # fmt: skip
        return None, list(caches), {}
    kinds: list[tuple[str, str | int]] = []
    operands: dict[str, Any] = {}
    stored_caches: list[torch.Tensor] = []
    for what, x, zero, cache, head_size in zip("kv", scales[:2], scales[2:], caches, heads):
        if cache.dtype not in quantizing.LARGEST:
            expected = ", ".join(str(dtype) for dtype in quantizing.LARGEST)
            given = "scale" if x is not None else "zero"
            raise TypeError(f"{name}: {what}_cache has element type {cache.dtype}, expected {expected}: {what}_{given} "
                            "is given")  # fmt: skip
        stored = _packed.name_of(_operands.dtype_name(cache), zero is not None)
        depth = operator.index(cache.shape[-1])
        if is_packed(stored):
            depth *= _packed.CODES_OF_BYTE
            if head_size is not None and head_size != depth:
                raise ValueError(f"{name}: {what}_cache has {depth // 2} bytes of a head, which are {depth} elements "
                                 f"of 4 bits, expected {head_size} elements")  # fmt: skip
            cache = _packed.words(f"{name}: {what}_cache", cache, cache.dim() - 1)
        stored_caches.append(cache)
        kind, operands[f"{what}_scale"] = _scale_of(name, f"{what}_scale", x, cache, layout, depth)
        kinds.append((stored, kind))
        if zero is not None:
            operands[f"{what}_zero"] = _zero_of(name, f"{what}_zero", zero, stored, x, cache, layout)
    return tuple(kinds), stored_caches, operands


def _scale_of(name: str, what: str, x: Any, cache: torch.Tensor, layout: str, depth: int) -> tuple[str | int, Any]:
    """The kind of a scale and the operand of the program."""
    blocks = blocks_of(x)
    if blocks is not None:
        if x.shape[:3] != cache.shape[:3]:
            raise ValueError(f"{name}: {what} has shape {list(x.shape)}, expected {list(cache.shape[:3])}, one for "
                             f"each position and head of {what[0]}_cache")  # fmt: skip
        _operands.check_blocks(f"{name}: {what}", blocks, depth)
        return blocks if x.dim() == 4 else "position", x
    return _of_heads(name, what, x, cache, layout, "0, 1, 3 or 4 dimensions")


def _of_heads(name: str, what: str, x: Any, cache: torch.Tensor, layout: str, expected: str) -> tuple[str, Any]:
    """The kind and the operand of a number, or of those of each head."""
    if isinstance(x, torch.Tensor) and x.dim() <= 1:
        kind, value = "head", x.expand(cache.shape[layout.index("h")]) if x.numel() == 1 else x
    elif isinstance(x, (int, float)) and not isinstance(x, bool):
        kind, value = "number", float(x)
    else:
        raise TypeError(f"{name}: {what} is {x!r:.80}, expected a number, or a float32 tensor of {expected}")
    if not is_compiling():
        quantizing.check_scale(name, what, torch.as_tensor(value))
    return kind, value


def _zero_of(name: str, what: str, zero: Any, stored: str, scale: Any, cache: torch.Tensor, layout: str) -> Any:
    """The operand of zero points, which have the shape of the scale."""
    if not is_packed(stored):
        raise TypeError(f"{name}: {what} is given, expected None: {what[0]}_cache has element type {cache.dtype}, and "
                        "only elements of 4 bits (uint8) have zero points")  # fmt: skip
    if blocks_of(scale) is None:
        if isinstance(zero, torch.Tensor) != isinstance(scale, torch.Tensor):
            raise TypeError(f"{name}: {what} is {zero!r:.80}, expected what {what[0]}_scale is, "
                            f"{'a tensor' if isinstance(scale, torch.Tensor) else 'a number'}")  # fmt: skip
        return _of_heads(name, what, zero, cache, layout, f"the shape of {what[0]}_scale")[1]
    if not isinstance(zero, torch.Tensor) or zero.shape != scale.shape:
        found = f"has shape {list(zero.shape)}" if isinstance(zero, torch.Tensor) else f"is {zero!r:.80}"
        raise ValueError(f"{name}: {what} {found}, expected {list(scale.shape)}, the shape of {what[0]}_scale")
    return zero


def new_rows(name: str, k: torch.Tensor, v: torch.Tensor, count: torch.Tensor | None, scales: Scales,
             caches: Sequence[torch.Tensor], layout: str) -> list[torch.Tensor]:
    """The rows to append, quantized if there are scales, then the scales of positions, then the zero points of
    positions."""
    if not scales.given():
        return [k, v]
    rows, own_scales, own_zeros = [], [], []
    for what, x, scale, zero, cache in zip("kv", (k, v), scales[:2], scales[2:], caches):
        blocks = blocks_of(scale)
        given, given_zero = (scale, zero) if blocks is None else (None, None)
        quantized, *own = quantizing.quantize_rows(name, what, x, count, given, given_zero, zero is not None,
                                                   cache.dtype, blocks or 1, layout)  # fmt: skip
        rows.append(quantized)
        if blocks is not None:
            own = [each.squeeze(-1) if scale.dim() == 3 and each.dim() > 1 else each for each in own]
            own_scales.append(own[0])
            own_zeros += own[1:] if zero is not None else []
    return rows + own_scales + own_zeros
