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

from saccade import _program
from saccade.torch import batching, tangents
from saccade.torch.attention_operator import ARGUMENTS, TAGS, differentiated_overload, overload
from saccade.torch.differentiated import call_compiled, differentiated, function_of, places, target_of
from saccade.torch.fallback import has_tangent, requires_grad
from saccade.torch.levels import BELOW, Function, has_levels, lower_levels, record_once

__all__ = ["overload"]


# --- forward ----------------------------------------------------------------------------------------------------------


def _is_real(x: torch.Tensor) -> bool:
    """Whether calls compute: x has memory, and no mode records operators."""
    return not torch._C._len_torch_dispatch_stack() and type(x) in (torch.Tensor, torch.nn.Parameter) and not x.is_meta


class _Attention(Function):  # type: ignore[misc]
    """The first `count` of the output, the log-sum-exp and its low part of an operator call. The log-sum-exp alone does
    not determine the probabilities of a row whose scores are far from 0, so its low part is saved as well. With a
    normalizer there is the output only."""

    @staticmethod
    def forward(ctx: Any, count: int, keys: Any, program: str, options: tuple[Any, ...],
                *tensors: torch.Tensor) -> Any:
        program = differentiated(program, ctx.needs_input_grad[4:], "attn.gradient")
        if _is_real(tensors[0]):
            # Reports what has no gradient.
            function_of(program, target_of(tensors[0], *options[3:]), "attention_gradient")
        is_recorded = has_levels()
        operator = differentiated_overload(is_recorded)
        if _program.has_normalizer(program):
            operator = overload(False, False, is_recorded=is_recorded)
        with lower_levels():
            results = operator.redispatch(keys, tensors, program, *options)
        results = (results, None, None) if isinstance(results, torch.Tensor) else results
        ctx.call = program, options
        ctx.save_for_backward(*results, *tensors)
        ctx.has_lse = _program.result_count(program) > 1
        ctx.mark_non_differentiable(*[x for x in results[2 if ctx.has_lse else 1:] if x is not None])
        return results[:count] if count > 1 else results[0]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        program, options = ctx.call
        output, lse, lse_low, *tensors = ctx.saved_tensors
        found = torch.ops.saccade.attention_backward(
            gradients[0], gradients[1] if ctx.has_lse else None, output, lse, lse_low, tensors, program,
            *options)
        made: list[Any] = [None] * len(tensors)
        for place, gradient in zip(places(program), found):
            made[place] = gradient
        return (None, None, None, None, *made)


def lse_low_of(lse: torch.Tensor) -> torch.Tensor:
    """What the rounding of a log-sum-exp took, which a call of `saccade.attention` returned and PyTorch differentiates.
    """
    _, _, low, *_ = lse.grad_fn.saved_tensors  # those of _Attention
    return low


def _record(has_lse: bool, has_max: bool, has_low: bool, keys: Any, tensors: list[torch.Tensor], program: str,
            *options: Any) -> Any:
    """The kernel of the operators for tensors of which PyTorch records gradients, or that have tangents. `options` are
    the further arguments up to the last one that is not the default."""
    if has_tangent(*tensors):
        call = functools.partial(_record, has_lse, has_max, has_low, keys)
        return tangents.push(call, has_lse, has_max, tensors, program, *options)
    keys = keys & BELOW
    if not requires_grad(*tensors):
        is_recorded = has_levels()
        below = differentiated_overload(is_recorded) if has_low else overload(has_lse, has_max, is_recorded=is_recorded)
        return below.redispatch(keys, tensors, program, *options)
    if has_max:
        raise NotImplementedError("saccade::attention: the row maximum has no gradient: call the operator that returns "
                                  "it on detached tensors")
    with enable_single_level_autograd_function():
        return _Attention.apply(1 + has_lse + has_low, keys, program, options, *tensors)


# --- backward ---------------------------------------------------------------------------------------------------------


def _compute(output_gradient: torch.Tensor, lse_gradient: torch.Tensor | None, output: torch.Tensor,
             lse: torch.Tensor | None, lse_low: torch.Tensor | None, tensors: list[torch.Tensor], program: str,
             integers: list[int] | None = None, floats: list[float] | None = None, layout: str = "bhsd",
             target: str = "host") -> list[torch.Tensor]:
    """The kernel of the backward operator for memory of a CPU or a GPU."""
    given = [x for x in (output, lse, lse_low, output_gradient, lse_gradient) if x is not None]
    return call_compiled("attention_backward", "attention_gradient", program, target, tensors, (integers, floats),
                         given, _empty_results(tensors, program))


def _empty_results(tensors: list[torch.Tensor], program: str) -> list[torch.Tensor]:
    return [torch.empty_like(tensors[place]) for place in places(program)]


def _compute_fake(output_gradient: Any, lse_gradient: Any, output: Any, lse: Any, lse_low: Any, tensors: Any,
                  program: str, *options: Any) -> Any:
    return _empty_results(tensors, program)


# --- registration -----------------------------------------------------------------------------------------------------

_library = torch.library.Library("saccade", "FRAGMENT")


def _register() -> None:
    given = "Tensor output_gradient, Tensor? lse_gradient, Tensor output, Tensor? lse, Tensor? lse_low"
    _library.define(f"attention_backward({given}, {ARGUMENTS}) -> Tensor[]", tags=TAGS)
    for key in ("CPU", "CUDA"):
        _library.impl("attention_backward", _compute, key)
    torch.library.register_fake("saccade::attention_backward", _compute_fake, lib=_library)
    tangents.register(_library)
    for operator in (torch.ops.saccade.attention_backward.default, torch.ops.saccade.attention_jvp.default):
        record = functools.partial(record_once, operator, "saccade.attention")
        _library.impl(operator.overloadpacket.__name__, record, "Autograd", with_keyset=True)
    for name in ("attention", "attention.lse", "attention.lse_low", "attention.max", "attention.lse_max"):
        flags = "lse" in name, "max" in name, "low" in name
        _library.impl(name, functools.partial(_record, *flags), "Autograd", with_keyset=True)
        _library.impl(name.replace("attention", "attention_forward"), torch.library.fallthrough_kernel, "Autograd")
    batching.register(_library)


_register()
