"""Score functions (s, b, h, i, j) for `saccade.attention`: the new score for the scaled score s of query i and key j.

They are ordinary functions of the score and index scalars; `a >> b` applies a, then b, and either may be a user-defined
function. Scalars and tensors are read at each call: `cap`, `value`, `scale` and `offset` may change without a new
kernel. Tensor parameters may also be lists, which become NumPy arrays. Numbers for which a function has no meaning, and
NaN, are refused; elements of tensors are data. `offset` aligns queries to keys: query i is at
position i + offset, so 0 aligns the starts of both sequences and keys − queries their ends.

    >>> saccade.attention(q, k, v, score=scores.alibi(slopes) >> scores.soft_cap(30.0), causal="top_left")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from saccade import _arrays, _parameters

__all__ = [
    "Score", "alibi", "alibi_slopes", "bias", "relative_bias", "shaw_bias", "soft_cap", "swin_bias", "t5_bias",
    "t5_buckets", "temperature",
]  # fmt: skip


class Score:
    """A score function with >>, its composition."""

    __slots__ = ("function", "heads")

    def __init__(self, function: Callable[..., Any], heads: int | None = None):
        """Wraps a function (s, b, h, i, j), or copies a Score. `heads` is the number of heads that captured tensors are
        for; a call must have as many."""
        self.function: Callable[..., Any] = function.function if isinstance(function, Score) else function
        self.heads: int | None = function.heads if heads is None and isinstance(function, Score) else heads

    def __call__(self, s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return self.function(s, b, h, i, j)

    def __rshift__(self, other: Callable[..., Any]) -> Score:
        if not callable(other):
            return NotImplemented
        after = Score(other)
        if None not in (self.heads, after.heads) and self.heads != after.heads:
            raise ValueError(f"one score is for {self.heads} heads, the other for {after.heads}")
        first, second = self.function, after.function
        return Score(lambda s, b, h, i, j: second(first(s, b, h, i, j), b, h, i, j),
                     after.heads if self.heads is None else self.heads)

    def __rrshift__(self, other: Callable[..., Any]) -> Score:
        return Score(other) >> self if callable(other) else NotImplemented

    def __repr__(self) -> str:
        return f"saccade.scores.Score({getattr(self.function, '__qualname__', self.function)})"


# These avoid isinstance and hasattr: a function that uses them has no fingerprint and is traced at each call.


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


def _where(condition: Any, x: Any, y: Any) -> Any:
    try:
        return x.where(condition, y)
    except AttributeError:
        import numpy

        return numpy.where(condition, x, y)


def _like(given: Any, array: Any) -> Any:
    """Converts a new NumPy array to a torch tensor on the device of the caller's argument if that is one."""
    return _arrays.torch_module().from_numpy(array).to(given.device) if _arrays.is_torch(given) else array


def _table(name: str, given: Any, *ranks: int) -> Any:
    """Returns a tensor or array of one of these ranks unchanged, a sequence of numbers as a new float32 NumPy array."""
    import numpy

    if isinstance(given, (list, tuple)):
        _parameters.elements(name, given, are_integers=False)
    array = numpy.asarray(given, numpy.float32) if isinstance(given, (list, tuple)) else given
    rank = getattr(array, "ndim", None)
    if rank not in ranks:
        expected = " or ".join(map(str, ranks))
        if rank is None:
            raise ValueError(f"{name} is {given!r:.60}, expected a tensor of {expected} dimensions")
        raise ValueError(f"{name} has {_arrays.dimensions(rank)}, expected {expected}")
    return array


def _number(name: str, given: Any, check: Callable[[str, Any], float]) -> Any:
    """Returns a scalar for all heads unchanged, one value per head as a tensor. Numbers are checked."""
    if isinstance(given, (list, tuple)):
        for i, each in enumerate(given):
            check(f"{name}[{i}]", each)
        return _table(name, given, 1)
    if not _parameters.is_data(given):
        check(name, given)
        return given
    return _table(name, given, 1) if given.ndim else given


# --- functions of the score -------------------------------------------------------------------------------------------


