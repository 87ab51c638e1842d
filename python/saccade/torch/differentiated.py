"""The programs of operator calls that are differentiated, and the functions of them that compute derivatives."""

from __future__ import annotations

import functools
from typing import Any

import torch

from saccade import _arrays, _program
from saccade._library import on_cache_clear
from saccade.function import Function
from saccade.module import compile
from saccade.torch.compiled_gradients import Differentiable, differentiable


@functools.lru_cache(maxsize=1024)
def differentiated(program: str, needs: tuple[bool, ...], attribute: str) -> str:
    """The program with a gradient function, or a function of tangents, for the needed tensors of q, k, v and the others
    in their order."""
    tensors = iter(needs)
    return _program.differentiated(program, [type.startswith("tensor") and next(tensors)
                                             for type, _ in _program.arguments(program)], attribute)


@functools.lru_cache(maxsize=1024)
def places(program: str) -> tuple[int, ...]:
    """The numbers of the tensors that have a gradient or a tangent."""
    tensors = [is_needed for type, is_needed in _program.arguments(program) if type.startswith("tensor")]
    return tuple([i for i, is_needed in enumerate(tensors) if is_needed])


@functools.lru_cache(maxsize=1024)
def _kinds(program: str) -> str:
    """The kind of each argument: "t" for a tensor, "f" for a float, "i" for an integer."""
    return "".join(["t" if type.startswith("tensor") else "f" if _program.is_float(type) else "i"
                    for type, _ in _program.arguments(program)])


def in_order(program: str, tensors: Any, integers: Any, floats: Any) -> list[Any]:
    """The arguments of the program."""
    operands = iter(tensors)
    numbers = {"f": iter(floats or ()), "i": iter(integers or ())}
    return [next(numbers.get(kind, operands)) for kind in _kinds(program)]


@functools.lru_cache(maxsize=1024)
def function_of(program: str, target: str, name: str) -> Function:
    """The compiled function `name` of a program."""
    function: Function = getattr(compile(program, target=target), name)
    return function


@functools.lru_cache(maxsize=1024)
def _differentiable(program: str, target: str) -> Differentiable:
    return differentiable(compile(program, target=target), "attention")


def differentiable_of(program: str, needs: tuple[bool, ...], target: str | None, q: torch.Tensor,
                      attribute: str = "attn.gradient") -> Differentiable:
    """The program @attention with gradients or tangents of the needed tensors, as `differentiated` has them."""
    return _differentiable(differentiated(program, needs, attribute), target_of(q, target or "host"))


on_cache_clear(function_of.cache_clear)
on_cache_clear(_differentiable.cache_clear)


def call_compiled(operator: str, name: str, program: str, target: str, tensors: list[torch.Tensor],
                  numbers: tuple[Any, Any], given: list[torch.Tensor],
                  results: list[torch.Tensor]) -> list[torch.Tensor]:
    """Calls function `name` of a program: writes `results`, and returns them.

    Args:
        operator: the PyTorch operator, for messages.
        tensors, numbers: the arguments of the program: tensors; integers and floats.
        given: further arguments, such as gradients of results.
    """
    arguments = in_order(program, tensors, *numbers)
    function = function_of(program, target_of(tensors[0], target), name)
    try:
        function.tvm_ffi(*arguments, *given, *results)
    except RuntimeError:
        for x in (*tensors, *given):  # reports one without memory
            _arrays.check_torch(f"an input of saccade::{operator}", x, tensors[0].device.type)
        raise
    return results


def target_of(q: torch.Tensor, target: str = "host") -> str:
    """The target of `saccade.compile`, where "host" also stands for the GPU of q."""
    return f"cuda:{q.get_device()}" if target == "host" and q.is_cuda else target
