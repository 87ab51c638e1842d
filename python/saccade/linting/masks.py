"""The rules of masks, on tensors of PyTorch or NumPy arrays that are broadcast to [..., queries, keys]."""

from __future__ import annotations

from typing import Any

from saccade.linting.scales import Add, check_alignment

SENTINEL = -9999.0
"""The largest number that is a mask, as the compiler's raising of graphs has it."""
_LARGEST = 1 << 26
"""Elements of a mask that is read."""
BY_HAND = 'scores.masked_fill(hidden, float("-inf"))'
"""How scores written by hand are masked."""


def check_boolean(add: Add, keep: Any, queries: int, keys: int, batch: int, heads: int, instead: str) -> None:
    """Finds mistakes in a boolean mask that is True for visible keys.

    Args:
        add: adds a finding.
        keep: the mask, broadcastable to [batch, heads, queries, keys].
        queries: the number of queries.
        keys: the number of keys.
        batch: the number of sequences, 0 if it is unknown.
        heads: the number of heads, 0 if it is unknown.
        instead: how a mask is inverted in this call, such as "attn_mask=~mask".
    """
    if check_axes(add, keep, queries, keys, batch, heads) or not 0 < _size(keep) <= _LARGEST:
        return
    rows, columns = (1, 1, *keep.shape)[-2:]
    if columns != keys:
        return
    if not bool(keep.any()):
        add("inverted-mask", "the mask hides every key of every query", instead)
    elif rows == queries > 1 and _is_triangle(keep, queries, keys, -1):
        add("inverted-mask", "the mask keeps the keys after each query and hides those up to it; expected the "
            "contrary", instead)
    elif rows == queries and keys > 1 and _is_triangle(keep, queries, keys, 0):
        of_queries = f"{queries} quer{'y' if queries == 1 else 'ies'}"
        check_alignment(add, queries, keys,
                        f"tril({keys - queries}) in place of tril() for {of_queries} and {keys} keys")
    elif rows == 1 and columns > 1 and _is_inverted_padding(keep):
        add("inverted-mask", "the mask hides the first keys of every sequence, and more than half of all; it is "
            "probably True for padding", instead)
    elif rows == queries == batch > 1 and len(keep.shape) == 2 and _is_padding(keep):
        add("mask-axis", f"the mask [{rows},{columns}] is read as [queries, keys]; its rows look like the padding of "
            f"{batch} sequences", "mask[:, None, None, :]")


def check_axes(add: Add, mask: Any, queries: int, keys: int, batch: int, heads: int) -> bool:
    """Finds a mask that varies along the wrong axis."""
    shape = tuple(mask.shape)
    rows, columns = (1, 1, *shape)[-2:]
    if columns == 1 < keys and rows == queries > 1:
        add("mask-axis", f"the mask or bias {list(shape)} has one number for all keys of a query, which hides all of "
            "them or changes nothing; expected one for each key", "mask.transpose(-2, -1)")
        return True
    is_flags = str(mask.dtype).rpartition(".")[2] in ("bool", "bool_")
    if is_flags and len(shape) == 3 and shape[0] == batch == heads > 1 and rows == 1:
        add("mask-axis", f"the mask {list(shape)} varies over heads, since scores are [batch, heads, queries, keys]; "
            "it probably has one row for each sequence", "mask[:, None]")
        return True
    return False


def check_added(add: Add, mask: Any, queries: int, keys: int, batch: int, heads: int,
                instead: str) -> tuple[bool, bool]:
    """Finds mistakes in a tensor that is added to scores; its arguments are those of `check_boolean`.

    Returns:
        Whether the tensor hides keys, and whether it has other numbers than 0 besides.
    """
    if check_axes(add, mask, queries, keys, batch, heads) or not 0 < _size(mask) <= _LARGEST:
        return False, True
    lowest = float(mask.min())
    has_bias = bool(((mask != 0) & (mask > SENTINEL)).any())
    if lowest > SENTINEL:
        return False, has_bias
    keep = mask > SENTINEL
    empty = int((~keep).all(-1).sum()) if mask.shape[-1] > 1 else 0
    check_sentinel(add, lowest, empty, instead)
    if not has_bias:
        check_boolean(add, keep, queries, keys, batch, heads, instead)
    return True, has_bias


def check_sentinel(add: Add, number: float, empty: int, instead: str) -> None:
    """Finds a finite number in place of a mask; `empty` rows have no visible key."""
    if float("-inf") < number <= SENTINEL:
        if empty and instead == BY_HAND:
            instead += ", and weights.masked_fill(hidden.all(-1, keepdim=True), 0): a row that hides all keys is NaN"
        effect = f"{empty} of its rows hide all keys and give a mean of all values" if empty else (
            "a row that hides all keys would give a mean of all values")
        add("sentinel", f"{number:.4g} is a number in place of a mask: {effect}; expected a boolean mask or -inf",
            instead)


# --- properties -------------------------------------------------------------------------------------------------------


def _size(mask: Any) -> int:
    size = 1
    for extent in mask.shape:
        size *= int(extent)
    return size


def _is_triangle(keep: Any, queries: int, keys: int, last: int) -> bool:
    """Whether each query keeps the keys up to its own + `last`, or with -1 those after its own alone."""
    import numpy

    if hasattr(keep, "detach"):
        keep = keep.detach().cpu().numpy()
    lower = numpy.tri(queries, keys, dtype=bool)
    return bool((keep == (~lower if last == -1 else lower)).all()) and not (last == -1 and queries == keys == 1)


def _is_inverted_padding(keep: Any) -> bool:
    """Whether every sequence keeps some of its last keys only, and all together less than half of their keys."""
    first_is_hidden = not bool(keep[..., 0].any())
    ends_late = bool((keep[..., 1:] >= keep[..., :-1]).all())
    return first_is_hidden and ends_late and bool(keep.any()) and 2 * int(keep.sum()) < _size(keep)


def _is_padding(keep: Any) -> bool:
    """Whether rows keep first keys, of different numbers that do not ascend as in a causal mask."""
    ends_early = bool((keep[..., 1:] <= keep[..., :-1]).all()) and bool(keep[..., 0].all())
    lengths = keep.sum(-1)
    return ends_early and not bool((lengths[1:] > lengths[:-1]).all()) and not bool(keep.all())
