"""`saccade.attention` as torch.compile and torch.export trace it: one operator `saccade::attention` in the graph.

Dynamo traces the functions below, which only compute with numbers and tensors; it calls those marked as constant. Their
arguments are constants of the graph, and tensors and variable numbers become arguments of the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from operator import index
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value

from saccade import _operands, _program
from saccade.masks import Mask
from saccade.regions import Region
from saccade.regions.traced_function import PARAMETERS
from saccade.scores import Score
from saccade.torch import attention_operator, recording
from saccade.torch.fallback import requires_grad

_ROLES = ("score", "mask", "weight")
_PLAIN = attention_operator.overload(False, False)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
    """The operator call for `saccade.attention` with these arguments, or the reason as a string why it is none, which
    the eager function reports."""
    try:
        return _call(q, k, v, **options)
    except (TypeError, ValueError):  # Dynamo loses the message
        return "its arguments are invalid"


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: str | None, layout: str) -> Any:
    """`attention` of valid tensors without functions and with the default scale.

    Dynamo guards each global name and each default that it looks up while it traces, and every call of the compiled
    function evaluates these guards. This function looks up few.
    """
    axis = layout.index("d")
    program, _ = _program_of(q.dtype, index(q.shape[axis]), index(v.shape[axis]), layout, causal, "", False, None, None,
                             None, False, False, (None, None, None))
    return _PLAIN([q, k, v], program, None, [], layout, "host")


def _call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, score: Any = None, mask: Any = None, weight: Any = None,
          scale: Any = None, causal: Any = None, window: Any = None, kv_len: Any = None, cu_seqlens_q: Any = None,
          cu_seqlens_k: Any = None, page_table: Any = None, k_scale: Any = None, v_scale: Any = None,
          qk_type: Any = None, sink: Any = None, return_lse: bool = False, return_max: bool = False,
          layout: str | None = None, target: str | None = None) -> Any:
    if page_table is not None:
        raise TypeError("a paged cache is not traced")
    if k_scale is not None or v_scale is not None:
        raise TypeError("a quantized cache is not traced")
    if qk_type is not None:
        _operands.check_qk_type(qk_type, q)
    ragged = None if cu_seqlens_q is None and cu_seqlens_k is None else (cu_seqlens_q, cu_seqlens_k)
    if layout is None:
        layout = "bhsd" if ragged is None else "shd"
    axis = _operands.check_layout(layout, ragged is not None)
    if not q.dim() == k.dim() == v.dim() == len(layout):
        raise TypeError("a tensor has another number of dimensions than the layout")
    if type(return_lse) is not bool or type(return_max) is not bool:
        raise TypeError("return_lse or return_max is no bool")
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    if isinstance(scale, torch.Tensor) and scale.dim() == 0 and scale.is_floating_point():
        score, scale = _scaled(score, scale.to(precision)), 1.0
    if scale is not None:
        scale = _operands.check_scale(scale)
        if has_static_value(scale) and not math.isfinite(scale):
            raise ValueError("scale is not finite")
        if not has_static_value(scale):
            # The operator has no variable floats: the scale becomes an element that the score function reads.
            score, scale = _scaled(score, torch.full((), scale, dtype=precision, device=q.device)), 1.0
    if sink is not None and not isinstance(sink, torch.Tensor) and not has_static_value(sink):
        sink = torch.full((q.shape[layout.index("h")] if "h" in layout else 1,), sink, dtype=precision, device=q.device)
    records: list[Any] = []
    captures: list[list[torch.Tensor]] = []
    for role, function in (("score", score), ("mask", mask), ("weight", weight)):
        if function is None:
            records.append(None)
            captures.append([])
            continue
        function = _function(role, function, q, layout)
        if torch.compiler.is_dynamo_compiling():
            recorded, tensors = recording.record(function, role, precision)
        else:  # torch.export without Dynamo records what is called here
            recorded, tensors = recording.without_modes(recording.record, function, role, precision)
        records.append(recorded)
        captures.append(tensors)

    # Numbers and tensors in the order of the program's arguments.
    integers: list[int] = []
    floats: list[float] = []
    more: list[torch.Tensor] = []
    alignment, sides, length, sink_kind, offsets = None, None, None, None, None
    if scale is not None:
        floats.append(scale)
    if causal is not None:
        if isinstance(causal, str) and causal in ("top_left", "bottom_right"):
            alignment = causal
        else:
            alignment = "offset"
            integers.append(_operands.check_causal(causal))
    if window is not None:
        sides, bounds = _operands.check_window(window, alignment is not None)
        integers += bounds
    if kv_len is not None:
        if isinstance(kv_len, torch.Tensor):
            if kv_len.dim() == 0:
                kv_len = kv_len.expand(q.shape[layout.index("b")] if "b" in layout else 1)
            length = integer_type("kv_len", kv_len)
            more.append(kv_len)
        else:
            length, keys = "index", k.shape[layout.index("s")]
            if not 0 <= kv_len <= keys:
                raise ValueError("kv_len is no number of keys")
            integers.append(kv_len)
    if sink is not None:
        if isinstance(sink, torch.Tensor):
            sink_kind = (_element_of("sink", sink), False)
            more.append(sink)
        else:
            if not float(sink) < math.inf:
                raise ValueError("sink is NaN or infinite")
            sink_kind = ("f64" if precision == torch.float64 else "f32", True)
            floats.append(float(sink))
    if ragged is not None:
        offsets = (integer_type("cu_seqlens_q", ragged[0]), integer_type("cu_seqlens_k", ragged[1]))
        more += ragged
    def call(has_lse: bool, has_max: bool, is_detached: bool) -> Any:
        # A dynamic head size becomes a constant of the graph.
        program, numbers = _program_of(
            q.dtype, index(q.shape[axis]), index(v.shape[axis]), layout, alignment, sides or "",
            scale is not None, length, offsets, sink_kind, has_lse, has_max, tuple(records), qk_type)
        if numbers is None:
            return program
        tensors = [q, k, v]
        for needed, captured in zip(numbers, captures):
            tensors += [captured[i] for i in needed]
        tensors += more
        if is_detached:
            tensors = [x.detach() for x in tensors]
        return attention_operator.overload(has_lse, has_max)(
            tensors, program, integers or None, floats, layout, target or "host")

    given = [q, k, v, *more]
    for captured in captures:
        given += captured
    if not return_max or not requires_grad(*given):
        return call(return_lse, return_max, False)
    # The row maximum has no gradient.
    results = call(return_lse, False, False)
    if isinstance(results, str):
        return results
    _, *largest = call(False, True, True)
    return (*(results if return_lse else (results,)), *largest)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _program_of(dtype: torch.dtype, head_dim: int, head_dim_v: int, layout: str, causal: str | None, sides: str,
                has_scale: bool, kv_len: str | None, ragged: tuple[str, str] | None, sink: tuple[str, bool] | None,
                return_lse: bool, return_max: bool,
                records: tuple[recording.Record | None, ...],
                qk_type: str | None = None) -> tuple[str, tuple[tuple[int, ...], ...] | None]:
    """The program, and the captured tensors that each function reads, by number; or an error message and None, because
    Dynamo does not propagate exceptions of functions that it calls."""
    try:
        return recording.without_modes(_make, dtype, head_dim, head_dim_v, layout, causal, sides, has_scale, kv_len,
                                       ragged, sink, return_lse, return_max, records, qk_type)
    except (TypeError, ValueError) as error:
        return str(error), None


def _make(dtype: torch.dtype, head_dim: int, head_dim_v: int, layout: str, causal: str | None, sides: str,
          has_scale: bool, kv_len: str | None, ragged: tuple[str, str] | None, sink: tuple[str, bool] | None,
          return_lse: bool, return_max: bool,
          records: tuple[recording.Record | None, ...],
          qk_type: str | None) -> tuple[str, tuple[tuple[int, ...], ...]]:
    regions: list[Region | None] = []
    numbers: list[tuple[int, ...]] = []
    precision = "f64" if dtype == torch.float64 else "f32"
    for role, recorded in zip(_ROLES, records):
        region, needed = (None, ()) if recorded is None else recording.region(recorded, role, precision)
        regions.append(region)
        numbers.append(needed)
    program = make_program(dtype, head_dim, head_dim_v, layout, *regions, causal=causal, sides=sides,
                           has_scale=has_scale, kv_len=kv_len, ragged=ragged, sink=sink, return_lse=return_lse,
                           return_max=return_max, qk_type=qk_type)
    return program, tuple(numbers)


def make_program(dtype: torch.dtype, head_dim: int, head_dim_v: int, layout: str, score: Region | None,
                 mask: Region | None, weight: Region | None = None, *, causal: str | None = None, sides: str = "",
                 has_scale: bool = False, kv_len: str | None = None, ragged: tuple[str, str] | None = None,
                 sink: tuple[str, bool] | None = None, return_lse: bool = False, return_max: bool = False,
                 qk_type: str | None = None) -> str:
    """The program of an operator call; the options are those of `_program.Spec`. Raises TypeError and ValueError."""
    _operands.check_layout(layout, ragged is not None)
    name = str(dtype).removeprefix("torch.")
    if name not in _operands.ELEMENTS:
        raise TypeError(f"q has element type {name}, expected {', '.join(_operands.ELEMENTS)}")
    element, is_number = sink or (None, False)
    spec = _program.Spec(
        element=_operands.ELEMENTS[name], head_dim=head_dim, head_dim_v=head_dim_v, layout=layout, causal=causal,
        left="l" in sides, right="r" in sides, scale=has_scale, kv_len=kv_len, ragged=ragged, sink=element,
        is_sink_number=is_number, lse=return_lse, max=return_max, qk_type=qk_type, score=score, mask=mask,
        weight=weight)  # fmt: skip
    return _program.program(spec)


def _scaled(score: Callable[..., Any] | None, factor: torch.Tensor) -> Callable[..., Any]:
    """The score function of scores that are to be scaled."""
    if score is None:
        return lambda s, b, h, i, j: s * factor
    return lambda s, b, h, i, j: score(s * factor, b, h, i, j)


def _function(role: str, function: Any, q: torch.Tensor, layout: str) -> Callable[..., Any]:
    """The Python function of an argument; those of the library are traced as what they contain."""
    kind = "score" if isinstance(function, Score) else "mask" if isinstance(function, Mask) else role
    if kind != role:
        raise TypeError(f"{role} is a {kind} of saccade.{kind}s: give it as {kind}")
    if not callable(function):
        raise TypeError(f"{role} is no function, expected one of ({', '.join(PARAMETERS[role])})")
    if isinstance(function, Score) and function.heads is not None:
        _operands.check_heads(function.heads, q, layout)
    return function.function if isinstance(function, (Score, Mask)) else function


def integer_type(name: str, x: torch.Tensor) -> str:
    """MLIR's name of the type of lengths, offsets or pages."""
    if x.dtype == torch.int32:
        return "i32"
    if x.dtype == torch.int64:
        return "i64"
    raise TypeError(f"{name} has element type {x.dtype}, expected int32 or int64")


def _element_of(name: str, x: torch.Tensor) -> str:
    for dtype, element in ((torch.float32, "f32"), (torch.float64, "f64"), (torch.float16, "f16"),
                           (torch.bfloat16, "bf16")):
        if x.dtype == dtype:
            return element
    raise TypeError(f"{name} has element type {x.dtype}, expected a floating-point type")
