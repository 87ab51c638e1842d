"""`saccade.attention` as torch.compile and torch.export trace it: one operator `saccade::attention` in the graph.

Dynamo traces the functions below, which only compute with numbers and tensors; it calls those marked as constant. Their
arguments are constants of the graph, and tensors and variable numbers become arguments of the operator.
"""

from __future__ import annotations

import math
from operator import index
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value

from saccade import _autograd, _operands, _program
from saccade._form import Form
from saccade._options import Checks, read
from saccade.attention import DEFAULTS
from saccade.masks import Mask
from saccade.regions import Region
from saccade.regions.traced_function import PARAMETERS
from saccade.scores import Score
from saccade.torch import attention_operator, recording
from saccade.torch.fallback import requires_grad

_PLAIN = attention_operator.overload(False, False)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: tuple[Any, ...], target: str | None) -> Any:
    """The operator call for `saccade.attention` with these arguments, or the reason as a string why it is none, which
    the eager function reports. `given` are the options in the order of `_options.read`."""
    try:
        return _call(q, k, v, target, {name: x for (name, _), x in zip(_defaults(), given)})
    except (TypeError, ValueError):  # Dynamo loses the message
        return "its arguments are invalid"


def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: str | None, layout: str) -> Any:
    """`attention` of valid tensors without functions and with the default scale.

    Dynamo guards each global name and each default that it looks up while it traces, and every call of the compiled
    function evaluates these guards. This function looks up few.
    """
    axis = layout.index("d")
    program, _ = _program_of((q.dtype, index(q.shape[axis]), index(v.shape[axis]), layout, causal), False, False)
    return _PLAIN([q, k, v], program, None, [], layout, "host")


def _call(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, target: str | None, options: dict[str, Any]) -> Any:
    for name in ("page_table", "k_scale", "v_scale", "k_zero", "v_zero", "seed", "stats"):
        if options[name] is not None:
            raise TypeError(f"{name} is not traced")
    layout = _with_tensors(q, k, v, options)
    fields, captures, operands, _ = read(_CHECKS, q, k, v, tuple(options.values()))
    dtype, head_dim, head_dim_v, *others = fields
    fields = (dtype, index(head_dim), index(head_dim_v), *others)  # a dynamic head size becomes a constant of the graph
    length = operands.get("kv_len")
    if length is not None and not isinstance(length, torch.Tensor) and not 0 <= length <= k.shape[layout.index("s")]:
        raise ValueError("kv_len is no number of keys")

    def call(has_lse: bool, has_max: bool, is_detached: bool) -> Any:
        program, found = _program_of(fields, has_lse, has_max)
        if found is None:
            return program
        needed, names = found
        values = [operands[name] for name in names]
        tensors = [q, k, v, *[captures[i] for i in needed], *[x for x in values if isinstance(x, torch.Tensor)]]
        if is_detached:
            tensors = [x.detach() for x in tensors]
        integers = [x for x in values if isinstance(x, (int, torch.SymInt))]
        floats = [x for x in values if isinstance(x, float)]
        return attention_operator.overload(has_lse, has_max)(
            tensors, program, integers or None, floats, layout, target or "host")

    has_lse, has_max = options["return_lse"], options["return_max"]
    if not has_max or not requires_grad(q, k, v, *captures, *operands.values()):
        return call(has_lse, has_max, False)
    # The row maximum has no gradient.
    results = call(has_lse, False, False)
    if isinstance(results, str):
        return results
    _, *largest = call(False, True, True)
    return (*(results if has_lse else (results,)), *largest)


def _with_tensors(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, options: dict[str, Any]) -> str:
    """Writes tensors in place of those numbers among the options that are no operands of the operator. Returns the
    layout, which is checked with the ranks of q, k and v."""
    is_ragged = options["cu_seqlens_q"] is not None or options["cu_seqlens_k"] is not None
    layout: str = options["layout"] or ("shd" if is_ragged else "bhsd")
    _operands.check_layout(layout, is_ragged)
    if not q.dim() == k.dim() == v.dim() == len(layout):
        raise TypeError("a tensor has another number of dimensions than the layout")
    scale, sink, length = options["scale"], options["sink"], options["kv_len"]
    is_factor = isinstance(scale, torch.Tensor) and scale.dim() == 0 and scale.is_floating_point()
    if scale is not None and not is_factor:
        scale = options["scale"] = _operands.check_scale(scale)
    if is_factor or scale is not None and not has_static_value(scale):
        # The operator has no variable floats: the scale becomes an element that the score function reads.
        precision = _precision(q)
        factor = scale.to(precision) if is_factor else torch.full((), scale, dtype=precision, device=q.device)
        options["score"], options["scale"] = _autograd.scaled(options["score"], factor), 1.0
    if sink is not None and not isinstance(sink, torch.Tensor) and not has_static_value(sink):
        heads = q.shape[layout.index("h")] if "h" in layout else 1
        options["sink"] = torch.full((heads,), sink, dtype=_precision(q), device=q.device)
    if isinstance(length, torch.Tensor) and length.dim() == 0:
        options["kv_len"] = length.expand(q.shape[layout.index("b")] if "b" in layout else 1)
    return layout


