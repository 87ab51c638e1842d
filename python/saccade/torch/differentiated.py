"""The programs of operator calls that are differentiated."""

from __future__ import annotations

import functools
from typing import Any

import torch

from saccade import _program


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


def target_of(q: torch.Tensor, target: str = "host") -> str:
    """The target of `saccade.compile`, where "host" also stands for the GPU of q."""
    return f"cuda:{q.get_device()}" if target == "host" and q.is_cuda else target
