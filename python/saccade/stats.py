"""Statistics of the softmax weights of `saccade.attention`, which its kernel computes beside the output.

A statistic is a name or the result of a function of this module, and `stats=` takes a sequence of them:

    >>> output, found = saccade.attention(q, k, v, causal="top_left", stats=("entropy", saccade.stats.sink(1)))
    >>> found.entropy, found.sink

Weights are those of the softmax, before `weight` and dropout. The sink of a call takes part in the softmax and is no
key. Results are float32 (float64 for float64 inputs) and have the dimensions of the log-sum-exp, [batch, heads,
queries] in the default layout; several numbers for a query are one more dimension, the last. A query without keys has
zeros. All have gradients but the maximum and its key.

The entropy is log-sum-exp - sum p s, so its error is that of scores: about 2^-22 times the largest score.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from saccade import _arrays, _gpu, _parameters, _received
from saccade._stats_call import Call, Tallies, Tally, blocks_of

__all__ = [
    "Statistic", "Statistics", "argmax", "band", "diagonal", "distance", "effective_keys", "entropy", "heatmap", "max",
    "received", "segments", "sink", "tally",
]  # fmt: skip


class Found(NamedTuple):
    """What the kernel returned for a statistic."""

    lse: Any
    max: Any
    argmax: Any
    tallies: tuple[Any, ...]


class Statistic(NamedTuple):
    """A statistic of weights: what the kernel adds up for it, and what is computed from that."""

    name: str
    tallies: Callable[[Call], tuple[Tally, ...]]
    finish: Callable[[Call, Found], dict[str, Any]]
    """The results by their names."""
    needs_lse: bool = False
    needs_max: bool = False
    needs_argmax: bool = False
    over: str = "queries"
    """What the rows of the results are: "queries", "keys" or "blocks" of queries."""

    def rows_of(self, call: Call) -> str:
        """The dimensions that its results begin with: "b", "h", "s" for queries, "k" for keys."""
        return call.rows.replace("s", {"queries": "s", "keys": "k", "blocks": ""}[self.over])

    def named(self, name: str) -> Statistic:
        """The same under another name, such as `band(64).named("wide")`."""
        if not isinstance(name, str) or not name.isidentifier():
            raise ValueError(f"name is {name!r:.60}, expected an identifier")
        old, finish = self.name, self.finish
        return self._replace(name=name, finish=lambda call, found: {
            name + key.removeprefix(old) if key.startswith(old) else key: x for key, x in finish(call, found).items()})


class Statistics(Mapping[str, Any]):
    """The statistics of one call by their names, which are attributes too."""

    def __init__(self, values: dict[str, Any], rows: dict[str, str], maxima: frozenset[str]):
        """`rows` has the dimensions of each array that `over` reduces, of "b", "h" and "s" for queries; others follow.
        `maxima` are those of which it takes the maximum."""
        self._values, self._rows, self._maxima = values, rows, maxima

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also before there are values, in a copy
            raise AttributeError(name)
        if name not in self._values:
            raise AttributeError(f"the call has no statistic {name!r}, but {', '.join(self._values)}")
        return self._values[name]

    def __repr__(self) -> str:
        shapes = [f"{name}{list(x.shape)}" if hasattr(x, "shape") else f"{name}={x}" for name, x in self.items()]
        return f"Statistics({', '.join(shapes)})"

    def mapped(self, function: Callable[[Any], Any]) -> Statistics:
        """The same with a function of each array."""
        return Statistics({name: function(x) if hasattr(x, "shape") else x for name, x in self.items()}, self._rows,
                          self._maxima)

    def over(self, *dimensions: str) -> Statistics:
        """Means over some of "batch", "head" and "query"; of `max`, the maximum. `argmax` is left out. `heatmap` and
        `received` have no queries."""
        letters = {"batch": "b", "head": "h", "query": "s"}
        for name in dimensions:
            if name not in letters:
                raise ValueError(f"found {name!r}, expected one of {', '.join(letters)}")
        letters_out = {letters[name] for name in dimensions}
        values: dict[str, Any] = {}
        rows: dict[str, str] = {}
        for name, x in self.items():
            if name in self._rows:
                own = self._rows[name]
                values[name] = _reduced(x, [i for i, d in enumerate(own) if d in letters_out], name in self._maxima)
                rows[name] = "".join([d for d in own if d not in letters_out])
        return Statistics(values, rows, self._maxima)


def _reduced(x: Any, axes: list[int], is_maximum: bool) -> Any:
    if not axes:
        return x
    if is_maximum:
        return x.amax(axes) if _arrays.is_torch(x) else x.max(tuple(axes))
    return x.mean(tuple(axes))


# --- statistics -------------------------------------------------------------------------------------------------------


def _none(call: Call) -> tuple[Tally, ...]:
    return ()


_MEAN_SCORE = (Tally(1, lambda s, b, h, i, j: (0, s)),)


def entropy() -> Statistic:
    """The entropy of the weights of each query, in nats. A sink counts as one more outcome."""
    return Statistic("entropy", lambda call: _MEAN_SCORE, lambda call, found: {"entropy": _entropy(call, found)},
                     needs_lse=True)


def effective_keys() -> Statistic:
    """The effective number of keys of each query: the exponential of the entropy, 1 for one key and n for n equal
    weights. 0 without keys and sink."""
    def finish(call: Call, found: Found) -> dict[str, Any]:
        xp = call.library
        return {"effective_keys": xp.where(found.lse == -xp.inf, call.zero, xp.exp(_entropy(call, found)))}

    return Statistic("effective_keys", lambda call: _MEAN_SCORE, finish, needs_lse=True)


def _entropy(call: Call, found: Found) -> Any:
    xp = call.library
    is_empty = found.lse == -xp.inf
    lse = xp.where(is_empty, call.zero, found.lse)
    result = lse - found.tallies[0][..., 0]
    sink = call.sink_of_rows()
    if sink is not None:
        finite = xp.where(sink > -xp.inf, sink, call.zero)
        result = result - xp.where(sink > -xp.inf, xp.exp(finite - lse) * finite, call.zero)
    return xp.where(is_empty, call.zero, result)


def max() -> Statistic:
    """The largest score of each query, -inf without keys. It has no gradient."""
    return Statistic("max", _none, lambda call, found: {"max": found.max}, needs_max=True)


def argmax() -> Statistic:
    """The first key that has the largest score of each query, int64, -1 without keys."""
    return Statistic("argmax", _none, lambda call, found: {"argmax": found.argmax}, needs_argmax=True)


def sink(keys: int = 4) -> Statistic:
    """The weights of the first `keys` keys, which attention sinks are among (Xiao et al. 2023)."""
    count = _parameters.integer("keys", keys, 1)

    def function_of(call: Call) -> Callable[..., Any]:
        where = call.library.where
        return lambda s, b, h, i, j: (0, where(j < count, 1.0, 0.0))

    return _one("sink", function_of)


def band(width: int | tuple[int, int]) -> Statistic:
    """The weights of the keys from `left` before to `right` after the query's own, for a pair or one number for both.
    The query's own key is the one that `causal` of the call aligns it to; without, query i owns key i."""
    left, right = width if isinstance(width, tuple) and len(width) == 2 else (width, width)
    left, right = _parameters.integer("left", left, 0), _parameters.integer("right", right, 0)

    def function_of(call: Call) -> Callable[..., Any]:
        own, where = call.own_key(), call.library.where
        return lambda s, b, h, i, j: (0, where((j >= own(b, i) - left) & (j <= own(b, i) + right), 1.0, 0.0))

    return _one("band", function_of)


