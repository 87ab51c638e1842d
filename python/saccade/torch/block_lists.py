"""The lists of blocks of a FlexAttention BlockMask, and whether they say more than its `mask_mod`.

The lists name, for each block of queries, the partial blocks of keys, where `mask_mod` decides, and the full blocks,
all of whose pairs are visible. All other pairs are hidden. PyTorch's compiled kernels read both. Lists that
`create_block_mask` made from `mask_mod` hide nothing else, and kernels of Saccade find empty tiles by themselves, so
these are not read. To recognise them, `create_block_mask` records what it made: the versions of the lists, of
`mask_mod` and of its tensors.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.attention import flex_attention as pytorch
from torch.utils.weak import WeakTensorKeyDictionary

from saccade.regions import Region, TraceError, fingerprint, trace

PARTIAL, FULL = 1, 2
_MAX_COPIED = 1 << 20  # elements of tensors without versions that are copied to see later changes


def lists_of(block_mask: Any) -> tuple[Any, ...]:
    """The numbers of partial blocks, their indices, the numbers of full blocks, their indices; the last two may be
    None."""
    return (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks,
            block_mask.full_kv_indices)


def has_lists(block_size: Sequence[Any]) -> bool:
    """Whether a BlockMask has lists. PyTorch's mask that hides nothing has one block, which is longer than anything."""
    return bool(min(block_size) < 1 << 30)


# --- reading lists ----------------------------------------------------------------------------------------------------


def kinds(counts: torch.Tensor, indices: torch.Tensor, full_counts: torch.Tensor | None,
          full_indices: torch.Tensor | None, columns: int) -> torch.Tensor:
    """What the lists say about each block: PARTIAL, FULL, or 0 for a hidden one.

    Args:
        counts, full_counts: [..., rows], integers.
        indices, full_indices: [..., rows, most blocks], integers, in any order. Those that are no number of a column
            are ignored.
        columns: the number of blocks of keys.

    Returns:
        [..., rows, columns], int8.
    """
    table = _listed(counts, indices, columns)
    if full_counts is not None and full_indices is not None:
        table = torch.maximum(table, FULL * _listed(full_counts, full_indices, columns))
    return table


def _listed(counts: torch.Tensor, indices: torch.Tensor, columns: int) -> torch.Tensor:
    """1 for the blocks that a list contains, otherwise 0."""
    number = torch.arange(indices.shape[-1], device=indices.device)
    is_read = (number < counts.unsqueeze(-1)) & (indices >= 0) & (indices < columns)
    place = torch.where(is_read, indices, columns).to(torch.int64)
    found = torch.zeros((*indices.shape[:-1], columns + 1), dtype=torch.int8, device=indices.device)
    return found.scatter(-1, place, 1)[..., :columns]


def mask_of(lists: tuple[Any, ...], block_size: Sequence[int], mask_mod: Callable[..., Any] | None,
            query: torch.Tensor, key: torch.Tensor) -> Callable[..., Any]:
    """The mask function of the lists and a `mask_mod`, or of the lists alone. Dynamo traces this.

    Raises ValueError: the batch or the heads of the lists do not divide those of the query [B, Hq, L, E].
    """
    counts, indices, full_counts, full_indices = lists
    names, table = table_of(counts, indices, full_counts, full_indices, block_size[1], query, key)
    return mask_of_table(names, table, block_size, mask_mod)