def soft_cap(cap: Any) -> Score:
    """cap · tanh(s / cap) as in Gemma 2 (Bello et al. 2016): bounds scores by ±cap. `cap` is a scalar, a 0-d tensor or
    a tensor [heads]. 0 leaves scores as they are, as in FlashAttention. Raises ValueError for a number that is
    negative, NaN or infinite."""
    cap = _number("cap", cap, _parameters.soft_cap)
    if not _parameters.is_data(cap):
        if cap == 0:
            return Score(lambda s, b, h, i, j: s)
        return Score(lambda s, b, h, i, j: cap * _tanh(s / cap))
    if cap.ndim == 1:
        return Score(lambda s, b, h, i, j: _capped(s, cap[h]), len(cap))
    return Score(lambda s, b, h, i, j: _capped(s, cap[()]))


def _capped(s: Any, cap: Any) -> Any:
    """The score with a cap that may be 0 in one call and not in another."""
    is_on = cap != 0
    return _where(is_on, cap * _tanh(s / _where(is_on, cap, cap + 1)), s)


def temperature(value: Any) -> Score:
    """s / value. `value`, which may be learned, is a scalar, a 0-d tensor or a tensor [heads]. Raises ValueError for a
    number that is not above 0, NaN or infinite."""
    value = _number("value", value, _parameters.positive)
    if getattr(value, "ndim", 0) == 1:
        return Score(lambda s, b, h, i, j: s / value[h], len(value))
    return Score(lambda s, b, h, i, j: s / value)


# --- functions of the distance ----------------------------------------------------------------------------------------


def alibi_slopes(heads: int) -> Any:
    """The slopes of Press et al. 2022 as a NumPy array: a geometric sequence down to 2^-8. If `heads` is no power of
    two, these are the slopes for the next smaller power of two and every other slope for the next larger one."""
    import numpy

    heads = _parameters.integer("heads", heads)
    if heads < 1:
        raise ValueError(f"heads is {heads}, expected 1 or more")
    whole = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (n + 1) / whole) for n in range(whole)]
    slopes += [2.0 ** (-4 * (n + 1) / whole) for n in range(0, 2 * (heads - whole), 2)]
    return numpy.array(slopes, numpy.float32)


def alibi(slopes: Any, symmetric: bool = False) -> Score:
    """ALiBi (Press et al. 2022): s + slopes[h] · (j − i) for causal attention, or symmetric: s − slopes[h] · |j − i|.

    Args:
        slopes: a tensor [heads], for example from `alibi_slopes`.
        symmetric: uses the absolute distance. It aligns the starts of both sequences; the other form adds the same
            value to all scores of a query for any alignment, so it needs none.
    """
    slopes = _table("slopes", slopes, 1)
    if symmetric:
        return Score(lambda s, b, h, i, j: s - slopes[h] * abs(j - i), len(slopes))
    return Score(lambda s, b, h, i, j: s + slopes[h] * (j - i), len(slopes))


def relative_bias(table: Any, offset: Any = 0) -> Score:
    """s + table[h, d + n] for the distance d = j − i − offset, clamped to −n ... n.

    Args:
        table: a tensor [heads, 2 n + 1], or [2 n + 1] for all heads.
        offset: the alignment of queries to keys.
    """
    table = _table("table", table, 1, 2)
    _parameters.fixed_integer("offset", offset)
    if table.shape[-1] % 2 == 0:
        raise ValueError(f"table has {table.shape[-1]} distances, expected an odd number of them")
    limit = table.shape[-1] // 2
    if table.ndim == 2:
        return Score(lambda s, b, h, i, j: s + table[h, _clamp(j - i - offset, -limit, limit) + limit], len(table))
    return Score(lambda s, b, h, i, j: s + table[_clamp(j - i - offset, -limit, limit) + limit])


