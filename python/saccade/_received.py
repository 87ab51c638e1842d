"""The mass that keys receive: the sum of weights over queries, in a second pass over the scores.

With l the log-sum-exp of the queries, the mass of key j is the sum over i of exp(s[i, j] - l[i]), so its logarithm is
the log-sum-exp of an attention in which keys and queries change places, with the scores s[i, j] - l[i].
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from saccade import _operands
from saccade._stats_call import Call

_Condition = Callable[[Any, Any, Any, Any], Any]


def check(call: Call) -> None:
    """Raises ValueError for a call that the mass is not computed for."""
    if call.named["k_scale"] is not None:
        raise ValueError("'received' is requested with k_scale, expected keys that are not quantized")
    if call.is_ragged and call.named["page_table"] is not None:
        raise ValueError("'received' is requested with cu_seqlens_q and page_table, expected one of them")


def received_mass(call: Call, lse: Any) -> Any:
    """The mass that each key received, with keys in place of the queries of `lse`, the log-sum-exp of the call."""
    xp, named, layout = call.library, call.named, call.layout
    axis, keys = layout.index("d"), _keys_of(call)
    if "h" in layout:
        heads = layout.index("h")
        group = call.q.shape[heads] // max(keys.shape[heads], 1)
        keys = keys if group < 2 else (
            keys.repeat_interleave(group, heads) if call.is_torch else xp.repeat(keys, group, heads))
    value = call.q[tuple([slice(1 if n == axis else None) for n in range(len(layout))])]  # any: only sums are read
    _, logarithm = call.attention(
        keys, call.q, value.detach() if call.is_torch else value, mask=_mask(call),
        score=_score(call, xp.where(lse == -xp.inf, -lse, lse)),  # a query without keys gives nothing
        scale=keys.shape[axis] ** -0.5 if named["scale"] is None else named["scale"],
        cu_seqlens_q=named["cu_seqlens_k"], cu_seqlens_k=named["cu_seqlens_q"], return_lse=True, layout=layout,
        target=named["target"], stream=named["stream"])  # fmt: skip
    return xp.exp(logarithm)


def _score(call: Call, lse: Any) -> Callable[..., Any]:
    """The score of key i and query j minus the log-sum-exp of the query."""
    given = call.named["score"]
    score = getattr(given, "function", given) or (lambda s, b, h, i, j: s)
    rows, offsets = call.rows, call.named["cu_seqlens_q"]

    def at(b: Any, h: Any, i: Any) -> tuple[Any, ...]:
        position = i if offsets is None else i + offsets[b]
        return tuple([{"b": b, "h": h, "s": position}[dimension] for dimension in rows])

    return lambda s, b, h, i, j: score(s, b, h, j, i) - lse[at(b, h, j)]


def _mask(call: Call) -> Callable[..., Any] | None:
    """Whether key i is visible to query j, or None if all are."""
    named, own = call.named, call.own_key()
    conditions: list[_Condition] = []
    given, causal, window, kv_len = named["mask"], named["causal"], named["window"], named["kv_len"]
    if given is not None:
        conditions.append(getattr(given, "function", given))
    left, right = _operands.window_sides(window, causal is not None)
    if causal is not None:
        conditions.append(lambda b, h, i, j: j <= own(b, i))
    if left is not None:
        conditions.append(lambda b, h, i, j: j >= own(b, i) - left)
    if right is not None:
        conditions.append(lambda b, h, i, j: j <= own(b, i) + right)
    if getattr(kv_len, "ndim", 0):
        conditions.append(lambda b, h, i, j: j < kv_len[b])
    elif kv_len is not None:
        conditions.append(lambda b, h, i, j: j < kv_len)
    if not conditions:
        return None
    first, *others = conditions

    def mask(b: Any, h: Any, i: Any, j: Any) -> Any:
        holds = first(b, h, j, i)
        for other in others:
            holds = holds & other(b, h, j, i)
        return holds

    return mask


def _keys_of(call: Call) -> Any:
    """The keys in the layout of queries; those of pages are gathered."""
    table = call.named["page_table"]
    if table is None:
        return call.k
    xp, dimensions = call.library, call.key_layout
    pages = xp.moveaxis(call.k, dimensions.index("b"), 0)[xp.where(table < 0, 0, table)]
    position = 1 + dimensions.replace("b", "").index("s")
    pages = xp.moveaxis(pages, 1, position)
    shape = [*pages.shape[:position], pages.shape[position] * pages.shape[position + 1], *pages.shape[position + 2:]]
    return xp.moveaxis(pages.reshape(shape), 0, call.layout.index("b"))
