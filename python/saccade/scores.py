"""The usual changes of scores, as functions (s, b, h, i, j) for `saccade.attention`: what becomes of the score s.

They are ordinary functions of the score and index scalars, and follow one another: `a >> b` does a, then b, where either
may be any such function. A number that changes from call to call, such as a learned one, is better a tensor without
dimensions, for which no new kernel is compiled; tensors are read as they are at each call. What is a tensor below may be a
list, too, which becomes a NumPy array; one score has tensors of torch or arrays of NumPy, not both. `offset` is the distance from
a query's number to that of its own key: 0 counts from the starts of both sequences, keys − queries from their ends.

    >>> saccade.attention(q, k, v, score=scores.alibi(slopes) >> scores.soft_cap(30.0), causal="top_left")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade import _arrays

__all__ = [
    "Score", "alibi", "alibi_slopes", "bias", "relative_bias", "shaw_keys", "soft_cap", "swin_bias", "t5_bias", "t5_buckets",
    "temperature",
]  # fmt: skip


class Score:
    """A score function with >>."""

    __slots__ = ("function", "heads")

    def __init__(self, function: Callable, heads: int | None = None):
        """`heads`: how many its tables are for, which a call then must have."""
        self.function = function.function if isinstance(function, Score) else function
        self.heads = function.heads if heads is None and isinstance(function, Score) else heads

    def __call__(self, s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.function(s, b, h, i, j)

    def __rshift__(self, other: Callable) -> Score:
        if not callable(other):
            return NotImplemented
        after = Score(other)
        if None not in (self.heads, after.heads) and self.heads != after.heads:
            raise ValueError(f"one score is for {self.heads} heads, the other for {after.heads}")
        first, second = self.function, after.function
        return Score(lambda s, b, h, i, j: second(first(s, b, h, i, j), b, h, i, j),
                     after.heads if self.heads is None else self.heads)

    def __rrshift__(self, other: Callable) -> Score:
        return Score(other) >> self if callable(other) else NotImplemented

    def __repr__(self) -> str:
        return f"saccade.scores.Score({getattr(self.function, '__qualname__', self.function)})"


# Without questions about their argument, whose answers nobody could foresee: functions that ask some are traced at each call.


def _tanh(x: Any) -> Any:
    try:
        return x.tanh()
    except AttributeError:
        import numpy

        return numpy.tanh(x)


def _clamp(x: Any, low: int, high: int) -> Any:
    try:
        return x.clamp(low, high)
    except AttributeError:
        import numpy

        return numpy.clip(x, low, high)


def _like(given: Any, array: Any) -> Any:
    """A NumPy array as a torch tensor where what the caller gave is one."""
    return _arrays.torch_module().from_numpy(array) if _arrays.is_torch(given) else array


def _table(name: str, given: Any, *ranks: int) -> Any:
    """A tensor or array of one of these ranks as it is, a sequence of numbers as a new NumPy array of float32."""
    import numpy

    array = numpy.asarray(given, numpy.float32) if isinstance(given, (list, tuple)) else given
    rank = getattr(array, "ndim", None)
    if rank not in ranks:
        what = f"{rank} dimensions" if rank is not None else f"{given!r:.40}"
        raise ValueError(f"{name} has {what}, expected {' or '.join(map(str, ranks))}")
    return array


def _number(name: str, given: Any) -> Any:
    """A number for all heads as it is, one for each of them as a tensor."""
    is_table = isinstance(given, (list, tuple)) or getattr(given, "ndim", 0) != 0
    return _table(name, given, 1) if is_table else given


# --- of the score alone -----------------------------------------------------------------------------------------------


def soft_cap(cap: Any) -> Score:
    """cap · tanh(s / cap), as Gemma 2 does (Bello et al. 2016): scores stay between −cap and cap. A number, a tensor without
    dimensions, or one [heads]."""
    cap = _number("cap", cap)
    if getattr(cap, "ndim", 0) == 1:
        return Score(lambda s, b, h, i, j: cap[h] * _tanh(s / cap[h]), len(cap))
    return Score(lambda s, b, h, i, j: cap * _tanh(s / cap))


def temperature(value: Any) -> Score:
    """s / value, with a value that may be learned: a number, a tensor without dimensions, or one [heads]."""
    value = _number("value", value)
    if getattr(value, "ndim", 0) == 1:
        return Score(lambda s, b, h, i, j: s / value[h], len(value))
    return Score(lambda s, b, h, i, j: s / value)


# --- of the distance --------------------------------------------------------------------------------------------------


def alibi_slopes(heads: int) -> Any:
    """The slopes of Press et al. 2022 as a NumPy array: a geometric sequence down to 2^-8; where the number of heads is no
    power of two, that of the next smaller one and every other slope of the next larger one."""
    import numpy

    if heads < 1:
        raise ValueError(f"heads is {heads}, expected 1 or more")
    whole = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (n + 1) / whole) for n in range(whole)]
    slopes += [2.0 ** (-4 * (n + 1) / whole) for n in range(0, 2 * (heads - whole), 2)]
    return numpy.array(slopes, numpy.float32)


def alibi(slopes: Any, symmetric: bool = False) -> Score:
    """s + slopes[h] · (j − i) (Press et al. 2022), for causal attention; symmetric: s − slopes[h] · |j − i|. slopes is a
    tensor [heads], such as `alibi_slopes` gives; whence positions are counted makes no difference, as every score of a
    query changes alike. The symmetric form counts from the starts of both sequences."""
    slopes = _table("slopes", slopes, 1)
    if symmetric:
        return Score(lambda s, b, h, i, j: s - slopes[h] * abs(j - i), len(slopes))
    return Score(lambda s, b, h, i, j: s + slopes[h] * (j - i), len(slopes))


def relative_bias(table: Any, offset: Any = 0) -> Score:
    """s + table[h, d + n] with the distance d = j − i − offset, no less than −n and no more than n: a tensor [heads,
    2 n + 1], or [2 n + 1] for all heads."""
    table = _table("table", table, 1, 2)
    if table.shape[-1] % 2 == 0:
        raise ValueError(f"table has {table.shape[-1]} distances, expected an odd number of them")
    most = table.shape[-1] // 2
    if table.ndim == 2:
        return Score(lambda s, b, h, i, j: s + table[h, _clamp(j - i - offset, -most, most) + most], len(table))
    return Score(lambda s, b, h, i, j: s + table[_clamp(j - i - offset, -most, most) + most])


def t5_buckets(buckets: int, max_distance: int = 128, bidirectional: bool = True) -> Any:
    """The bucket of each distance from −max_distance to max_distance (Raffel et al. 2020), a NumPy array of int32: near
    distances have one each, further ones share them by their logarithm. All beyond are in the last one."""
    import numpy

    near = (buckets // 2 if bidirectional else buckets) // 2
    if near < 1 or max_distance <= near:
        raise ValueError(f"got {buckets} buckets up to distance {max_distance}, expected {4 if bidirectional else 2} or more "
                         "and a distance beyond those that have one each")  # fmt: skip
    distance = numpy.arange(-max_distance, max_distance + 1)
    side = buckets // 2 if bidirectional else buckets
    base = numpy.where(distance > 0, side, 0) if bidirectional else 0
    magnitude = abs(distance) if bidirectional else numpy.maximum(-distance, 0)
    # In float32 and this order, as models have been trained.
    ratio = numpy.log(numpy.maximum(magnitude, 1).astype(numpy.float32) / numpy.float32(near))
    ratio = ratio / numpy.float32(math.log(max_distance / near)) * numpy.float32(side - near)
    far = numpy.minimum(near + ratio.astype(numpy.int64), side - 1)
    return (base + numpy.where(magnitude < near, magnitude, far)).astype(numpy.int32)


def t5_bias(table: Any, max_distance: int = 128, bidirectional: bool = True, offset: Any = 0) -> Score:
    """s + table[bucket, h], the bucket being that of the distance j − i − offset (`t5_buckets`): a tensor [buckets, heads], as
    T5's embedding has it. Encoders are bidirectional, decoders are not."""
    table = _table("table", table, 2)
    bucket = _like(table, t5_buckets(table.shape[0], max_distance, bidirectional))
    return Score(
        lambda s, b, h, i, j: s + table[bucket[_clamp(j - i - offset, -max_distance, max_distance) + max_distance], h],
        table.shape[1])


