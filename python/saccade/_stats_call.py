"""What the statistics of saccade.stats know of the call of `saccade.attention` that they belong to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saccade import _arrays, _operands
from saccade._form import key_layout


class Tally(NamedTuple):
    """A sum of weights times values by bins, which the kernel computes for every query."""

    bins: int
    function: Callable[..., Any]
    """(s, b, h, i, j) -> (bin, value)"""


class Tallies(list[Tally]):
    """The option `stats` of a call that returns what the kernel added up, and the row maximum if that is requested."""

    has_max = False


class Call:
    """A call with statistics: q, k, v and the options by their names."""

    def __init__(self, attention: Callable[..., Any], q: Any, k: Any, v: Any, named: dict[str, Any]):
        self.attention, self.q, self.k, self.v, self.named = attention, q, k, v, named
        self.is_torch, self.is_ragged = _arrays.is_torch(q), named["cu_seqlens_q"] is not None
        self.layout: str = named["layout"] or ("shd" if self.is_ragged else "bhsd")
        _operands.check_layout(self.layout, self.is_ragged)
        self.key_layout = key_layout(self.layout, named["page_table"] is not None)
        for name, x, dimensions in (("q", q, self.layout), ("k", k, self.key_layout), ("v", v, self.key_layout)):
            if len(x.shape) != len(dimensions):
                found = _arrays.dimensions(len(x.shape))
                raise TypeError(f"{name} has {found}, expected {len(dimensions)}, the layout '{dimensions}'")
        self.rows = "".join([dimension for dimension in "bhs" if dimension in self.layout])
        """The dimensions of the log-sum-exp."""
        self.queries = q.shape[self.layout.index("s")]
        pages = 1 if named["page_table"] is None else named["page_table"].shape[1]
        self.keys = k.shape[self.key_layout.index("s")] * pages
        """The number of keys, or of those of all sequences of a ragged batch."""

    @property
    def library(self) -> Any:
        """torch or NumPy, which the functions of tallies are traced with."""
        return _arrays.library_of(self.q)

    @property
    def zero(self) -> Any:
        """0 in the type of scores."""
        return self.precise(0.0)

    def precise(self, x: float) -> Any:
        """A number in the type of scores."""
        xp = self.library
        dtype = xp.float64 if _operands.dtype_name(self.q) == "float64" else xp.float32
        return xp.full((), x, dtype=dtype, device=self.q.device) if self.is_torch else dtype(x)

    def sink_of_rows(self) -> Any:
        """The sink of each row, or None."""
        given = self.named["sink"]
        if given is None:
            return None
        xp = self.library
        if not getattr(given, "ndim", 0):
            return given.to(self.zero.dtype) if _arrays.is_torch(given) else self.precise(float(given))
        given = given.to(self.zero.dtype) if self.is_torch else xp.asarray(given).astype(self.zero.dtype)
        return given.reshape([-1 if dimension == "h" else 1 for dimension in self.rows])

    def own_key(self) -> Callable[[Any, Any], Any]:
        """The function (b, i) from a query to the position of its own key."""
        first = self._first_own_key()
        if getattr(first, "ndim", 0):
            return lambda b, i: i + first[b]
        return (lambda b, i: i + first) if first else lambda b, i: i

    def _first_own_key(self) -> Any:
        """The position of the own key of query 0, one number or one for each sequence."""
        queries, keys = self.queries, self.named["kv_len"]
        if self.is_ragged:
            queries = _lengths(self.named["cu_seqlens_q"])
        if keys is None:
            keys = _lengths(self.named["cu_seqlens_k"]) if self.is_ragged else self.keys
        return _operands.first_own_key(self.named["causal"], queries, keys)

    def mean_of_blocks(self, x: Any, size: int) -> Any:
        """The means of an array [rows, columns] over blocks of queries, as [other rows, blocks, columns]."""
        xp = self.library
        axis = self.rows.index("s")
        x = xp.moveaxis(x, axis, -2)
        blocks = blocks_of(self.queries, size)
        missing = blocks * size - self.queries
        if missing:
            empty = xp.zeros((*x.shape[:-2], missing, x.shape[-1]), dtype=x.dtype, **self.place)
            x = xp.concatenate((x, empty), -2)
        x = x.reshape(*x.shape[:-2], blocks, size, x.shape[-1]).sum(-2)
        counts = [min(size, max(self.queries - block * size, 1)) for block in range(blocks)]
        counts_of_rows = xp.asarray(counts, dtype=x.dtype, **self.place).reshape(-1, 1)
        return x / counts_of_rows

    @property
    def place(self) -> dict[str, Any]:
        """The keyword of the library for q's device."""
        return {"device": self.q.device} if self.is_torch else {}


def blocks_of(extent: int, size: int) -> int:
    """The number of blocks of at most `size` that cover an extent, at least one."""
    return -(-extent // size) or 1


def _lengths(offsets: Any) -> Any:
    return offsets[1:] - offsets[:-1]
