"""The PyTorch operator `saccade::linear_attention`, with its gradients, its tangents and its rule of torch.vmap.

An operator takes the program as text, as `saccade::attention` does, so a graph means the same in every process. Its
kernel is in Python: it calls the compiled program.
"""

from __future__ import annotations

import functools
import re
from operator import index
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from saccade import _arrays, _linear, _operands, _program
from saccade.torch.attention_operator import TAGS
from saccade.torch.differentiated import function_of, places
from saccade.torch.fallback import has_tangent, requires_grad
from saccade.torch.levels import BELOW, Function, in_turn, lower_levels, record_once, second_derivative

_SUBJECT = "saccade.linear_attention"

ARGUMENTS = "Tensor[] tensors, str program, str layout, int columns"
"""The tensors of the program, of which q, k and v are the first; the program; the layout of q, k and v; the columns of
the final state, which is the second result, or 0 without one."""


def call(form: _linear.Form, tensors: list[Any]) -> Any:
    """The results of a call of a checked Form, by the operator."""
    tensors = [torch.as_tensor(_arrays.snapshot(x)) for x in tensors]  # the gradient reads them later
    return _results(form, tensors, _linear.program(form))


def _results(form: _linear.Form, tensors: list[torch.Tensor], program: str) -> Any:
    found = torch.ops.saccade.linear_attention(tensors, program, form.layout,
                                               form.state_columns if form.return_state else 0)
    return tuple(found) if form.return_state else found[0]


# --- graphs -----------------------------------------------------------------------------------------------------------


def traced(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: dict[str, Any], options: tuple[Any, ...]) -> Any:
    """The results of `linear_attention` in a function that torch.compile or torch.export traces, or the reason as a
    string why there are none, which the eager function reports."""
    try:
        return _traced(q, k, v, given, *options)
    except (TypeError, ValueError):  # Dynamo loses the message
        return "its arguments are invalid"


def _traced(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, given: dict[str, Any], feature_map: str, causal: Any,
            normalize: bool, scale: float | None, return_state: bool, l2norm: float | None, layout: str | None) -> Any:
    causal = _linear.is_causal(causal)
    scale = _linear.check_options(feature_map, causal, normalize, scale, return_state, l2norm, given)
    layout = _linear.layout_of(layout, given["cu_seqlens"])
    axis = layout.index("d")
    if not q.dim() == k.dim() == v.dim() == len(layout) or not q.dtype == k.dtype == v.dtype:
        raise TypeError("q, k and v do not fit")
    lengths = [x.shape[layout.index("s")] for x in (q, k, v)]
    if lengths[1] != lengths[2] or causal and lengths[0] != lengths[1] or q.shape[axis] != k.shape[axis]:
        raise ValueError("q, k and v do not fit")
    if "h" in layout:
        heads = layout.index("h")
        _linear.check_heads(q.shape[heads], k.shape[heads], v.shape[heads])
    operands = tuple([(name, x.dtype, x.dim()) for name, x in given.items() if x is not None])
    fields = (q.dtype, index(q.shape[axis]), index(v.shape[axis]), layout, feature_map, causal, bool(normalize), scale,
              None if l2norm is None else float(l2norm), bool(return_state), operands)
    program = _program_of(fields)
    columns = index(v.shape[axis]) + bool(normalize)
    tensors = [q, k, v, *[x for x in given.values() if x is not None]]
    found = torch.ops.saccade.linear_attention(tensors, program, layout, columns if return_state else 0)
    return (found[0], found[1]) if return_state else found[0]


_INTEGERS = {torch.int32: "i32", torch.int64: "i64"}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _program_of(fields: tuple[Any, ...]) -> str:
    """The program of a Form in which Dynamo has element types of torch."""
    form = _linear.Form(*fields)
    operands = tuple([(name, _INTEGERS.get(own) or _operands.element_of(own), rank)
                      for name, own, rank in form.operands])
    return _linear.program(form._replace(element=_operands.element_of(form.element), operands=operands))


# --- kernels ----------------------------------------------------------------------------------------------------------


def _compute(tensors: list[torch.Tensor], program: str, layout: str, columns: int) -> list[torch.Tensor]:
    """The kernel for memory of a CPU."""
    results = _fake(tensors, program, layout, columns)
    function_of(program, "host", _linear.NAME).into(*[x.detach() for x in tensors], *results)
    return results


def _fake(tensors: list[torch.Tensor], program: str, layout: str, columns: int) -> list[torch.Tensor]:
    """The results without their elements."""
    q, _, v = tensors[:3]
    header = program.partition("\n")[0]
    cu_seqlens = tensors[_names(header).index("cu_seqlens")] if "%cu_seqlens:" in header else None
    output, state = _linear.result_shapes(layout, q.shape, v.shape, columns, cu_seqlens)
    results = [q.new_empty(output)]
    if columns:
        results.append(q.new_empty(state, dtype=_linear.state_type(q)))
    return results


@functools.lru_cache(maxsize=1024)
def _names(header: str) -> list[str]:
    """The names of the arguments of a program."""
    return re.findall(r"%(\w+):", header)


def _compute_gradients(gradients: list[torch.Tensor], results: list[torch.Tensor], tensors: list[torch.Tensor],
                       program: str) -> list[torch.Tensor]:
    """The kernel of the backward operator: the gradients of the tensors that the program says."""
    made = _fake_gradients(gradients, results, tensors, program)
    given = [x.detach().resolve_neg() for x in (*tensors, *results, *gradients)]
    function_of(program, "host", f"{_linear.NAME}_gradient").into(*given, *made)
    return made


