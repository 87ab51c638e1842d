"""What operators with kernels for autograd share: functions of one level of torch.func, derivatives that are taken
once, and calls in turn for a dimension that torch.vmap maps."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from saccade.torch.fallback import has_tangent, requires_grad

# Transforms of torch.func call a kernel once for each of their levels.
Function: Any = torch.autograd.function._SingleLevelFunction
BELOW: Any = torch._C._after_autograd_keyset


def has_levels() -> bool:
    """Whether a further level of torch.func needs the kernel for autograd of the operator that a kernel calls."""
    return torch._C._functorch.maybe_current_level() is not None


@contextlib.contextmanager
def lower_levels() -> Iterator[None]:
    """Around the call of an operator in `Function.forward`, which turns both modes of differentiation off, also for the
    levels below. The kernels of these must see tangents, and record gradients."""
    with forward_ad._set_fwd_grad_enabled(True), torch.set_grad_enabled(has_levels() or torch.is_grad_enabled()):
        yield


# --- derivatives that are taken once ----------------------------------------------------------------------------------


class _Once(Function):  # type: ignore[misc]
    """A call of an operator for derivatives whose results are differentiated again, which is an error."""

    @staticmethod
    def forward(ctx: Any, call: Any, subject: str, *tensors: torch.Tensor) -> Any:
        ctx.subject = subject
        with lower_levels():
            return tuple(call())

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise second_derivative(ctx.subject)


def second_derivative(subject: str) -> NotImplementedError:
    """The error of a second derivative of the function `subject`."""
    return NotImplementedError(f"{subject}: second derivatives are not supported")


def record_once(operator: Any, subject: str, keys: Any, *arguments: Any, **named: Any) -> list[torch.Tensor]:
    """The kernel of an operator for derivatives of `subject` for tensors of which PyTorch records gradients."""
    flat = [x for each in arguments for x in (each if isinstance(each, list) else [each])]
    tensors = [x for x in flat if isinstance(x, torch.Tensor)]
    if has_tangent(*tensors):
        raise second_derivative(subject)
    call = functools.partial(operator.redispatch, keys & BELOW, *arguments, **named)
    if not requires_grad(*tensors):
        return call()  # type: ignore[no-any-return]
    with enable_single_level_autograd_function():
        return list(_Once.apply(call, subject, *tensors))


# --- vmap -------------------------------------------------------------------------------------------------------------


def _with_batch(x: torch.Tensor, dim: int | None, size: int) -> torch.Tensor:
    """A tensor of which torch.vmap maps a dimension, or none, with this dimension in front."""
    return x.unsqueeze(0).expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def in_turn(operator: Any, info: Any, in_dims: Any, *arguments: Any) -> Any:
    """A rule of torch.vmap for an operator whose first arguments are lists of tensors: one call after another, since
    an operand without a batch, such as a decay of each head, is shared in a program."""
    lists = list(itertools.takewhile(lambda each: isinstance(each, list), arguments))
    mapped = [[_with_batch(x, dim, info.batch_size) for x, dim in zip(each, dims)]
              for each, dims in zip(lists, in_dims)]
    found = [operator(*[[x[i] for x in each] for each in mapped], *arguments[len(lists):])
             for i in range(info.batch_size)]
    stacked = [torch.stack(parts) for parts in zip(*found)]
    return stacked, [0] * len(stacked)
