"""Mask functions (b, h, i, j) for `saccade.attention`: whether query i attends to key j in head h of batch b.

They are ordinary functions of index scalars and combine with `&`, `|` and `~`, also with user-defined functions that
return booleans. Positions count from 0 in queries and keys. Scalar parameters may change between calls without a new
kernel, except for dilations, strides, block sizes and shapes; a 0-d tensor may always change. Tensor parameters may
also be lists, which become NumPy arrays.

    >>> saccade.attention(q, k, v, mask=masks.causal() & masks.documents(ids) | masks.global_tokens(4))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade import _arrays, _parameters

__all__ = [
    "Mask", "bigbird", "block_sparse", "causal", "dilated", "documents", "global_tokens", "longformer", "neighborhood",
    "padding", "prefix_lm", "ragged", "strided", "swin", "tree", "window",
]  # fmt: skip


class Mask:
    """A mask function with &, | and ~. Called with integers or arrays of them, it returns which pairs are kept."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[..., Any]):
        self.function: Callable[..., Any] = function.function if isinstance(function, Mask) else function

    def __call__(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.function(b, h, i, j)

    def __and__(self, other: Callable[..., Any]) -> Mask:
        return _combine(self, other, lambda f, g: lambda b, h, i, j: f(b, h, i, j) & g(b, h, i, j))

    def __or__(self, other: Callable[..., Any]) -> Mask:
        return _combine(self, other, lambda f, g: lambda b, h, i, j: f(b, h, i, j) | g(b, h, i, j))

    def __rand__(self, other: Callable[..., Any]) -> Mask:
        return Mask(other) & self if callable(other) else NotImplemented

    def __ror__(self, other: Callable[..., Any]) -> Mask:
        return Mask(other) | self if callable(other) else NotImplemented

    def __invert__(self) -> Mask:
        function = self.function
        return Mask(lambda b, h, i, j: function(b, h, i, j) ^ True)

    def __bool__(self) -> bool:
        raise TypeError("a mask has no truth value: combine masks with &, | and ~, not with 'and', 'or' and 'not'")

    def __repr__(self) -> str:
        return f"saccade.masks.Mask({getattr(self.function, '__qualname__', self.function)})"


def _combine(lhs: Mask, rhs: Callable[..., Any], join: Callable[..., Any]) -> Mask:
    if not callable(rhs):
        return NotImplemented
    return Mask(join(lhs.function, Mask(rhs).function))


def _table(name: str, given: Any, *ranks: int) -> Any:
    """Returns a tensor or array of one of these ranks unchanged, a sequence of numbers as a new NumPy array."""
    import numpy

    if isinstance(given, (list, tuple)):
        _parameters.elements(name, given, are_integers=True)
    array = numpy.asarray(given, numpy.int32) if isinstance(given, (list, tuple, range)) else given
    rank = getattr(array, "ndim", None)
    if rank not in ranks:
        is_scalar = f"is {given!r:.60}, expected a tensor with"
        found = is_scalar if rank is None else f"has {_arrays.dimensions(rank)}, expected"
        raise ValueError(f"{name} {found} {' or '.join(map(str, ranks))}")
    return array


def _check_sides(left: Any, right: Any) -> None:
    """Rejects the sides of a window of numbers that has no key. Infinity is an open side."""
    are_known = True
    for name, side in (("left", left), ("right", right)):
        are_known &= not _parameters.is_data(side)
        if side != math.inf if type(side) is float else True:
            _parameters.fixed_integer(name, side)
    if are_known and left + right < 0:
        raise ValueError(f"left is {left} and right is {right}, which masks out all keys, expected a sum of at least 0")


def causal(offset: Any = 0) -> Mask:
    """Keys up to key i + offset. An offset of 0 aligns the starts of both sequences, keys − queries their ends."""
    _parameters.fixed_integer("offset", offset)
    return Mask(lambda b, h, i, j: j <= i + offset)


def window(left: Any, right: Any = 0) -> Mask:
    """Keys i − left to i + right. One of both may be negative: window(-1, 4) starts after the query's position."""
    _check_sides(left, right)
    return Mask(lambda b, h, i, j: (j >= i - left) & (j <= i + right))


def dilated(dilation: Any, left: Any, right: Any = 0) -> Mask:
    """Every `dilation`-th key around the query's position: `left` keys before it and `right` keys after it, that is
    from key i − left · dilation to i + right · dilation. A `dilation` given as a tensor must not be 0."""
    _parameters.fixed_integer("dilation", dilation, 1)
    _check_sides(left, right)
    return Mask(lambda b, h, i, j:
                ((i - j) % dilation == 0) & (j >= i - left * dilation) & (j <= i + right * dilation))


def strided(stride: Any, local: Any | None = None) -> Mask:
    """The strided pattern of Child et al. 2019, causal: the last `local` keys including the query's own (default:
    `stride`), and every stride-th key before. A `stride` given as a tensor must not be 0."""
    _parameters.fixed_integer("stride", stride, 1)
    near = stride if local is None else local
    _parameters.fixed_integer("local", near, 0)
    return Mask(lambda b, h, i, j: (j <= i) & ((i - j < near) | ((i - j) % stride == 0)))


def block_sparse(layout: Any, query_block: int, key_block: int | None = None) -> Mask:
    """Blocks of a layout: pair (i, j) is kept if layout[i // query_block, j // key_block] is not 0.

    Args:
        layout: booleans or integers [query blocks, key blocks] or [heads, query blocks, key blocks]. The call rejects a
            layout that is too small for the sequences.
        query_block, key_block: block sizes in tokens; `key_block` defaults to `query_block`.
    """
    size = query_block if key_block is None else key_block
    _parameters.fixed_integer("query_block", query_block, 1)
    _parameters.fixed_integer("key_block", size, 1)
    layout = _table("layout", layout, 2, 3)
    if layout.ndim == 3:
        return Mask(lambda b, h, i, j: layout[h, i // query_block, j // size] != 0)
    return Mask(lambda b, h, i, j: layout[i // query_block, j // size] != 0)


def prefix_lm(prefix: Any) -> Mask:
    """A causal mask under which every query also attends to the first `prefix` keys, a scalar or a tensor [batch]."""
    if isinstance(prefix, (list, tuple)) or getattr(prefix, "ndim", 0) != 0:
        prefix = _table("prefix", prefix, 1)
        return Mask(lambda b, h, i, j: (j <= i) | (j < prefix[b]))
    _parameters.fixed_integer("prefix", prefix, 0)
    return Mask(lambda b, h, i, j: (j <= i) | (j < prefix))


def padding(lengths: Any) -> Mask:
    """The first lengths[b] keys of each batch. `kv_len` is equivalent and does not read the other keys."""
    lengths = _table("lengths", lengths, 1)
    return Mask(lambda b, h, i, j: j < lengths[b])


def documents(ids: Any, key_ids: Any | None = None) -> Mask:
    """Keys of the query's own document.

    Args:
        ids: integers [length] or [batch, length], the document of each position. Documents need not be contiguous. The
            call rejects positions without an id.
        key_ids: the same for keys if they differ from the queries; `ids` are then those of the queries.
    """
    ids = _table("ids", ids, 1, 2)
    key_ids = ids if key_ids is None else _table("key_ids", key_ids, ids.ndim)
    if ids.ndim == 2:
        return Mask(lambda b, h, i, j: ids[b, i] == key_ids[b, j])
    return Mask(lambda b, h, i, j: ids[i] == key_ids[j])


def ragged(cu_seqlens: Any) -> Mask:
    """Sequences stored one after another, each attending to itself only.

    Args:
        cu_seqlens: cumulative sequence lengths, a tensor or sequence of integers that ascends from 0 to the length. The
            call rejects positions after the last sequence.
    """
    import numpy

    bounds = _integers("cu_seqlens", cu_seqlens)
    if bounds.ndim != 1 or len(bounds) < 2 or bounds[0] != 0 or (numpy.diff(bounds) < 0).any():
        raise ValueError(f"cu_seqlens is {cu_seqlens!r:.80}, expected ascending integers from 0 to the length")
    # Error messages name the variable, so it has the name of the parameter.
    sequence = numpy.repeat(numpy.arange(len(bounds) - 1, dtype=numpy.int32), numpy.diff(bounds))
    cu_seqlens = _like(cu_seqlens, sequence)
    return Mask(lambda b, h, i, j: cu_seqlens[i] == cu_seqlens[j])


def _integers(name: str, given: Any) -> Any:
    """A tensor, an array or a list of integers as a NumPy array."""
    import numpy

    if isinstance(given, (list, tuple)):
        _parameters.elements(name, given, are_integers=True)
        given = numpy.asarray(given, numpy.int64)
    if _arrays.is_torch(given):
        _arrays.check_torch(name, given, given.device.type if given.is_cuda else "cpu")
        given = given.cpu()
    array = numpy.asarray(given)
    if array.dtype.kind not in "iu":
        found = f"{given!r:.60}" if array.ndim == 0 else f"of element type {array.dtype}"
        raise TypeError(f"{name} is {found}, expected integers")
    return array


def _like(given: Any, array: Any) -> Any:
    """Converts a new NumPy array to a torch tensor on the device of the caller's argument if that is one."""
    return _arrays.torch_module().from_numpy(array).to(given.device) if _arrays.is_torch(given) else array


def global_tokens(count: Any) -> Mask:
    """The first `count` positions attend to all keys, and all queries attend to them."""
    _parameters.fixed_integer("count", count, 0)
    return Mask(lambda b, h, i, j: (i < count) | (j < count))


def longformer(radius: Any, num_global: Any = 0, dilation: int = 1) -> Mask:
    """Longformer (Beltagy et al. 2020): `radius` keys on either side, and the first `num_global` tokens as global
    tokens. With a `dilation`, the window takes every dilation-th key and extends over radius · dilation tokens on
    either side."""
    _parameters.fixed_integer("radius", radius, 0)
    _parameters.fixed_integer("num_global", num_global, 0)
    dilation = _parameters.integer("dilation", dilation, 1)
    local = dilated(dilation, radius, radius) if dilation != 1 else window(radius, radius)
    return local | global_tokens(num_global)


def bigbird(length: int, block_size: int, radius: int = 1, num_global_blocks: int = 1, num_random_blocks: int = 3,
            seed: int = 0) -> Mask:
    """BigBird (Zaheer et al. 2020), in blocks of `block_size` tokens.

    Args:
        length: the maximum length in tokens; the call rejects longer sequences.
        radius: blocks attended to on either side.
        num_global_blocks: leading blocks that are global.
        num_random_blocks: further key blocks drawn for each block of queries, fewer if no more are left.
        seed: of the random blocks.
    """
    import numpy

    length, block_size = _parameters.integer("length", length, 0), _parameters.integer("block_size", block_size, 1)
    radius, seed = _parameters.integer("radius", radius, 0), _parameters.integer("seed", seed, 0)
    num_global_blocks = _parameters.integer("num_global_blocks", num_global_blocks, 0)
    num_random_blocks = _parameters.integer("num_random_blocks", num_random_blocks, 0)
    count = -(-length // block_size)
    place = numpy.arange(count)
    layout = abs(place[:, None] - place) <= radius
    layout[:num_global_blocks] = True
    layout[:, :num_global_blocks] = True
    draw = numpy.random.default_rng(seed)
    for row in range(count):
        rest = numpy.flatnonzero(~layout[row])
        layout[row, draw.choice(rest, min(num_random_blocks, len(rest)), replace=False)] = True
    return Mask(lambda b, h, i, j: layout[i // block_size, j // block_size])


def swin(height: int, width: int, window_size: int, shift_size: int = 0) -> Mask:
    """Shifted windows (Liu et al. 2021) of window_size × window_size tokens in an image of height × width tokens in
    row-major order, shifted by `shift_size` rows and columns. Windows wrap around the edges, but their parts do not
    attend to each other. Windows at the bottom and right edges may be truncated. Positions after the image are masked
    out as queries and as keys."""
    height, width = _parameters.integer("height", height, 1), _parameters.integer("width", width, 1)
    window_size = _parameters.integer("window_size", window_size, 1)
    shift_size = _parameters.integer("shift_size", shift_size)
    if not 0 <= shift_size < window_size:
        raise ValueError(f"shift_size is {shift_size}, expected 0 to {window_size - 1}, less than window_size")
    tokens = height * width

    def same(x: Any, y: Any, extent: int) -> Any:
        x, y = (x + (extent - shift_size)) % extent, (y + (extent - shift_size)) % extent
        is_same_side = (x < extent - shift_size) == (y < extent - shift_size)
        return (x // window_size == y // window_size) & is_same_side

    return Mask(lambda b, h, i, j: (i < tokens) & (j < tokens)
                & same(i // width, j // width, height) & same(i % width, j % width, width))


def neighborhood(shape: int | Sequence[int], kernel_size: int | Sequence[int]) -> Mask:
    """Neighborhood attention (Hassani et al. 2023) in one, two or three dimensions: tokens of a row-major grid of this
    shape attend to the window of `kernel_size` (odd, one for all dimensions or one each) around them, moved inwards at
    the edges. Positions after the grid are masked out as queries and as keys."""
    extents: tuple[Any, ...] = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    is_one = not isinstance(kernel_size, (tuple, list))
    sizes: tuple[Any, ...] = (kernel_size,) * len(extents) if is_one else tuple(kernel_size)  # type: ignore[arg-type]
    for name, numbers in (("shape", extents), ("kernel_size", sizes)):
        for number in numbers:
            _parameters.integer(name, number)
    if not 1 <= len(extents) <= 3 or len(sizes) != len(extents):
        raise ValueError(f"shape is {extents} and kernel_size {sizes}, expected one, two or three of each")
    if any(size % 2 == 0 or not 0 < size <= extent for size, extent in zip(sizes, extents)):
        raise ValueError(f"kernel_size is {sizes}, expected odd numbers up to the shape {extents}")

    def near(x: Any, y: Any, extent: int, size: int) -> Any:
        half = size // 2
        return (abs(x - y) <= half) | ((x < half) & (y < size)) | ((x >= extent - half) & (y >= extent - size))

    tokens = math.prod(extents)

    def attends(b: Any, h: Any, i: Any, j: Any) -> Any:
        holds = (i < tokens) & (j < tokens)
        for axis in range(len(extents) - 1, -1, -1):
            x, y = (i, j) if axis == 0 else (i % extents[axis], j % extents[axis])
            holds = holds & near(x, y, extents[axis], sizes[axis])
            i, j = i // extents[axis], j // extents[axis]
        return holds

    return Mask(attends)


def tree(parents: Any, start: Any | None = None) -> Mask:
    """Every node attends to itself and its ancestors.

    Args:
        parents: parents[n] is the parent of node n, or -1 for a root; [nodes], or [batch, nodes] for a tree of each
            batch. Nodes may be in any order. The call rejects positions that are not nodes.
        start: the nodes are the queries, and the keys from position `start` on: drafts after a cache. All of them
            attend to the keys before, none to those after. A scalar or a tensor [batch]. None: the nodes are both.
    """
    import numpy

    given = _integers("parents", parents)
    if given.ndim not in (1, 2):
        raise ValueError(f"parents has {_arrays.dimensions(given.ndim)}, expected 1 or 2")
    rows = given if given.ndim == 2 else given[None]
    enter, leave = (numpy.array(x, numpy.int32).reshape(given.shape)
                    for x in zip(*(_intervals(row) for row in rows.tolist())))  # fmt: skip
    # If all parents precede their children, no query attends to a later key: the causal mask is easier to analyze.
    is_sorted = bool((rows < numpy.arange(rows.shape[1])).all())
    # Error messages name the variable, so it has the name of the parameter.
    parents, ends = _like(parents, enter), _like(parents, leave)
    if given.ndim == 2:
        mask = Mask(lambda b, h, i, j: (parents[b, j] <= parents[b, i]) & (parents[b, i] < ends[b, j]))
    else:
        mask = Mask(lambda b, h, i, j: (parents[j] <= parents[i]) & (parents[i] < ends[j]))
    if is_sorted:
        mask &= causal()
    if start is None:
        return mask
    among, nodes = mask.function, rows.shape[1]

    def after(first: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        is_node = (j >= first) & (j < first + nodes)
        return (j < first) | (is_node & among(b, h, i, (j - first) * is_node))

    if isinstance(start, (list, tuple)) or getattr(start, "ndim", 0) != 0:
        start = _table("start", start, 1)
        return Mask(lambda b, h, i, j: after(start[b], b, h, i, j))
    _parameters.fixed_integer("start", start, 0)
    return Mask(lambda b, h, i, j: after(start, b, h, i, j))


def _intervals(parents: list[int]) -> tuple[list[int], list[int]]:
    """The times at which a walk through a tree enters and leaves each node. The descendants of a node are the nodes
    entered between its own two times."""
    children: list[list[int]] = [[] for _ in parents]
    roots: list[int] = []
    for node, parent in enumerate(parents):
        if not -1 <= parent < len(parents):
            raise ValueError(f"parents is wrong: parent of node {node} is {parent}, expected -1 to {len(parents) - 1}")
        (roots if parent < 0 else children[parent]).append(node)
    enter, leave = [-1] * len(parents), [0] * len(parents)
    todo, clock = [(root, False) for root in reversed(roots)], 0
    while todo:
        node, is_done = todo.pop()
        if is_done:
            leave[node] = clock
            continue
        enter[node], clock = clock, clock + 1
        todo.append((node, True))
        todo += [(child, False) for child in reversed(children[node])]
    if clock < len(parents):
        raise ValueError(f"parents has a cycle: node {enter.index(-1)} is its own ancestor")
    return enter, leave
