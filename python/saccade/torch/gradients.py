"""Gradients of the operators `saccade::attention`.

The program of an operator call is compiled with the attribute `attn.gradient`, which adds the function
`attention_gradient`. The operator `saccade::attention_backward` calls it. Both functions are parts of one program, so
one compilation serves forward and backward.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function

from saccade import _arrays, _program
from saccade._library import on_cache_clear
from saccade.function import Function
from saccade.module import compile
from saccade.torch import batching
from saccade.torch.attention_operator import ARGUMENTS, TAGS, overload
from saccade.torch.fallback import has_tangent, requires_grad

__all__ = ["overload"]

# Transforms of torch.func call a kernel once for each of their levels.
_Function: Any = torch.autograd.function._SingleLevelFunction
_BELOW: Any = torch._C._after_autograd_keyset


# --- programs ---------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def differentiated(program: str, needs: tuple[bool, ...]) -> str:
    """The program with a gradient function for the needed tensors of q, k, v and the others in their order."""
    tensors = iter(needs)
    return _program.differentiated(program, [type.startswith("tensor") and next(tensors)
                                             for type, _ in _program.arguments(program)])


@functools.lru_cache(maxsize=1024)
def _places(program: str) -> tuple[int, ...]:
    """The numbers of the tensors whose gradients the gradient function returns."""
    tensors = [has_gradient for type, has_gradient in _program.arguments(program) if type.startswith("tensor")]
    return tuple([i for i, has_gradient in enumerate(tensors) if has_gradient])


@functools.lru_cache(maxsize=1024)
def _kinds(program: str) -> str:
    """The kind of each argument: "t" for a tensor, "f" for a float, "i" for an integer."""
    return "".join(["t" if type.startswith("tensor") else "f" if _program.is_float(type) else "i"
                    for type, _ in _program.arguments(program)])


@functools.lru_cache(maxsize=1024)
def _gradient_function(program: str, target: str) -> Function:
    return compile(program, target=target).attention_gradient


on_cache_clear(_gradient_function.cache_clear)


def _target(q: torch.Tensor, target: str) -> str:
    return f"cuda:{q.get_device()}" if target == "host" and q.is_cuda else target


def _is_real(x: torch.Tensor) -> bool:
    """Whether calls compute: x has memory, and no mode records operators."""
    return not torch._C._len_torch_dispatch_stack() and type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


# --- forward ----------------------------------------------------------------------------------------------------------


class _Attention(_Function):  # type: ignore[misc]
    """The output and the log-sum-exp of an operator call."""

    @staticmethod
    def forward(ctx: Any, has_lse: bool, keys: Any, numbers: tuple[Any, ...], program: str, options: tuple[str, str],
                *tensors: torch.Tensor) -> Any:
        program = differentiated(program, ctx.needs_input_grad[5:])
        layout, target = options
        q, k, v, *more = tensors
        if _is_real(q):
            _gradient_function(program, _target(q, target))  # reports what cannot be differentiated
        output, lse = torch.ops.saccade.attention.lse.redispatch(keys, q, k, v, more, *numbers, program, layout, target)
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
        for place, gradient in zip(_places(program), found):
            made[place] = gradient
        return (None, None, None, None, None, *made)


def _refuse_tangents(*tensors: torch.Tensor | None) -> None:
    if has_tangent(*tensors):
        raise NotImplementedError("saccade.attention: derivatives in forward mode are not supported, only gradients")


def _record(has_lse: bool, has_max: bool, keys: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor,
            tensors: list[torch.Tensor], integers: list[int], floats: list[float], program: str, layout: str = "bhsd",
            target: str = "host") -> Any:
    """The kernel of the operators for tensors of which PyTorch records gradients."""
    _refuse_tangents(q, k, v, *tensors)
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
    operands = iter((q, k, v, *tensors))
    numbers = {"f": iter(floats), "i": iter(integers)}
    arguments = [next(numbers.get(kind, operands)) for kind in _kinds(program)]
    results = _empty_results(q, k, v, tensors, program)
    given = [x for x in (output_gradient, lse_gradient) if x is not None]
    function = _gradient_function(program, _target(q, target))
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
    return [torch.empty_like(operands[place]) for place in _places(program)]


def _compute_fake(output_gradient: Any, lse_gradient: Any, q: Any, k: Any, v: Any, tensors: Any, integers: Any,
                  floats: Any, output: Any, lse: Any, program: str, layout: str = "bhsd", target: str = "host") -> Any:
    return _empty_results(q, k, v, tensors, program)


class _Backward(_Function):  # type: ignore[misc]
    """A call of the backward operator whose results are differentiated again, which is an error."""

    @staticmethod
    def forward(ctx: Any, keys: Any, call: Any, *tensors: torch.Tensor) -> Any:
        return tuple(call())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError("saccade.attention: second derivatives are not supported")


def _record_backward(keys: Any, output_gradient: torch.Tensor, lse_gradient: torch.Tensor | None, q: torch.Tensor,
                     k: torch.Tensor, v: torch.Tensor, tensors: list[torch.Tensor], *others: Any,
                     **named: Any) -> list[torch.Tensor]:
    keys = keys & _BELOW
    call = functools.partial(torch.ops.saccade.attention_backward.default.redispatch, keys, output_gradient,
                             lse_gradient, q, k, v, tensors, *others, **named)
    _refuse_tangents(output_gradient, lse_gradient, q, k, v, *tensors)
    differentiable = [x for x in (output_gradient, lse_gradient, q, k, v, *tensors) if x is not None]
    if not requires_grad(*differentiable):
        return call()  # type: ignore[no-any-return]
    with enable_single_level_autograd_function():
        return list(_Backward.apply(keys, call, *differentiable))


# --- registration -----------------------------------------------------------------------------------------------------

_library = torch.library.Library("saccade", "FRAGMENT")


def _register() -> None:
    arguments = ARGUMENTS.replace("(Tensor q", "(Tensor output_gradient, Tensor? lse_gradient, Tensor q")
    arguments = arguments.replace("str program", "Tensor output, Tensor lse, str program")
    _library.define(f"attention_backward{arguments} -> Tensor[]", tags=TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl("attention_backward", _compute, key)
    _library.impl("attention_backward", _record_backward, "Autograd", with_keyset=True)
    torch.library.register_fake("saccade::attention_backward", _compute_fake, lib=_library)
    for has_lse, has_max, name in ((False, False, "attention"), (True, False, "attention.lse"),
                                   (False, True, "attention.max"), (True, True, "attention.lse_max")):
        _library.impl(name, functools.partial(_record, has_lse, has_max), "Autograd", with_keyset=True)
    batching.register(_library)


_register()
