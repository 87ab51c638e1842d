"""The PyTorch operator `saccade::layer`: one function of a program, with the program's gradient function.

It takes the program as text, as `saccade::attention` does, so a graph means the same in every process.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function

from saccade import _conv, _layer, _operands, norms
from saccade.torch.attention_operator import TAGS
from saccade.torch.fallback import has_tangent, requires_grad
from saccade.torch.levels import BELOW, Function, in_turn, lower_levels, record_once


def call(name: str, program: str, tensors: list[Any], like: tuple[int, ...]) -> list[torch.Tensor]:
    """The results of the function `name` of a program, each with the shape and type of the tensor of that number."""
    given = [x if isinstance(x, torch.Tensor) else torch.as_tensor(x) for x in tensors]
    found: list[torch.Tensor] = torch.ops.saccade.layer(given, name, program, list(like))
    return found


_INTEGERS = {torch.int32: "i32", torch.int64: "i64"}


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def program_of(fields: tuple[Any, ...]) -> str:
    """The program of a `_conv.Form` in which Dynamo has element types of torch."""
    form = _conv.Form(*fields)
    bias = None if form.bias is None else _operands.element_of(form.bias, "bias")
    return _conv.program(form._replace(
        element=_operands.element_of(form.element, "x"), weight=_operands.element_of(form.weight, "weight"), bias=bias,
        lengths=form.lengths and _INTEGERS[form.lengths]))


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def norm_program_of(fields: tuple[Any, ...]) -> str:
    """The program of a `norms.Form` in which Dynamo has element types of torch."""
    form = norms.Form(*fields)
    return norms.program(form._replace(
        element=_operands.element_of(form.element, "x"), gate=_operands.element_of(form.gate, "gate"),
        weight=_operands.element_of(form.weight, "weight")))


def _fake(tensors: list[torch.Tensor], name: str, program: str, like: list[int]) -> list[torch.Tensor]:
    return [tensors[i].new_empty(tensors[i].shape) for i in like]


def _compute(tensors: list[torch.Tensor], name: str, program: str, like: list[int]) -> list[torch.Tensor]:
    results = _fake(tensors, name, program, like)
    _layer.function_of(program, name).into(*[x.detach().resolve_neg() for x in tensors], *results)
    return results


def _fake_gradients(gradients: list[torch.Tensor], results: list[torch.Tensor], tensors: list[torch.Tensor], name: str,
                    program: str) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x in tensors if x.is_floating_point()]


def _compute_gradients(gradients: list[torch.Tensor], results: list[torch.Tensor], tensors: list[torch.Tensor],
                       name: str, program: str) -> list[torch.Tensor]:
    made = _fake_gradients(gradients, results, tensors, name, program)
    given = [x.detach().resolve_neg() for x in (*tensors, *results, *gradients)]
    _layer.function_of(program, f"{name}_gradient").into(*given, *made)
    return made


# --- autograd ---------------------------------------------------------------------------------------------------------


class _Layer(Function):  # type: ignore[misc]
    """The results of an operator call."""

    @staticmethod
    def forward(ctx: Any, keys: Any, name: str, program: str, like: list[int], *tensors: torch.Tensor) -> Any:
        with lower_levels():
            results = torch.ops.saccade.layer.default.redispatch(keys, list(tensors), name, program, like)
        ctx.name, ctx.program, ctx.count = name, program, len(results)
        ctx.save_for_backward(*results, *tensors)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        results, tensors = list(ctx.saved_tensors[: ctx.count]), list(ctx.saved_tensors[ctx.count :])
        found = iter(torch.ops.saccade.layer_backward(list(gradients), results, tensors, ctx.name, ctx.program))
        return (None, None, None, None, *[next(found) if x.is_floating_point() else None for x in tensors])


def _record(keys: Any, tensors: list[torch.Tensor], name: str, program: str, like: list[int]) -> Any:
    """The kernel of the operator for tensors of which PyTorch records gradients."""
    if has_tangent(*tensors):
        raise NotImplementedError(f"saccade.{name}: tangents (forward mode) are not supported")
    keys = keys & BELOW
    if not requires_grad(*tensors):
        return torch.ops.saccade.layer.default.redispatch(keys, tensors, name, program, like)
    with enable_single_level_autograd_function():
        return list(_Layer.apply(keys, name, program, like, *tensors))


def _record_once(keys: Any, gradients: list[torch.Tensor], results: list[torch.Tensor], tensors: list[torch.Tensor],
                 name: str, program: str) -> Any:
    """The kernel of the backward operator for tensors of which PyTorch records gradients."""
    return record_once(torch.ops.saccade.layer_backward.default, f"saccade.{name}", keys, gradients, results, tensors,
                       name, program)


def _register() -> None:
    library = torch.library.Library("saccade", "FRAGMENT")
    library.define("layer(Tensor[] tensors, str name, str program, int[] like) -> Tensor[]", tags=TAGS)
    library.define("layer_backward(Tensor[] gradients, Tensor[] results, Tensor[] tensors, str name, str program) "
                   "-> Tensor[]", tags=TAGS)
    for name, compute, fake, record in (
            ("layer", _compute, _fake, _record),
            ("layer_backward", _compute_gradients, _fake_gradients, _record_once)):
        library.impl(name, compute, "CPU")
        torch.library.register_fake(f"saccade::{name}", fake, lib=library)
        rule = functools.partial(in_turn, getattr(torch.ops.saccade, name).default)
        torch.library.register_vmap(f"saccade::{name}", rule, lib=library)
        library.impl(name, record, "Autograd", with_keyset=True)
    _libraries.append(library)


_libraries: list[torch.library.Library] = []  # registrations end with their library
_register()
