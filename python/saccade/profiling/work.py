"""The work of a call of attention: multiplications, memory that must be read and written, tokens."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Mapping
from typing import Any, NamedTuple

from saccade import _arrays, _calls, _operands, _served


class Work(NamedTuple):
    """What one call does."""

    flops: int
    """2 · visible pairs · (head_dim + head_dim_v): the products of the pairs that the mask keeps."""
    dense_flops: int
    """The same with all pairs of queries and keys."""
    bytes: int
    """Query, key, value and output, each once."""
    tokens: int
    """Queries of all sequences."""


def work_of(call: _served.Observed, known: Work | None = None) -> Work | None:
    """The work of a call; None if its operands are no arrays of the known layouts. `known` is that of an earlier call
    with these shapes, for a mask that is a Python function, whose pairs are counted once."""
    if len(call.operands) != 3 or any(not hasattr(x, "shape") for x in call.operands):
        return None
    options = _calls.options_of(call)
    if not options:
        return None
    is_ragged = options.get("cu_seqlens_q") is not None
    layout = options.get("layout") or ("shd" if is_ragged else "bhsd")
    query, key, value = call.operands
    if len(query.shape) != len(layout) or options.get("page_table") is not None:
        return None
    sizes = {dim: int(query.shape[layout.index(dim)]) if dim in layout else 1 for dim in "bhsd"}
    keys, depth = int(key.shape[layout.index("s")]), int(value.shape[layout.index("d")])
    per_pair = 2 * (sizes["d"] + depth) * sizes["h"]
    if is_ragged:
        lengths = _lengths(options["cu_seqlens_q"]), _lengths(options["cu_seqlens_k"])
        dense = sum(q * k for q, k in zip(*lengths))
    else:
        lengths = [sizes["s"]] * sizes["b"], [keys] * sizes["b"]
        dense = sizes["b"] * sizes["s"] * keys
    if callable(options.get("mask")):
        if known is not None:
            return known
        pairs: float = _counted(call, options, layout) / sizes["h"]
    else:
        pairs = _pairs(options, lengths, sizes)
    output = sizes["b"] * sizes["h"] * sizes["s"] * depth
    size = sum(_bytes(x) for x in call.operands) + output * _item(query)
    return Work(round(pairs * per_pair), dense * per_pair, size, sizes["b"] * sizes["s"])


def _counted(call: _served.Observed, options: Mapping[str, Any], layout: str) -> int:
    """The pairs that a mask of a Python function keeps."""
    library = _arrays.library_of(call.operands[0])
    names = ("mask", "causal", "window", "kv_len", "cu_seqlens_q", "cu_seqlens_k")
    given = {name: options[name] for name in names if options.get(name) is not None}
    with getattr(library, "no_grad", contextlib.nullcontext)():
        seen = _calls.log_of_keys_seen(call.operands[0], call.operands[1], layout, given)
        return int(library.round(library.exp(seen)).sum())


def _pairs(options: Mapping[str, Any], lengths: tuple[list[int], list[int]], sizes: dict[str, int]) -> float:
    """The visible pairs of all sequences, the mean over heads, without a mask or with one that is a tensor."""
    mask: Any = options.get("attn_mask")
    causal = "top_left" if options.get("is_causal") else options.get("causal")
    valid = options.get("kv_len")
    if hasattr(mask, "dense"):  # one of Transformers
        mask = mask.dense()
    if mask is not None:
        return _kept(mask, lengths, sizes)
    ends = lengths[1] if valid is None else _each(valid, lengths[1])
    left, right = _operands.window_sides(options.get("window"), causal is not None)
    right = right if causal is None else 0
    return sum(_visible(q, min(k, end), _operands.first_own_key(causal, q, end), left, right)
               for q, k, end in zip(lengths[0], lengths[1], ends))


@functools.lru_cache(maxsize=4096)
def _visible(queries: int, keys: int, own: int, left: int | None, right: int | None) -> int:
    """The pairs of a band: query i sees keys from own + i - left to own + i + right."""
    if left is None and right is None:
        return queries * keys
    total = 0
    for i in range(queries):
        first = 0 if left is None else max(0, own + i - left)
        last = keys - 1 if right is None else min(keys - 1, own + i + right)
        total += max(0, last - first + 1)
    return total


def _kept(mask: Any, lengths: tuple[list[int], list[int]], sizes: dict[str, int]) -> float:
    """The pairs that a mask keeps: True, or anything but -inf."""
    is_flags = str(mask.dtype).rpartition(".")[2] in ("bool", "bool_")
    kept = mask if is_flags else mask > float("-inf")
    count = int(kept.sum())
    extents = (1, 1, 1, 1, *mask.shape)[-4:]
    for extent, full in zip(extents, (sizes["b"], sizes["h"], sizes["s"], lengths[1][0])):
        count *= full if extent == 1 else 1
    return count / sizes["h"]


def _each(valid: Any, lengths: list[int]) -> list[int]:
    return [valid] * len(lengths) if isinstance(valid, int) else [int(x) for x in valid.tolist()]


def _lengths(offsets: Any) -> list[int]:
    given = offsets.tolist()
    return [end - start for start, end in itertools.pairwise(given)]


def _item(array: Any) -> int:
    """The bytes of an element."""
    size = getattr(array, "itemsize", None)
    return int(size) if isinstance(size, int) else int(array.dtype.itemsize)


def _bytes(array: Any) -> int:
    count = 1
    for extent in array.shape:
        count *= int(extent)
    return count * _item(array)