def _fake_gradients(gradients: Any, results: Any, tensors: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    return [torch.empty_like(tensors[place], memory_format=torch.contiguous_format) for place in places(program)]


# --- autograd ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _differentiated(program: str, needs: tuple[bool, ...], attribute: str = "attn.gradient") -> str:
    return _program.differentiated(program, needs, attribute)


class _Linear(Function):  # type: ignore[misc]
    """The results of an operator call."""

    @staticmethod
    def forward(ctx: Any, keys: Any, program: str, layout: str, columns: int, *tensors: torch.Tensor) -> Any:
        program = _differentiated(program, tuple(ctx.needs_input_grad[4:]))
        function_of(program, "host", f"{_linear.NAME}_gradient")  # reports what has no gradient
        with lower_levels():
            results = torch.ops.saccade.linear_attention.default.redispatch(keys, list(tensors), program, layout,
                                                                            columns)
        ctx.program, ctx.count = program, len(results)
        ctx.save_for_backward(*results, *tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        results, tensors = list(ctx.saved_tensors[: ctx.count]), list(ctx.saved_tensors[ctx.count :])
        found = torch.ops.saccade.linear_attention_backward(list(gradients), results, tensors, ctx.program)
        made: list[Any] = [None] * len(tensors)
        for place, gradient in zip(places(ctx.program), found):
            made[place] = gradient
        return (None, None, None, None, *made)


def _record(keys: Any, tensors: list[torch.Tensor], program: str, layout: str, columns: int) -> Any:
    """The kernel of the operator for tensors of which PyTorch records gradients, or that have tangents."""
    if has_tangent(*tensors):
        return _push(functools.partial(_record, keys), tensors, program, layout, columns)
    keys = keys & BELOW
    if not requires_grad(*tensors):
        return torch.ops.saccade.linear_attention.default.redispatch(keys, tensors, program, layout, columns)
    with enable_single_level_autograd_function():
        return list(_Linear.apply(keys, program, layout, columns, *tensors))


# --- forward mode -----------------------------------------------------------------------------------------------------


def _push(call: Any, tensors: list[torch.Tensor], program: str, layout: str, columns: int) -> Any:
    """The results of an operator call with tangents. `call` is the call for tensors without tangents."""
    if _program.is_differentiated(program):  # the tangents of a call whose gradients are recorded
        raise second_derivative(_SUBJECT)
    duals = [forward_ad.unpack_dual(x) for x in tensors]
    primals = [dual.primal for dual in duals]
    given = [dual.tangent for dual in duals if dual.tangent is not None]
    pushed = _differentiated(program, tuple([dual.tangent is not None for dual in duals]), "attn.jvp")
    results = torch.ops.saccade.linear_attention_jvp(given, primals, pushed, layout, columns)
    count = len(results) // 2
    values = results[:count]
    if requires_grad(*primals):  # gradients are recorded of the results, but not of their tangents
        values = call(primals, program, layout, columns)
    return [forward_ad.make_dual(*pair) for pair in zip(values, results[count:])]


def _compute_tangents(tangents: list[torch.Tensor], tensors: list[torch.Tensor], program: str, layout: str,
                      columns: int) -> list[torch.Tensor]:
    """The kernel of the operator of tangents: the results, then their tangents."""
    results = _fake_tangents(tangents, tensors, program, layout, columns)
    given = [x.detach().resolve_neg() for x in (*tensors, *tangents)]
    function_of(program, "host", f"{_linear.NAME}_jvp").into(*given, *results)
    return results


def _fake_tangents(tangents: Any, tensors: list[torch.Tensor], program: str, layout: str,
                   columns: int) -> list[torch.Tensor]:
    return [*_fake(tensors, program, layout, columns), *_fake(tensors, program, layout, columns)]


def _register() -> None:
    library = torch.library.Library("saccade", "FRAGMENT")
    library.define(f"linear_attention({ARGUMENTS}) -> Tensor[]", tags=TAGS)
    library.define("linear_attention_backward(Tensor[] gradients, Tensor[] results, Tensor[] tensors, str program) "
                   "-> Tensor[]", tags=TAGS)
    library.define(f"linear_attention_jvp(Tensor[] tangents, {ARGUMENTS}) -> Tensor[]", tags=TAGS)
    derivatives = torch.ops.saccade.linear_attention_backward.default, torch.ops.saccade.linear_attention_jvp.default
    for name, compute, fake in (
            ("linear_attention", _compute, _fake),
            ("linear_attention_backward", _compute_gradients, _fake_gradients),
            ("linear_attention_jvp", _compute_tangents, _fake_tangents)):
        library.impl(name, compute, "CPU")
        torch.library.register_fake(f"saccade::{name}", fake, lib=library)
        rule = functools.partial(in_turn, getattr(torch.ops.saccade, name).default)
        torch.library.register_vmap(f"saccade::{name}", rule, lib=library)
    library.impl("linear_attention", _record, "Autograd", with_keyset=True)
    for operator in derivatives:
        library.impl(operator.overloadpacket.__name__, functools.partial(record_once, operator, _SUBJECT), "Autograd",
                     with_keyset=True)
    _libraries.append(library)


_libraries: list[torch.library.Library] = []  # registrations end with their library
_register()