def diagonal() -> Statistic:
    """The weight of the query's own key, as `band` has it."""
    return band(0).named("diagonal")


def distance(bins: int = 16) -> Statistic:
    """The weights by the distance of the key from the query's own key, as `band` has it: bin 0 is distance 0, bin n
    those from 2^(n - 1) to 2^n - 1; the last one has all that are larger, too."""
    count = _parameters.integer("bins", bins, 2)
    if count > 32:
        raise ValueError(f"bins is {count}, expected 2 to 32")

    def function_of(call: Call) -> Callable[..., Any]:
        own, where = call.own_key(), call.library.where

        def function(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            away, number = abs(own(b, i) - j), 0
            for n in range(count - 1):
                number = where(away >= 2**n, n + 1, number)
            return number, 1.0

        return function

    return _several("distance", count, function_of)


def segments(ids: Any, count: int) -> Statistic:
    """The weights of each of `count` segments of keys. `ids` is an int32 or int64 tensor [keys] or [batch, keys] of q's
    kind with the number of the segment of each key; keys of other numbers do not count."""
    count = _parameters.integer("count", count, 1)
    rank = getattr(ids, "ndim", None)
    if rank == 1:
        function = lambda s, b, h, i, j: (ids[j], 1.0)
    elif rank == 2:
        function = lambda s, b, h, i, j: (ids[b, j], 1.0)
    else:
        raise TypeError(f"ids is {ids!r:.60}, expected a tensor [keys] or [batch, keys]")
    return _several("segments", count, lambda call: function)


def heatmap(rows: int = 64, columns: int = 64) -> Statistic:
    """A picture of the weights, [..., rows, columns] with at most these numbers of rows and columns: element r, c is
    the mean over the queries of block r of the weights of the keys in block c. `heatmap_row_size` and
    `heatmap_column_size` are the numbers of queries and keys of a block; the latter is a power of two, which the kernel
    is compiled for. Not for ragged batches."""
    most = _parameters.integer("rows", rows, 1), _parameters.integer("columns", columns, 1)

    def size_of(call: Call) -> int:
        if call.is_ragged:
            raise ValueError("heatmap is requested with cu_seqlens_q, expected a batch of sequences of one length")
        size = 1
        while size * most[1] < call.keys:
            size *= 2
        return size

    def tallies(call: Call) -> tuple[Tally, ...]:
        size = size_of(call)
        bins = min(1 << (blocks_of(call.keys, size) - 1).bit_length(), most[1])  # one kernel for many lengths
        return (Tally(bins, lambda s, b, h, i, j: (j // size, 1.0)),)

    def finish(call: Call, found: Found) -> dict[str, Any]:
        size, column_size = blocks_of(call.queries, most[0]), size_of(call)
        weights = found.tallies[0][..., : blocks_of(call.keys, column_size)]
        return {"heatmap": call.mean_of_blocks(weights, size), "heatmap_row_size": size,
                "heatmap_column_size": column_size}  # fmt: skip

    return Statistic("heatmap", tallies, finish, over="blocks")


def received() -> Statistic:
    """The sum over all queries of the weights of each key, in place of queries: [batch, heads, keys] in the default
    layout. Caches drop keys by it (Zhang et al. 2023). A second pass computes it from the log-sum-exp, in which keys
    and queries change places. Pages are gathered for it. Not for quantized keys, nor for ragged queries with pages."""

    def tallies(call: Call) -> tuple[Tally, ...]:
        _received.check(call)
        return ()

    def finish(call: Call, found: Found) -> dict[str, Any]:
        return {"received": _received.received_mass(call, found.lse)}

    return Statistic("received", tallies, finish, needs_lse=True, over="keys")


def tally(function: Callable[..., Any], bins: int = 1, name: str = "tally") -> Statistic:
    """A statistic of one's own: for each bin the sum of weight times value. The function (s, b, h, i, j) returns the
    bin of query i and key j, an integer, and the value, for the score s; it is traced as `score` of `attention`.
    Bins outside of 0 ... bins - 1 do not count."""
    if not callable(function):
        raise TypeError(f"function is {function!r:.60}, expected a function (s, b, h, i, j) -> (bin, value)")
    return _several("tally", _parameters.integer("bins", bins, 1), lambda call: function).named(name)


def _one(name: str, function_of: Callable[[Call], Callable[..., Any]]) -> Statistic:
    return Statistic(name, lambda call: (Tally(1, function_of(call)),),
                     lambda call, found: {name: found.tallies[0][..., 0]})


def _several(name: str, bins: int, function_of: Callable[[Call], Callable[..., Any]]) -> Statistic:
    return Statistic(name, lambda call: (Tally(bins, function_of(call)),), lambda call, found: {name: found.tallies[0]})


# --- calls ------------------------------------------------------------------------------------------------------------

_NAMED: dict[str, Callable[[], Statistic]] = {
    "entropy": entropy, "effective_keys": effective_keys, "max": max, "argmax": argmax, "sink": sink,
    "diagonal": diagonal, "distance": distance, "heatmap": heatmap, "received": received}  # fmt: skip


def read(stats: Any) -> list[Statistic]:
    """The statistics that `stats` of a call requests. Raises TypeError and ValueError."""
    if isinstance(stats, (str, Statistic)) or not isinstance(stats, (tuple, list)):
        raise TypeError(f"stats is {stats!r:.60}, expected a sequence of names ({', '.join(_NAMED)}) and statistics of "
                        "saccade.stats")
    chosen: list[Statistic] = []
    for each in stats:
        if isinstance(each, str) and each in _NAMED:
            each = _NAMED[each]()
        if not isinstance(each, Statistic):
            raise ValueError(f"stats has {each!r:.60}, expected one of {', '.join(_NAMED)}, or a statistic of "
                             "saccade.stats, such as band(8)")
        if each.name in [other.name for other in chosen]:
            raise ValueError(f"stats has {each.name!r} twice: give one of them another name by named(...)")
        chosen.append(each)
    return chosen


def attend(attention: Callable[..., Any], stats: Any, q: Any, k: Any, v: Any, named: dict[str, Any]) -> Any:
    """`attention` with statistics, the last result."""
    chosen = read(stats)
    if named["out"] is not None:
        raise ValueError("out is given with stats, expected None: a call with statistics returns new arrays")
    if _gpu.is_foreign(q) and _gpu.ordinal_of(q) is None:
        from saccade import _foreign  # imported late: it imports this module

        return _foreign.call_with_views(attention, q=q, k=k, v=v, **named)
    if _gpu.is_foreign(q):
        raise TypeError("stats is given with q on a GPU, expected torch tensors")
    if not all([hasattr(x, "shape") for x in (q, k, v)]):
        return attention(q, k, v, **named | {"stats": None})  # raises
    call = Call(attention, q, k, v, named)
    lists = [each.tallies(call) for each in chosen]
    tallies = Tallies()
    for each in lists:
        tallies += [x for x in each if x not in tallies]
    has_lse = named["return_lse"] or any([x.needs_lse for x in chosen])
    has_argmax = named["return_max"] or any([x.needs_argmax for x in chosen])
    tallies.has_max = any([x.needs_max for x in chosen])
    results = attention(q, k, v, **named | {"stats": tallies, "return_lse": has_lse, "return_max": has_argmax})
    output, *others = results if isinstance(results, tuple) else (results,)
    lse = others.pop(0) if has_lse else None
    largest = others.pop(0) if has_argmax or tallies.has_max else None
    key = others.pop(0) if has_argmax else None
    values: dict[str, Any] = {}
    rows: dict[str, str] = {}
    maxima: set[str] = set()
    for statistic, own in zip(chosen, lists):
        found = Found(lse, largest, key, tuple([others[tallies.index(x)] for x in own]))
        results_of = statistic.finish(call, found)
        values |= results_of
        maxima |= set(results_of if statistic.needs_max else ())
        if not statistic.needs_argmax:  # keys have no mean
            rows |= {name: statistic.rows_of(call) for name, x in results_of.items() if hasattr(x, "shape")}
    returned = [lse] if named["return_lse"] else []
    returned += [largest, key] if named["return_max"] else []
    return (output, *returned, Statistics(values, rows, frozenset(maxima)))