def t5_buckets(buckets: int, max_distance: int = 128, bidirectional: bool = True) -> Any:
    """The bucket of each distance from −max_distance to max_distance (Raffel et al. 2020), an int32 NumPy array. Small
    distances have one bucket each, larger ones share logarithmic buckets; the last one takes all distances beyond."""
    import numpy

    buckets = _parameters.integer("buckets", buckets)
    max_distance = _parameters.integer("max_distance", max_distance)
    near = (buckets // 2 if bidirectional else buckets) // 2
    if near < 1 or max_distance <= near:
        raise ValueError(f"found {buckets} buckets up to distance {max_distance}, expected "
                         f"{4 if bidirectional else 2} or more and a distance above {max(near, 0)}")  # fmt: skip
    distance = numpy.arange(-max_distance, max_distance + 1)
    side = buckets // 2 if bidirectional else buckets
    base = numpy.where(distance > 0, side, 0) if bidirectional else 0
    magnitude = abs(distance) if bidirectional else numpy.maximum(-distance, 0)
    # float32 and this order of operations match the buckets of trained models.
    ratio = numpy.log(numpy.maximum(magnitude, 1).astype(numpy.float32) / numpy.float32(near))
    ratio = ratio / numpy.float32(math.log(max_distance / near)) * numpy.float32(side - near)
    far = numpy.minimum(near + ratio.astype(numpy.int64), side - 1)
    return (base + numpy.where(magnitude < near, magnitude, far)).astype(numpy.int32)


def t5_bias(table: Any, max_distance: int = 128, bidirectional: bool = True, offset: Any = 0) -> Score:
    """T5's relative position bias: s + table[bucket, h] for the bucket of the distance j − i − offset (`t5_buckets`).

    Args:
        table: a tensor [buckets, heads], the layout of T5's embedding.
        max_distance, bidirectional: as in `t5_buckets`; encoders are bidirectional, decoders are not.
        offset: the alignment of queries to keys.
    """
    table = _table("table", table, 2)
    _parameters.fixed_integer("offset", offset)
    bucket = _like(table, t5_buckets(table.shape[0], max_distance, bidirectional))
    return Score(
        lambda s, b, h, i, j: s + table[bucket[_clamp(j - i - offset, -max_distance, max_distance) + max_distance], h],
        table.shape[1])


# --- functions of both positions --------------------------------------------------------------------------------------


def bias(table: Any) -> Score:
    """s + table, a tensor [queries, keys], [heads, queries, keys] or [batch, heads, queries, keys]."""
    table = _table("table", table, 2, 3, 4)
    if table.ndim == 2:
        return Score(lambda s, b, h, i, j: s + table[i, j])
    if table.ndim == 3:
        return Score(lambda s, b, h, i, j: s + table[h, i, j], len(table))
    return Score(lambda s, b, h, i, j: s + table[b, h, i, j], table.shape[1])


def swin_bias(table: Any, window: int | Sequence[int], width: int | None = None) -> Score:
    """Swin's relative position bias (Liu et al. 2021): s plus the table's entry for the distance of two tokens of a
    window in rows and columns.

    Args:
        table: a tensor [(2 · rows − 1) · (2 · columns − 1), heads].
        window: (rows, columns), or one integer for both.
        width: None if each sequence is one window in row-major order (windows are batches). The table is then expanded
            over all pairs of tokens at once; call this function again after it changes. Otherwise each sequence is an
            image with this many columns, and `masks.swin` restricts attention to the windows.
    """
    if isinstance(window, Sequence) and len(window) != 2:
        raise ValueError(f"window has {len(window)} numbers, expected 2: (rows, columns)")
    rows, columns = (_parameters.integer("window", n, 1)
                     for n in (window if isinstance(window, Sequence) else (window, window)))  # fmt: skip
    if width is not None:
        width = _parameters.integer("width", width, 1)
    table = _table("table", table, 2)
    if table.shape[0] != (2 * rows - 1) * (2 * columns - 1):
        raise ValueError(f"table has {table.shape[0]} entries, expected {(2 * rows - 1) * (2 * columns - 1)} for a "
                         f"window of {rows} × {columns}")

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


def shaw_bias(relative_logits: Any, scale: float, offset: Any = 0) -> Score:
    """Relative position representations on the key side (Shaw et al. 2018): s + scale · relative_logits[b, h, i, d + n]
    for the distance d = j − i − offset, clamped to −n ... n.

    Args:
        relative_logits: a tensor [batch, heads, queries, 2 n + 1], the matmul of the queries and the distance
            embeddings.
        scale: the scale of the scores, usually 1/sqrt(head dimension).
        offset: the alignment of queries to keys.
    """
    relative_logits = _table("relative_logits", relative_logits, 4)
    if not _parameters.is_data(scale):
        _parameters.number("scale", scale)
    _parameters.fixed_integer("offset", offset)
    if relative_logits.shape[-1] % 2 == 0:
        raise ValueError(f"relative_logits has {relative_logits.shape[-1]} distances, expected an odd number of them")
    limit = relative_logits.shape[-1] // 2
    return Score(
        lambda s, b, h, i, j: s + scale * relative_logits[b, h, i, _clamp(j - i - offset, -limit, limit) + limit],
        relative_logits.shape[1])
