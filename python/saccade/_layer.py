"""Calls of small programs of one function, such as a causal convolution: plain calls of the compiled function, and
those that PyTorch records or torch.compile traces as the operator `saccade::layer` (saccade.torch.layer_operator)."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import Any

from saccade import _arrays, _linear, _operands
from saccade._library import on_cache_clear
from saccade._opaque import is_compiling
from saccade.function import Function
from saccade.module import compile


@functools.lru_cache(maxsize=512)
def function_of(program: str, name: str) -> Function:
    """The compiled function `name` of a program."""
    return compile(program)[name]


on_cache_clear(function_of.cache_clear)


def needs_gradient(*tensors: Any) -> bool:
    """Whether PyTorch records a call, or a transform of torch.func sees it."""
    torch = _arrays.torch_module()
    if torch is None or not any([_arrays.is_torch(x) for x in tensors]):
        return False
    if is_compiling():
        return _linear.is_recorded(*tensors)
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return True
    return _linear.is_recorded(*tensors)


def call(name: str, program: str, tensors: Sequence[Any], like: tuple[int, ...], is_recorded: bool) -> list[Any]:
    """New results of the function `name` of a program: each has the shape and element type of the tensor with the
    number in `like`, and is contiguous. `is_recorded`: as an operator of PyTorch, with gradients by the program."""
    if is_recorded or is_compiling():
        from saccade.torch import layer_operator  # imported late: it imports torch

        return layer_operator.call(name, program, list(tensors), like)
    function = function_of(program, name)
    torch = _arrays.torch_module()
    plain = torch and torch.Tensor
    tensors = [x.detach() if plain and type(x) is torch.nn.Parameter else x for x in tensors]
    results = [new_like(tensors[i]) for i in like]
    if not all([type(x) is plain and not x.is_neg() for x in tensors]):
        return _write(function, tensors, results)
    try:
        function.tvm_ffi(*tensors, *results)
    except (RuntimeError, TypeError, ValueError):
        return _write(function, tensors, results)  # raises the error
    return results


def _write(function: Function, tensors: Sequence[Any], results: list[Any]) -> list[Any]:
    function.into(*[x.detach() if _arrays.is_torch(x) else x for x in tensors], *results)
    return results


def write(function: Function, tensors: Sequence[Any], outs: Sequence[Any], names: Sequence[str]) -> None:
    """Writes the results to arrays, whose names in messages are `names`."""
    try:
        function.into(*tensors, *outs)
    except (TypeError, ValueError) as error:
        found = re.fullmatch(rf"{function.name}: (?:argument|result) '(\w+)' \(.*?\): (.*)", str(error), re.DOTALL)
        if found:
            of_results = {f"result{i}": own for i, own in enumerate(names)}
            raise type(error)(f"{of_results.get(found[1], found[1])}: {found[2]}") from None
        raise


def check_width(name: str, x: Any, of_x: str, first: Any, element: str) -> None:
    """Refuses an operand of float64 next to a first one of another type, and the reverse."""
    if (of_x == "f64") != (element == "f64"):
        expected = "float64" if element == "f64" else "float32, float16 or bfloat16"
        found, own = _operands.dtype_name(x), _operands.dtype_name(first)
        raise TypeError(f"{name} has elements of type {found}, expected {expected}, as those of x are {own}")


def new_like(x: Any) -> Any:
    """A contiguous array with the shape and element type of another one."""
    if _arrays.is_torch(x):
        return x.new_empty(x.shape)
    return _arrays.library_of(x).empty(x.shape, x.dtype)


def copy_of(x: Any) -> Any:
    """A copy of an array, through which gradients pass."""
    return x.clone() if _arrays.is_torch(x) else x.copy()


def swapped(x: Any, a: int, b: int) -> Any:
    """A view with two dimensions exchanged."""
    return x.transpose(a, b) if _arrays.is_torch(x) else x.swapaxes(a, b)


def is_contiguous_along(x: Any, axis: int) -> bool:
    """Whether consecutive elements along a dimension are consecutive in memory."""
    if _arrays.is_torch(x):
        return bool(x.stride(axis) == 1)
    return bool(x.strides[axis] == x.itemsize)


def is_contiguous(x: Any) -> bool:
    """Whether the elements are consecutive in memory."""
    return bool(x.is_contiguous() if _arrays.is_torch(x) else x.flags.c_contiguous)