# --- of both positions ------------------------------------------------------------------------------------------------


def bias(table: Any) -> Score:
    """s + table, a tensor [queries, keys], [heads, queries, keys] or [batch, heads, queries, keys]."""
    table = _table("table", table, 2, 3, 4)
    if table.ndim == 2:
        return Score(lambda s, b, h, i, j: s + table[i, j])
    if table.ndim == 3:
        return Score(lambda s, b, h, i, j: s + table[h, i, j], len(table))
    return Score(lambda s, b, h, i, j: s + table[b, h, i, j], table.shape[1])


def swin_bias(table: Any, window: int | Sequence[int], width: int | None = None) -> Score:
    """Liu et al. 2021: s + the table's entry for the distance of two tokens of a window in rows and columns. table is a tensor
    [(2 · rows − 1) · (2 · columns − 1), heads], `window` its extents, one number for both.

    Without `width` a sequence is one window, row by row (windows are batches): the table is spread out over pairs of its
    tokens here and now, so call this again when it has changed. With `width` a sequence is an image of that many columns,
    and windows are what the mask leaves (`masks.swin`)."""
    rows, columns = (window, window) if isinstance(window, int) else window
    table = _table("table", table, 2)
    if table.shape[0] != (2 * rows - 1) * (2 * columns - 1):
        raise ValueError(f"table has {table.shape[0]} entries, expected {(2 * rows - 1) * (2 * columns - 1)} for a window of "
                         f"{rows} × {columns}")  # fmt: skip

    def index(i: Any, j: Any, width: int) -> Any:
        down, right = j // width - i // width, j % width - i % width
        return (rows - 1 - down) * (2 * columns - 1) + columns - 1 - right

    if width is not None:
        return Score(lambda s, b, h, i, j: s + table[index(i, j, width), h], table.shape[1])
    import numpy

    place = numpy.arange(rows * columns)
    spread = table[_like(table, index(place[:, None], place, columns))]
    if _arrays.is_torch(table):
        return bias(spread.permute(2, 0, 1).contiguous())
    return bias(numpy.ascontiguousarray(spread.transpose(2, 0, 1)))


def shaw_keys(products: Any, scale: float, offset: Any = 0) -> Score:
    """The key side of Shaw et al. 2018: s + scale · products[b, h, i, d + n] with the distance d = j − i − offset, no less
    than −n and no more than n. products, [batch, heads, queries, 2 n + 1], are q times the embeddings of distances, a product
    of matrices made before; scale is that of the scores, usually 1/sqrt(head size)."""
    products = _table("products", products, 4)
    if products.shape[-1] % 2 == 0:
        raise ValueError(f"products have {products.shape[-1]} distances, expected an odd number of them")
    most = products.shape[-1] // 2
    return Score(lambda s, b, h, i, j: s + scale * products[b, h, i, _clamp(j - i - offset, -most, most) + most],
                 products.shape[1])
