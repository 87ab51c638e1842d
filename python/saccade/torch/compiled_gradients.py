"""Compiled programs that PyTorch differentiates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from saccade import _arrays
from saccade.function import Function
from saccade.module import Module
from saccade.torch.fallback import has_tangent, requires_grad


def differentiable(module: Module, name: str = "main") -> Differentiable:
    """The function `name` of a program as a function of torch tensors with gradients, tangents, or both.

    Args:
        module: a program in which the function has the attribute `attn.gradient`, so that there is a gradient function,
            or the attribute `attn.jvp`, so that there is a function of tangents (docs/guides/gradients.md).

    Raises:
        KeyError: there is no function of this name, or neither of the others.

    Example:
        >>> f = saccade.torch.differentiable(saccade.compile(text), "f")
        >>> f(q, k, v, slope).sum().backward()
    """
    functions = module.functions
    gradient, jvp = functions.get(name + "_gradient"), functions.get(name + "_jvp")
    if name not in functions or gradient is None and jvp is None:
        needed = name if name not in functions else name + "_gradient"
        raise KeyError(f"the program has no function {needed!r}, expected one of {', '.join(functions)}; the attribute "
                       "attn.gradient of a function requests its gradient function, attn.jvp its function of tangents")
    return Differentiable(functions[name], gradient, jvp)


class Differentiable:
    """A function of a program with its gradient function and its function of tangents. Calls take and return torch
    tensors; the further results of the function, which its gradient function reads, are not returned. Second
    derivatives are a NotImplementedError.
    """

    def __init__(self, function: Function, gradient: Function | None, jvp: Function | None = None):
        self.function, self.gradient, self.jvp = function, gradient, jvp
        inputs = [value.name for value in function.inputs]
        self._names = inputs
        # The numbers of the results that have gradients, of those that are returned, and of the inputs of gradients.
        if gradient is None:
            assert jvp is not None
            count = len(function.results)
            self._recorded: list[int] = []
            self._returned = list(range(count))
            self._places: list[int] = []
        else:
            given = {value.name for value in gradient.inputs[len(inputs) + len(function.results):]}
            self._recorded = [i for i, value in enumerate(function.results) if f"{value.name}_gradient" in given]
            last = max(self._recorded, default=-1)
            self._returned = [i for i, value in enumerate(function.results)
                              if i <= last or "float" not in str(value.dtype)]
            self._places = [inputs.index(value.name.removesuffix("_gradient")) for value in gradient.results]

    def __call__(self, *inputs: Any) -> Any:
        """Calls the function with all of its arguments in order. Raises as `saccade.Function`."""
        if len(inputs) != len(self._names):
            raise TypeError(f"{self.function.name} takes {len(self._names)} arguments ({', '.join(self._names)}), "
                            f"found {len(inputs)}")
        if any([isinstance(x, torch.Tensor) and torch._C._functorch.is_functorch_wrapped_tensor(x) for x in inputs]):
            raise NotImplementedError(f"{self.function.name}: transforms of torch.func are not supported")
        if has_tangent(*inputs):
            return self._push(inputs)
        results = _Call.apply(self, *inputs)
        returned = [results[i] for i in self._returned]
        return returned[0] if len(returned) == 1 else tuple(returned)

    def _push(self, inputs: tuple[Any, ...]) -> Any:
        """The results with their tangents."""
        if self.jvp is None:
            raise NotImplementedError(f"{self.function.name} has no function of tangents: the attribute attn.jvp of a "
                                      "function requests it")
        if requires_grad(*inputs):
            raise NotImplementedError(f"{self.function.name}: an input has a tangent and requires grad; expected "
                                      "derivatives in one mode")
        duals = [forward_ad.unpack_dual(x) if isinstance(x, torch.Tensor) else None for x in inputs]
        values = [x if dual is None else dual.primal for x, dual in zip(inputs, duals)]
        tangents = []
        for value in self.jvp.inputs[len(inputs):]:
            place = self._names.index(value.name.removesuffix("_tangent"))
            dual = duals[place]
            if dual is None:
                tangents.append(0.0)  # a number
            else:
                tangents.append(torch.zeros_like(dual.primal) if dual.tangent is None else dual.tangent.resolve_neg())
        found = self.jvp(*values, *tangents)
        names = [value.name for value in self.jvp.results]
        returned = []
        for i, name in enumerate(names):
            if f"{name}_tangent" in names:
                returned.append(forward_ad.make_dual(found[i], found[names.index(f"{name}_tangent")]))
            elif not name.endswith("_tangent"):
                returned.append(found[i])
        return returned[0] if len(returned) == 1 else tuple(returned)

    def __repr__(self) -> str:
        return f"<saccade.torch.Differentiable {self.function.signature}>"


class _Call(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, call: Differentiable, *inputs: Any) -> tuple[torch.Tensor, ...]:
        results = call.function(*inputs)
        results = results if isinstance(results, tuple) else (results,)
        ctx.mark_non_differentiable(*[x for i, x in enumerate(results) if i not in call._recorded])
        tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
        ctx.call = call
        ctx.numbers = [None if isinstance(x, torch.Tensor) else _arrays.snapshot(x) for x in inputs]
        ctx.save_for_backward(*tensors, *results)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        call = ctx.call
        saved = iter(ctx.saved_tensors)
        inputs = [next(saved) if x is None else x for x in ctx.numbers]
        given = [*inputs, *saved, *[gradients[i].resolve_neg() for i in call._recorded]]

        def compute() -> tuple[Any, ...]:
            found = call.gradient(*given)
            made: list[Any] = [None] * len(inputs)
            for place, gradient in zip(call._places, found if isinstance(found, tuple) else (found,)):
                if ctx.needs_input_grad[1 + place]:
                    made[place] = gradient
            return (None, *made)

        return once(call.function.name, compute, *given)


def once(name: str, compute: Callable[[], tuple[Any, ...]], *inputs: Any) -> tuple[Any, ...]:
    """The gradients that `compute` returns. To differentiate them again is a NotImplementedError, even where
    once_differentiable of PyTorch records nothing: if no incoming gradient requires grad."""
    found: tuple[Any, ...] = _Once.apply(name, compute, *inputs) if torch.is_grad_enabled() else compute()
    return found


class _Once(torch.autograd.Function):  # type: ignore[misc]
    """Gradients that are differentiated again, which is an error."""

    @staticmethod
    def forward(ctx: Any, name: str, compute: Callable[[], tuple[Any, ...]], *inputs: Any) -> tuple[Any, ...]:
        ctx.name = name
        return compute()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise NotImplementedError(f"{ctx.name}: second derivatives are not supported")


__all__ = ["Differentiable", "differentiable"]