def _precision(q: torch.Tensor) -> torch.dtype:
    return torch.float64 if q.dtype == torch.float64 else torch.float32


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _defaults() -> tuple[tuple[str, Any], ...]:
    """The options in the order of `_options.read`. Dynamo guards no result of this function."""
    return tuple([each for each in DEFAULTS.items() if each[0] not in ("target", "stream", "out")])


def options_of(**options: Any) -> tuple[Any, ...]:
    """The options of a call in the order of `_options.read`."""
    return tuple([options.get(name, default) for name, default in _defaults()])


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _program_of(fields: tuple[Any, ...], has_lse: bool, has_max: bool) -> tuple[str, Any]:
    """The program of a Form in which Dynamo has element types of torch and records of functions; the captures that it
    reads, by number, and the names of its operands. Or an error message and None, because Dynamo does not propagate
    exceptions of functions that it calls."""
    try:
        return recording.without_modes(_make, Form(*fields)._replace(lse=has_lse, max=has_max, argmax=has_max))
    except (TypeError, ValueError) as error:
        return str(error), None


def _make(traced: Form) -> tuple[str, tuple[list[int], tuple[str, ...]]]:
    element_of = _operands.element_of
    sink = traced.sink and (element_of(traced.sink[0]), traced.sink[1])
    form = traced._replace(element=element_of(traced.element), sink=sink)
    texts: dict[str, Any] = {}
    needed: list[int] = []
    first = 0
    for role, recorded in traced.functions():
        region, numbers = recording.region(recorded, role, form.precision)
        texts[role] = _program.region_text(role, region)
        needed += [first + number for number in numbers]
        first += len(recorded[2])
    form = form._replace(**texts)
    return _program.program(form), (needed, form.names())


def make_program(dtype: torch.dtype, head_dim: int, head_dim_v: int, layout: str, score: Region | None,
                 mask: Region | None, **fields: Any) -> str:
    """The program of an operator call with these fields of the Form. Raises TypeError and ValueError."""
    _operands.check_layout(layout, False)
    texts = _program.region_texts(score=score, mask=mask)
    return _program.program(Form(_operands.element_of(dtype), head_dim, head_dim_v, layout, **texts, **fields))


# --- checks -----------------------------------------------------------------------------------------------------------


def _record(role: str, function: Any, q: torch.Tensor) -> tuple[Any, tuple[torch.Tensor, ...], bool]:
    """The record of a function, which a Form has in a graph, and the tensors that it captures."""
    if isinstance(function, (Score, Mask)):
        raise TypeError(f"{role} is a function of saccade.{'score' if isinstance(function, Score) else 'mask'}s")
    if not callable(function):
        raise TypeError(f"{role} is no function, expected one of ({', '.join(PARAMETERS[role])})")
    if torch.compiler.is_dynamo_compiling():
        recorded, tensors = recording.record(function, role, _precision(q))
    else:  # torch.export without Dynamo records what is called here
        recorded, tensors = recording.without_modes(recording.record, function, role, _precision(q))
    return recorded, tuple(tensors), True


def _length(kv_len: Any, q: torch.Tensor) -> tuple[str, Any]:
    return (_operands.integer_type("kv_len", kv_len) if isinstance(kv_len, torch.Tensor) else "index"), kv_len


def _sink(sink: Any, q: torch.Tensor) -> tuple[tuple[torch.dtype, bool], Any]:
    if isinstance(sink, torch.Tensor):
        return (sink.dtype, False), sink
    if not float(sink) < math.inf:
        raise ValueError("sink is NaN or infinite")
    return (_precision(q), True), float(sink)


def _offsets(cu_seqlens_q: Any, cu_seqlens_k: Any, q: torch.Tensor, is_paged: bool) -> tuple[str, str]:
    element = _operands.integer_type
    return element("cu_seqlens_q", cu_seqlens_q), element("cu_seqlens_k", cu_seqlens_k)


_CHECKS = Checks(_record, _length, _sink, _offsets)
