"""Derivatives of the operators `saccade::attention`: gradients, and tangents by tangents.py.

The program of an operator call is compiled with the attribute `attn.gradient`, which adds the function
`attention_gradient`. The operator `saccade::attention_backward` calls it. Both functions are parts of one program, so
one compilation serves forward and backward.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from saccade import _arrays
from saccade._library import on_cache_clear
from saccade.function import Function
from saccade.module import compile
from saccade.torch import batching, tangents
from saccade.torch.attention_operator import ARGUMENTS, TAGS, overload
from saccade.torch.differentiated import differentiated, in_order, places, target_of
from saccade.torch.fallback import has_tangent, requires_grad

__all__ = ["overload"]

# Transforms of torch.func call a kernel once for each of their levels.
_Function: Any = torch.autograd.function._SingleLevelFunction
_BELOW: Any = torch._C._after_autograd_keyset
# A Function turns the forward mode off, also for the other levels, whose kernels must see their tangents.
_forward_mode: Any = forward_ad._set_fwd_grad_enabled


# --- programs ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _gradient_function(program: str, target: str) -> Function:
    return compile(program, target=target).attention_gradient


on_cache_clear(_gradient_function.cache_clear)


def _is_real(x: torch.Tensor) -> bool:
    """Whether calls compute: x has memory, and no mode records operators."""
    return not torch._C._len_torch_dispatch_stack() and type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


# --- forward ----------------------------------------------------------------------------------------------------------


class _Attention(_Function):  # type: ignore[misc]
    """The output and the log-sum-exp of an operator call."""

    @staticmethod
    def forward(ctx: Any, has_lse: bool, keys: Any, numbers: tuple[Any, ...], program: str, options: tuple[str, str],
                *tensors: torch.Tensor) -> Any:
        program = differentiated(program, ctx.needs_input_grad[5:], "attn.gradient")
        layout, target = options
        q, k, v, *more = tensors
        if _is_real(q):
            _gradient_function(program, target_of(q, target))  # reports what cannot be differentiated
        with _forward_mode(True):
            output, lse = torch.ops.saccade.attention.lse.redispatch(keys, q, k, v, more, *numbers, program, layout,
                                                                     target)
        ctx.call = has_lse, numbers, program, options
        ctx.save_for_backward(output, lse, *tensors)
        return (output, lse) if has_lse else output

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        has_lse, numbers, program, options = ctx.call
        output, lse, *tensors = ctx.saved_tensors
        q, k, v, *more = tensors
        found = torch.ops.saccade.attention_backward(
            gradients[0], gradients[1] if has_lse else None, q, k, v, more, *numbers, output, lse, program, *options)
        made: list[Any] = [None] * len(tensors)
        for place, gradient in zip(places(program), found):
            made[place] = gradient
        return (None, None, None, None, None, *made)


def _record(has_lse: bool, has_max: bool, keys: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            tensors: list[torch.Tensor], integers: list[int], floats: list[float], program: str, layout: str = "bhsd",
            target: str = "host") -> Any:
    """The kernel of the operators for tensors of which PyTorch records gradients, or that have tangents."""
    if has_tangent(q, k, v, *tensors):
        call = functools.partial(_record, has_lse, has_max, keys)
        return tangents.push(call, has_lse, has_max, q, k, v, tensors, integers, floats, program, layout, target)
    keys = keys & _BELOW
    if not requires_grad(q, k, v, *tensors):
        return overload(has_lse, has_max).redispatch(keys, q, k, v, tensors, integers, floats, program, layout, target)
    if has_max:
        raise NotImplementedError("saccade::attention: the row maximum has no gradient: call the operator that returns "
                                  "it on detached tensors")
    with enable_single_level_autograd_function():
        return _Attention.apply(has_lse, keys, (integers, floats), program, (layout, target), q, k, v, *tensors)


# --- backward ---------------------------------------------------------------------------------------------------------


def _compute(output_gradient: torch.Tensor, lse_gradient: torch.Tensor | None, q: torch.Tensor, k: torch.Tensor,
             v: torch.Tensor, tensors: list[torch.Tensor], integers: list[int], floats: list[float],
             output: torch.Tensor, lse: torch.Tensor, program: str, layout: str = "bhsd",
             target: str = "host") -> list[torch.Tensor]:
    """The kernel of the backward operator for memory of a CPU or a GPU."""
    arguments = in_order(program, (q, k, v, *tensors), integers, floats)
    results = _empty_results(q, k, v, tensors, program)
    given = [x for x in (output_gradient, lse_gradient) if x is not None]
    function = _gradient_function(program, target_of(q, target))
    try:
        function.tvm_ffi(*arguments, output, lse, *given, *results)
    except RuntimeError:
        for x in (q, k, v, *tensors, *given):  # reports one without memory
            _arrays.check_torch("an input of saccade::attention_backward", x, q.device.type)
        raise
    return results


def _empty_results(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tensors: list[torch.Tensor],
                   program: str) -> list[torch.Tensor]:
    operands = (q, k, v, *tensors)
    return [torch.empty_like(operands[place]) for place in places(program)]


def _compute_fake(output_gradient: Any, lse_gradient: Any, q: Any, k: Any, v: Any, tensors: Any, integers: Any,
                  floats: Any, output: Any, lse: Any, program: str, layout: str = "bhsd", target: str = "host") -> Any:
    return _empty_results(q, k, v, tensors, program)


class _Once(_Function):  # type: ignore[misc]
    """A call of an operator for derivatives whose results are differentiated again, which is an error."""

    @staticmethod
    def forward(ctx: Any, call: Any, *tensors: torch.Tensor) -> Any:
        with _forward_mode(True):
            return tuple(call())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("saccade.attention: second derivatives are not supported")


def _record_once(operator: Any, keys: Any, *arguments: Any, **named: Any) -> list[torch.Tensor]:
    """The kernel of an operator for derivatives for tensors of which PyTorch records gradients."""
    flat = [x for each in arguments for x in (each if isinstance(each, list) else [each])]
    differentiable = [x for x in flat if isinstance(x, torch.Tensor)]
    if has_tangent(*differentiable):
        raise NotImplementedError("saccade.attention: second derivatives are not supported")
    call = functools.partial(operator.redispatch, keys & _BELOW, *arguments, **named)
    if not requires_grad(*differentiable):
        return call()  # type: ignore[no-any-return]
    with enable_single_level_autograd_function():
        return list(_Once.apply(call, *differentiable))


# --- registration -----------------------------------------------------------------------------------------------------

_library = torch.library.Library("saccade", "FRAGMENT")


def _register() -> None:
    arguments = ARGUMENTS.replace("(Tensor q", "(Tensor output_gradient, Tensor? lse_gradient, Tensor q")
    arguments = arguments.replace("str program", "Tensor output, Tensor lse, str program")
    _library.define(f"attention_backward{arguments} -> Tensor[]", tags=TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl("attention_backward", _compute, key)
    torch.library.register_fake("saccade::attention_backward", _compute_fake, lib=_library)
    tangents.register(_library)
    for operator in (torch.ops.saccade.attention_backward.default, torch.ops.saccade.attention_jvp.default):
        _library.impl(operator.overloadpacket.__name__, functools.partial(_record_once, operator), "Autograd",
                      with_keyset=True)
    for has_lse, has_max, name in ((False, False, "attention"), (True, False, "attention.lse"),
                                   (False, True, "attention.max"), (True, True, "attention.lse_max")):
        _library.impl(name, functools.partial(_record, has_lse, has_max), "Autograd", with_keyset=True)
    batching.register(_library)


_register()