def table_of(counts: torch.Tensor, indices: torch.Tensor, full_counts: torch.Tensor | None,
             full_indices: torch.Tensor | None, columns: int, query: torch.Tensor,
             key: torch.Tensor) -> tuple[str, torch.Tensor]:
    """The dimensions that the kinds of blocks vary along, "bhij" or fewer, and the kinds with only these."""
    table = kinds(counts, indices, full_counts, full_indices, (key.shape[2] + columns - 1) // columns)
    while table.dim() < 4:
        table = table.unsqueeze(0)
    names = "ij"
    for axis, name in ((1, "h"), (0, "b")):
        found, expected = table.shape[axis], query.shape[axis]
        if found == 1:
            table = table.select(axis, 0)
            continue
        if expected % found:
            raise ValueError(f"block_mask has {found} {'heads' if axis else 'batches'}, query has {expected}")
        if found != expected:  # neighbouring heads share lists, as in PyTorch's kernel for CPUs
            table = table.repeat_interleave(expected // found, axis)
        names = name + names
    return names, table


def mask_of_table(names: str, table: torch.Tensor, block_size: Sequence[int],
                  mask_mod: Callable[..., Any] | None) -> Callable[..., Any]:
    """The mask function of the results of `table_of`."""
    rows, columns = block_size

    def read(b: Any, h: Any, i: Any, j: Any) -> Any:
        if names == "bhij":
            return table[b, h, i // rows, j // columns]
        if names == "bij":
            return table[b, i // rows, j // columns]
        return table[h, i // rows, j // columns] if names == "hij" else table[i // rows, j // columns]

    def listed(b: Any, h: Any, i: Any, j: Any) -> Any:
        kind = read(b, h, i, j)
        return kind != 0 if mask_mod is None else (kind == FULL) | ((kind == PARTIAL) & mask_mod(b, h, i, j))

    return listed


# --- lists that create_block_mask made --------------------------------------------------------------------------------


class _Snapshot:
    """A tensor and its elements at one time."""

    __slots__ = ("copy", "tensor", "version")

    def __init__(self, x: torch.Tensor):
        self.tensor = weakref.ref(x)
        # Tensors of torch.inference_mode have no version.
        self.copy = x.clone() if x.is_inference() else None
        self.version = None if x.is_inference() else x._version

    def is_still(self, x: Any) -> bool:
        """Whether x is the tensor, with the same elements."""
        own = self.tensor()
        if own is None or own is not x:
            return False
        return torch.equal(self.copy, own) if self.copy is not None else bool(own._version == self.version)


class Origin:
    """What `create_block_mask` made, and from what."""

    def __init__(self, block_mask: Any, function: Any, found: Any):
        self.lists = [None if x is None else _Snapshot(x) for x in lists_of(block_mask)]
        self.block_size, self.lengths = tuple(block_mask.BLOCK_SIZE), tuple(block_mask.seq_lengths)
        self.extents = tuple(block_mask.kv_num_blocks.shape[:2])
        self.function = weakref.ref(function)
        self.reads: tuple[bool, bool] | None = None
        self.key = found.key, found.values(range(len(found.numbers)))
        self.captures = [_Snapshot(x) for x in found.tensors]

    def is_still(self, lists: Sequence[Any], captures: Sequence[Any]) -> bool:
        """Whether these are the lists, and these the tensors of the function, without changes."""
        return (len(captures) == len(self.captures)
                and all([x is None if known is None else known.is_still(x) for known, x in zip(self.lists, lists)])
                and all([known.is_still(x) for known, x in zip(self.captures, captures)]))

    def is_of(self, function: Any) -> bool:
        """Whether the function is that from which the lists were made, and nothing that it reads has changed."""
        found = fingerprint(function)
        return (found is not None and (found.key, found.values(range(len(found.numbers)))) == self.key
                and len(found.tensors) == len(self.captures)
                and all([known.is_still(x) for known, x in zip(self.captures, found.tensors)]))

    def covers(self, batch: int, heads: int) -> bool:
        """Whether the lists describe all batches and heads. Those of one batch are made from `mask_mod` of batch 0."""
        if self.extents == (batch, heads):
            return True
        if self.reads is None:
            function = self.function()
            self.reads = (True, True) if function is None else _reads(function)
        reads_batch, reads_head = self.reads
        return (self.extents[0] == batch or not reads_batch) and (self.extents[1] == heads or not reads_head)


_origins: Any = WeakTensorKeyDictionary()


def origin_of(counts: Any) -> Origin | None:
    """What created a BlockMask with these `kv_num_blocks`, if known."""
    found: Origin | None = _origins.get(counts) if isinstance(counts, torch.Tensor) else None
    return found


def follows_mask(block_mask: Any, batch: int, heads: int) -> bool:
    """Whether the lists are known to hide what `mask_mod` hides and nothing else, for this batch and these heads of the
    query."""
    origin = origin_of(block_mask.kv_num_blocks)
    if origin is None or tuple(block_mask.BLOCK_SIZE) != origin.block_size:
        return False
    captures = [known.tensor() for known in origin.captures]
    return (tuple(block_mask.seq_lengths) == origin.lengths and origin.is_still(lists_of(block_mask), captures)
            and origin.is_of(block_mask.mask_mod) and origin.covers(batch, heads))


def _reads(function: Callable[..., Any]) -> tuple[bool, bool]:
    """Whether a mask function reads the batch index and the head index."""
    try:
        with torch.no_grad():
            return reads_of(trace(function, "mask", "f32"))
    except (TraceError, TypeError, ValueError):
        return True, True


def reads_of(mask: Region) -> tuple[bool, bool]:
    """Whether the region of a mask reads the batch index and the head index."""
    todo, seen, found = [mask.root], set(), set()
    while todo:
        node = todo.pop()
        if id(node) not in seen:
            seen.add(id(node))
            todo += node.operands
            if node.op == "argument":
                found.add(node.attribute)
    return 0 in found, 1 in found


def _record(block_mask: Any, function: Any) -> None:
    found = fingerprint(function)
    if found is None or any([not isinstance(x, torch.Tensor) for x in found.tensors]):
        return
    tensors = [x for x in (*lists_of(block_mask), *found.tensors) if x is not None]
    if sum([x.numel() for x in tensors if x.is_inference()]) <= _MAX_COPIED:
        _origins[block_mask.kv_num_blocks] = Origin(block_mask, function, found)


def _recording(create: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(create)
    def made(block_mask: Any, mask_mod: Any, *arguments: Any, **options: Any) -> Any:
        result = create(block_mask, mask_mod, *arguments, **options)
        if not torch.compiler.is_compiling() and not torch._C._len_torch_dispatch_stack():
            _record(result, mask_mod)
        return result

    return made


def _install() -> None:
    """`create_block_mask` calls this private function last. Without it nothing is recognised, and lists are read."""
    create = getattr(pytorch, "_create_sparse_block_from_block_mask", None)
    if create is not None:
        pytorch._create_sparse_block_from_block_mask = _recording(create)


_install()
