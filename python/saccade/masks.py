"""The usual masks, as functions (b, h, i, j) for `saccade.attention`: whether query i sees key j.

They are ordinary functions of index scalars, and join with others: `a & b`, `a | b` and `~a` are masks too, where the
other one may be any such function that gives booleans. Positions count from 0 on both sides; a number that changes from call to call is
better a tensor without dimensions, for which no new kernel is compiled. What is a tensor below may be a list, too, which
becomes a NumPy array; one mask has tensors of torch or arrays of NumPy, not both.

    >>> saccade.attention(q, k, v, mask=masks.causal() & masks.documents(ids) | masks.global_tokens(4))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade import _arrays

__all__ = [
    "Mask", "bigbird", "block_sparse", "causal", "dilated", "documents", "global_tokens", "longformer", "neighborhood",
    "packed", "padding", "prefix_lm", "strided", "swin", "tree", "window",
]  # fmt: skip


class Mask:
    """A mask function with &, | and ~. Called with numbers or arrays of them it says what it lets through."""

    __slots__ = ("function",)

    def __init__(self, function: Callable):
        self.function = function.function if isinstance(function, Mask) else function

    def __call__(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.function(b, h, i, j)

    def __and__(self, other: Callable) -> Mask:
        return _joined(self, other, lambda f, g: lambda b, h, i, j: f(b, h, i, j) & g(b, h, i, j))

    def __or__(self, other: Callable) -> Mask:
        return _joined(self, other, lambda f, g: lambda b, h, i, j: f(b, h, i, j) | g(b, h, i, j))

    def __rand__(self, other: Callable) -> Mask:
        return Mask(other) & self

    def __ror__(self, other: Callable) -> Mask:
        return Mask(other) | self

    def __invert__(self) -> Mask:
        function = self.function
        return Mask(lambda b, h, i, j: function(b, h, i, j) ^ True)

    def __bool__(self) -> bool:
        raise TypeError("a mask is neither true nor false: join masks with &, | and ~, not with 'and', 'or' and 'not'")

    def __repr__(self) -> str:
        return f"saccade.masks.Mask({getattr(self.function, '__qualname__', self.function)})"


def _joined(left: Mask, right: Callable, join: Callable) -> Mask:
    if not callable(right):
        return NotImplemented
    return Mask(join(left.function, Mask(right).function))


def _table(name: str, given: Any, *ranks: int) -> Any:
    """A tensor or array of one of these ranks as it is, a sequence of numbers as a new NumPy array."""
    import numpy

    array = numpy.asarray(given, numpy.int32) if isinstance(given, (list, tuple, range)) else given
    rank = getattr(array, "ndim", None)
    if rank not in ranks:
        found = f"is {given!r:.60}, expected a tensor with" if rank is None else f"has {_arrays.dimensions(rank)}, expected"
        raise ValueError(f"{name} {found} {' or '.join(map(str, ranks))}")
    return array


def _check_step(name: str, number: Any, least: int = 1) -> None:
    """Refuses numbers below `least`; of a tensor nobody knows what it will be."""
    if isinstance(number, (int, float)) and (number < least or number != int(number)):
        raise ValueError(f"{name} is {number}, expected an integer of at least {least}")


def causal(offset: Any = 0) -> Mask:
    """Keys up to the query's own, which is key i + offset: 0 counts from the starts of both sequences, keys − queries
    from their ends."""
    return Mask(lambda b, h, i, j: j <= i + offset)


def window(left: Any, right: Any = 0) -> Mask:
    """From `left` keys before the query's position to `right` keys behind it. One of them may be negative: window(-1, 4)
    begins behind it."""
    if isinstance(left, (int, float)) and isinstance(right, (int, float)) and left + right < 0:
        raise ValueError(f"left is {left} and right {right}: no key is seen, expected a sum of at least 0")
    return Mask(lambda b, h, i, j: (j >= i - left) & (j <= i + right))


def dilated(step: Any, left: Any, right: Any = 0) -> Mask:
    """Every step-th key from the query's own position: `left` of them before it and `right` behind it, so that it reaches
    from key i − left · step to i + right · step. A step that is a tensor must not be 0."""
    _check_step("step", step)
    return Mask(lambda b, h, i, j: ((i - j) % step == 0) & (j >= i - left * step) & (j <= i + right * step))


def strided(stride: Any, local: Any | None = None) -> Mask:
    """The strided pattern of Child et al. 2019, causal: the last `local` keys (`stride` of them without it), the query's own
    among them, and every stride-th one before. A stride that is a tensor must not be 0."""
    _check_step("stride", stride)
    near = stride if local is None else local
    _check_step("local", near, 0)
    return Mask(lambda b, h, i, j: (j <= i) & ((i - j < near) | ((i - j) % stride == 0)))


def block_sparse(layout: Any, query_block: int, key_block: int | None = None) -> Mask:
    """The blocks of a layout: layout[i // query_block, j // key_block], a tensor of booleans or integers [query blocks,
    key blocks], or [heads, query blocks, key blocks]. Blocks are in tokens, key_block is query_block without it. The last
    ones may be cut off; a layout that ends before the sequences do is refused by the call."""
    size = query_block if key_block is None else key_block
    _check_step("query_block", query_block)
    _check_step("key_block", size)
    layout = _table("layout", layout, 2, 3)
    if layout.ndim == 3:
        return Mask(lambda b, h, i, j: layout[h, i // query_block, j // size] != 0)
    return Mask(lambda b, h, i, j: layout[i // query_block, j // size] != 0)


def prefix_lm(prefix: Any) -> Mask:
    """Causal, but everybody sees the first `prefix` keys: a number, or a tensor [batch]."""
    if isinstance(prefix, (list, tuple)) or getattr(prefix, "ndim", 0) != 0:
        prefix = _table("prefix", prefix, 1)
        return Mask(lambda b, h, i, j: (j <= i) | (j < prefix[b]))
    return Mask(lambda b, h, i, j: (j <= i) | (j < prefix))


def padding(lengths: Any) -> Mask:
    """The first lengths[b] keys of each batch. (`kv_len` says the same and does not even read the others.)"""
    lengths = _table("lengths", lengths, 1)
    return Mask(lambda b, h, i, j: j < lengths[b])


def documents(ids: Any, key_ids: Any | None = None) -> Mask:
    """Keys of the query's own document: ids, a tensor of integers [length] or [batch, length], where each position's
    document stands; with key_ids, ids are those of the queries. Any number may be a document, and it need not be in one
    piece. Positions that have no id are refused by the call."""
    ids = _table("ids", ids, 1, 2)
    key_ids = ids if key_ids is None else _table("key_ids", key_ids, ids.ndim)
    if ids.ndim == 2:
        return Mask(lambda b, h, i, j: ids[b, i] == key_ids[b, j])
    return Mask(lambda b, h, i, j: ids[i] == key_ids[j])


def packed(offsets: Any) -> Mask:
    """Documents one behind the other: offsets, a tensor or a sequence of integers, ascending from 0 to the length, are
    where they begin, and where the last one ends (`cu_seqlens`). A longer sequence is refused by the call."""
    import numpy

    bounds = numpy.asarray(offsets)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or (numpy.diff(bounds) < 0).any():
        raise ValueError(f"offsets are {offsets!r:.80}, expected ascending integers from 0 to the length")
    # What messages call as the caller does.
    offsets = _like(offsets, numpy.repeat(numpy.arange(len(bounds) - 1, dtype=numpy.int32), numpy.diff(bounds)))
    return Mask(lambda b, h, i, j: offsets[i] == offsets[j])


def _like(given: Any, array: Any) -> Any:
    """A new NumPy array as a torch tensor where what the caller gave is one."""
    return _arrays.torch_module().from_numpy(array) if _arrays.is_torch(given) else array


def global_tokens(count: Any) -> Mask:
    """The first `count` positions see all keys and are seen by all queries."""
    _check_step("count", count, 0)
    return Mask(lambda b, h, i, j: (i < count) | (j < count))


def longformer(reach: Any, globals: Any = 0, step: int = 1) -> Mask:
    """Beltagy et al. 2020: `reach` keys on either side, and the first `globals` tokens globally. With a step, the window has
    holes: it is as many keys, every step-th one, and reaches `reach · step` tokens to either side."""
    _check_step("reach", reach, 0)
    _check_step("globals", globals, 0)
    near = dilated(step, reach, reach) if step != 1 else window(reach, reach)
    return near | global_tokens(globals)


def bigbird(length: int, block: int, near: int = 1, globals: int = 1, random: int = 3, seed: int = 0) -> Mask:
    """Zaheer et al. 2020, in blocks of `block` tokens: `near` blocks on either side, the first `globals` blocks globally,
    and for each block of queries `random` others, drawn by `seed`; fewer where there are no more. The layout has the blocks of
    `length` tokens: shorter sequences have a part of it, longer ones are refused by the call."""
    import numpy

    _check_step("length", length, 0)
    _check_step("block", block)
    for name, number in (("near", near), ("globals", globals), ("random", random)):
        _check_step(name, number, 0)
    count = -(-length // block)
    place = numpy.arange(count)
    layout = abs(place[:, None] - place) <= near
    layout[:globals] = True
    layout[:, :globals] = True
    draw = numpy.random.default_rng(seed)
    for row in range(count):
        rest = numpy.flatnonzero(~layout[row])
        layout[row, draw.choice(rest, min(random, len(rest)), replace=False)] = True
    return Mask(lambda b, h, i, j: layout[i // block, j // block])


def swin(height: int, width: int, size: int, shift: int = 0) -> Mask:
    """Windows of size × size in an image of height × width tokens, row by row, moved by `shift` rows and columns (Liu et
    al. 2021): windows that reach over an edge go on at the opposite one, but the parts do not see each other. Windows at the far edges may be cut off.
    Positions behind the image see no key and are seen by no query."""
    for name, number in (("height", height), ("width", width), ("size", size)):
        _check_step(name, number)
    if not 0 <= shift < size:
        raise ValueError(f"shift is {shift}, expected 0 to {size - 1}, less than the size")
    tokens = height * width

    def same(x: Any, y: Any, extent: int) -> Any:
        x, y = (x + (extent - shift)) % extent, (y + (extent - shift)) % extent
        return (x // size == y // size) & ((x < extent - shift) == (y < extent - shift))

    return Mask(lambda b, h, i, j: (i < tokens) & (j < tokens)
                & same(i // width, j // width, height) & same(i % width, j % width, width))


def neighborhood(extents: int | Sequence[int], sizes: int | Sequence[int]) -> Mask:
    """Hassani et al. 2023, in one, two or three dimensions: tokens of a grid of these extents, the last one running
    fastest, see the window of `sizes` (odd numbers, one or one a dimension) around them, moved inwards at the edges.
    Positions behind the grid see no key and are seen by no query."""
    extents = (extents,) if isinstance(extents, int) else tuple(extents)
    sizes = (sizes,) * len(extents) if isinstance(sizes, int) else tuple(sizes)
    if not 1 <= len(extents) <= 3 or len(sizes) != len(extents):
        raise ValueError(f"got extents {extents} and sizes {sizes}, expected one, two or three of each")
    if any(size % 2 == 0 or not 0 < size <= extent for size, extent in zip(sizes, extents)):
        raise ValueError(f"sizes are {sizes}, expected odd numbers up to the extents {extents}")

    def near(x: Any, y: Any, extent: int, size: int) -> Any:
        reach = size // 2
        return ((abs(x - y) <= reach) | ((x < reach) & (y < size)) | ((x >= extent - reach) & (y >= extent - size)))

    tokens = math.prod(extents)

    def sees(b: Any, h: Any, i: Any, j: Any) -> Any:
        holds = (i < tokens) & (j < tokens)
        for axis in range(len(extents) - 1, -1, -1):
            x, y = (i, j) if axis == 0 else (i % extents[axis], j % extents[axis])
            one = near(x, y, extents[axis], sizes[axis])
            holds = holds & one
            i, j = i // extents[axis], j // extents[axis]
        return holds

    return Mask(sees)


def tree(parents: Sequence[int]) -> Mask:
    """Every node sees itself and its ancestors: parents[n] is the parent of node n, or -1 of a root. Nodes may be in any
    order. Positions that are no node are refused by the call."""
    import numpy

    up = [int(parent) for parent in parents]
    children: list[list[int]] = [[] for _ in up]
    roots = []
    for node, parent in enumerate(up):
        if not -1 <= parent < len(up):
            raise ValueError(f"parent of node {node} is {parent}, expected -1 to {len(up) - 1}")
        (roots if parent < 0 else children[parent]).append(node)
    # A node's descendants are those that a walk enters between entering and leaving it.
    enter = numpy.full(len(up), -1, numpy.int32)
    leave = numpy.zeros(len(up), numpy.int32)
    todo, clock = [(root, False) for root in reversed(roots)], 0
    while todo:
        node, is_done = todo.pop()
        if is_done:
            leave[node] = clock
            continue
        enter[node], clock = clock, clock + 1
        todo.append((node, True))
        todo += [(child, False) for child in reversed(children[node])]
    if clock < len(up):
        raise ValueError(f"node {int((enter < 0).argmax())} is its own ancestor")
    # What messages call as the caller does.
    parents, ends = _like(parents, enter), _like(parents, leave)
    mask = Mask(lambda b, h, i, j: (parents[j] <= parents[i]) & (parents[i] < ends[j]))
    # Where parents come first, nobody sees a later node: that is plainer to see.
    return mask & causal() if all(parent < node for node, parent in enumerate(up)) else mask
