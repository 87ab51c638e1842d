"""The options of `saccade.attention` as a Form and its operands: one clause for each option, for eager calls and for
those that torch.compile traces (saccade.torch.tracing)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from saccade import _epilogue, _functions, _normalizers, _operands, _packed
from saccade._cache_text import is_packed
from saccade._form import Operands, key_layout
from saccade.masks import Mask
from saccade.scores import Score


class Checks(NamedTuple):
    """The checks of what eager calls and traced ones have in different forms."""

    function: Callable[..., Any]  # (role, function, q): its field in the Form, its captures, whether these are of torch
    length: Callable[..., Any]  # as those of `_operands`
    sink: Callable[..., Any]
    offsets: Callable[..., Any]


EAGER = Checks(_functions.read, _operands.check_length, _operands.check_sink, _operands.check_cu_seqlens)


def read(checks: Checks, q: Any, k: Any, v: Any,
         given: tuple[Any, ...]) -> tuple[tuple[Any, ...], tuple[Any, ...], Operands, bool]:
    """The fields of the Form of a call, with q's own element type and as a plain tuple, which Dynamo has; the captures
    of its functions; its operands; and whether all captured arrays are of torch. `given` are the options in the order
    of the parameters of `saccade.attention`, which states the exceptions. The caller checks q, k, v and the layout:
    None and 0 stand for an element type and head dimensions that they do not have."""
    (score, mask, weight, normalizer, scale, causal, window, kv_len, cu_seqlens_q, cu_seqlens_k, page_table, k_scale,
     v_scale, k_zero, v_zero, qk_type, reproducible, sink, dropout_p, seed, return_lse, return_max, stats, gate,
     gate_activation, layout) = given
    captures: tuple[Any, ...] = ()
    operands: Operands = {}
    alignment = length = ragged = pages = scales = sink_kind = dropout = heads = epilogue = None
    sides, are_torch = "", True
    tallies: tuple[tuple[int, str], ...] = ()
    if score is not None:
        if type(score) is Score:
            heads, score = score.heads, score.function
        score, captures, are_torch = checks.function("score", score, q)
    if mask is not None:
        mask, more, is_torch = checks.function("mask", mask.function if type(mask) is Mask else mask, q)
        captures, are_torch = captures + more, are_torch and is_torch
    if weight is not None:
        weight, more, is_torch = checks.function("weight", weight, q)
        captures, are_torch = captures + more, are_torch and is_torch
    if normalizer is not None:
        normalizer = _normalizers.function_of(normalizer)
    if normalizer is not None:
        _normalizers.check_without_sum(sink, return_lse, return_max, stats)
    if normalizer is not None and not isinstance(normalizer, str):
        normalizer, more, is_torch = checks.function("normalizer", normalizer, q)
        captures, are_torch = captures + more, are_torch and is_torch
    for bins, function in () if stats is None else stats:
        text, more, is_torch = checks.function("tally", function, q)
        captures, are_torch = captures + more, are_torch and is_torch
        tallies += ((bins, text),)
    if scale is not None:
        operands["scale"] = _operands.check_finite_scale(scale)
    if causal is not None:
        if isinstance(causal, str) and (causal == "top_left" or causal == "bottom_right"):
            alignment = causal
        else:
            alignment, operands["causal"] = "offset", _operands.check_causal(causal)
    if window is not None:
        sides, bounds = _operands.check_window(window, alignment is not None)
        if "l" in sides:
            operands["left"] = bounds[0]
        if "r" in sides:
            operands["right"] = bounds[-1]
    if kv_len is not None:
        length, operands["kv_len"] = checks.length(kv_len, q)
    if sink is not None:
        sink_kind, operands["sink"] = checks.sink(sink, q)
    if page_table is not None:
        pages, operands["page_table"] = _operands.check_page_table(page_table, cu_seqlens_k, q), page_table
    if cu_seqlens_q is not None or cu_seqlens_k is not None:
        ragged = checks.offsets(cu_seqlens_q, cu_seqlens_k, q, pages is not None)
        operands["cu_seqlens_q"] = cu_seqlens_q
        if pages is None:
            operands["cu_seqlens_k"] = cu_seqlens_k
    if seed is not None or dropout_p != 0:
        dropout, more = _operands.check_dropout(dropout_p, seed, q)
        if more:
            operands["rate"], operands["seed"] = more
    if layout is None:
        layout = "bhsd" if ragged is None else "shd"
    if any(x is not None for x in (k_scale, v_scale, k_zero, v_zero)):
        scales, more = _operands.check_scales(k_scale, v_scale, k_zero, v_zero, q, k, v, layout, ragged is not None,
                                              pages is not None)  # fmt: skip
        operands |= more
    if gate is not None:
        epilogue, more = _epilogue.read(gate, gate_activation, layout)
        operands.update(more)
    elif gate_activation != "sigmoid":
        _epilogue.check_activation(gate_activation)
    if heads is not None:
        _operands.check_heads(heads, q, layout)
    if qk_type is not None:
        _operands.check_qk_type(qk_type, q)
    if reproducible is not None:
        _operands.check_reproducible(reproducible, q, ragged is not None)
    if return_max is not True and return_max is not False:
        raise TypeError(f"return_max is {return_max!r:.80}, expected True or False")
    has_max = return_max or stats is not None and stats.has_max
    if return_lse is not True and return_lse is not False:  # 1 == True would match its plan
        raise TypeError(f"return_lse is {return_lse!r:.80}, expected True or False")
    try:
        axis = layout.index("d")
        element, head_dim = q.dtype, q.shape[axis]
        head_dim_v = v.shape[axis if pages is None else key_layout(layout, True).index("d")]
        if scales is not None and is_packed(scales[1][0]):
            head_dim_v *= _packed.CODES_OF_BYTE
    except (ValueError, IndexError, TypeError, AttributeError, RuntimeError):  # the last one of nested ones
        element, head_dim, head_dim_v = None, 0, 0
    fields = (element, head_dim, head_dim_v, layout, alignment, sides, scale is not None, length, ragged, pages, scales,
              qk_type, sink_kind, dropout, return_lse, has_max, return_max, score, mask, weight, normalizer, tallies,
              None, None, False, False, False, epilogue, None,
              reproducible is not None)  # all fields of Form, in its order
    return fields, captures, operands, are_torch
