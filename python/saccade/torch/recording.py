"""Records score, mask and weight functions that torch.compile traces.

Dynamo inlines the function into its graph, in which its arguments are 0-d tensors without elements. A function mode
records every call that involves them, and the records are constants for Dynamo. A function that is traced as constant
repeats the recorded calls on the tracer of regions, so both ways have the same semantics and the same errors.
"""

from __future__ import annotations

import concurrent.futures
import operator
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.fx.experimental.symbolic_shapes import has_static_value
from torch.overrides import TorchFunctionMode

from saccade.regions import Region, TraceError, trace
from saccade.regions.traced_function import PARAMETERS

_Result = TypeVar("_Result")
# Of a position or score and all that is computed from them: it has no elements, so no op computes anything.
_DEVICE = "meta"
_INDICES = (torch.int64, torch.int32, torch.int16, torch.int8)
_GETTERS = (torch.Tensor.__getitem__, operator.getitem)
# Functions that read the element of a position or score. Dynamo refuses them itself.
_READERS = (torch.Tensor.__bool__, torch.Tensor.__int__, torch.Tensor.__float__, torch.Tensor.__index__,
            torch.Tensor.item, torch.Tensor.tolist, torch.Tensor.numpy, torch.Tensor.__array__)  # fmt: skip

# A value in a record is a pair: "value" and the number of an argument or a call, "capture" and the number of a captured
# tensor, "float" and its hexadecimal digits, "constant" and the object, "tuple" or "list" and the items.
Value = tuple[str, Any]
Call = tuple[Any, tuple[Value, ...], tuple[tuple[str, Value], ...]]
Record = tuple[tuple[Call, ...], Value, tuple[tuple[torch.dtype, int], ...]]
"""The calls, the result, and element type and rank of the captured tensors."""


class Recorder(TorchFunctionMode):  # type: ignore[misc]
    """Records the calls of torch functions on positions and scores. Dynamo traces its methods."""

    def __init__(self, arguments: tuple[torch.Tensor, ...], precision: torch.dtype):
        super().__init__()
        self.values = list(arguments)
        self.captures: list[torch.Tensor] = []
        self.calls: list[Call] = []
        self.precision = precision

    def refer(self, x: Any) -> Value:
        """The reference to an argument of a recorded call. Captured tensors are numbered."""
        if isinstance(x, torch.Tensor):
            for i in range(len(self.values) - 1, -1, -1):  # an op in place returns a value again
                if self.values[i] is x:
                    return "value", i
            for i, known in enumerate(self.captures):
                if known is x:
                    return "capture", i
            if x.device.type == _DEVICE:
                raise TraceError("a function of saccade.attention computes with positions or scores in a way that "
                                 "torch.compile does not record: use functions and methods of torch")
            self.captures.append(x)
            return "capture", len(self.captures) - 1
        if isinstance(x, tuple):
            return "tuple", tuple([self.refer(item) for item in x])
        if isinstance(x, list):
            return "list", tuple([self.refer(item) for item in x])
        if isinstance(x, (int, float)) and not isinstance(x, bool) and not has_static_value(x):
            # A number that Dynamo treats as variable becomes a captured tensor.
            self.captures.append(torch.full((), x, dtype=torch.int64 if isinstance(x, int) else self.precision))
            return "capture", len(self.captures) - 1
        if isinstance(x, float):
            return "float", x.hex()
        return "constant", x

    def involves(self, x: Any) -> bool:
        """Whether an argument of a call contains a position, a score, or a value computed from them."""
        if isinstance(x, torch.Tensor):
            return bool(x.device.type == _DEVICE)
        if isinstance(x, (tuple, list)):
            for item in x:
                if self.involves(item):
                    return True
        return False

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _GETTERS and self.is_element(args[0], args[1]):
            count = len(args[1]) if isinstance(args[1], tuple) else 1
            result = torch.empty(args[0].shape[count:], dtype=args[0].dtype, device=_DEVICE)
        elif function in _READERS and self.involves(args):
            raise TraceError("a function of saccade.attention uses the value of a position or a score, which is "
                             "unknown while it is traced: write torch.where(condition, a, b), &, |, ~, torch.minimum "
                             "and torch.maximum instead of if, and, or, not, min() and max()")
        else:
            if not self.involves(args) and not self.involves(tuple(kwargs.values())):
                return function(*args, **kwargs)
            result = function(*[self.without_elements(x) for x in args],
                              **{name: self.without_elements(x) for name, x in kwargs.items()})
        if isinstance(result, torch.Tensor):
            self.calls.append((function, tuple([self.refer(x) for x in args]),
                               tuple([(name, self.refer(x)) for name, x in kwargs.items()])))
            self.values.append(result)
        elif self.involves(result):
            raise TraceError("a function of saccade.attention calls a function with several results on positions or "
                             "scores, which regions do not support")
        return result

    def without_elements(self, x: Any) -> Any:
        """An argument with captured tensors replaced by ones on the device of positions."""
        if isinstance(x, torch.Tensor) and x.device.type != _DEVICE:
            return torch.empty(x.shape, dtype=x.dtype, device=_DEVICE)
        if isinstance(x, (tuple, list)):
            return type(x)([self.without_elements(item) for item in x])
        return x

    def is_element(self, table: torch.Tensor, index: Any) -> bool:
        """Whether an index reads an element, or the part of a table at a position."""
        if table.device.type == _DEVICE:
            return True
        for item in index if isinstance(index, tuple) else (index,):
            if isinstance(item, torch.Tensor) and item.dim() == 0 and item.dtype in _INDICES:
                return True
        return False


def record(function: Callable[..., Any], role: str, precision: torch.dtype) -> tuple[Record, list[torch.Tensor]]:
    """The record of a function and the tensors that it captures. Dynamo traces this."""
    arguments = []
    for name in PARAMETERS[role]:
        arguments.append(torch.empty((), dtype=precision if name in "sp" else torch.int64, device=_DEVICE))
    recorder = Recorder(tuple(arguments), precision)
    with recorder:
        result = function(*arguments)
    returned = recorder.refer(result)
    types = tuple([(x.dtype, x.dim()) for x in recorder.captures])
    return (tuple(recorder.calls), returned, types), recorder.captures


def without_modes(function: Callable[..., _Result], *arguments: Any) -> _Result:
    """Calls a function on a thread of its own: modes of PyTorch, which record what a thread calls or give tensors
    without elements, do not affect it."""
    with concurrent.futures.ThreadPoolExecutor(1) as executor:
        return executor.submit(function, *arguments).result()


def region(recorded: Record, role: str, precision: str) -> tuple[Region, tuple[int, ...]]:
    """The region of a record, and the captured tensors that it reads, by number. Raises TraceError."""
    calls, returned, types = recorded
    # The tracer reads element types and ranks only.
    captures = [torch.empty((1,) * rank, dtype=dtype) for dtype, rank in types]

    def repeat(*arguments: Any) -> Any:
        values = list(arguments)

        def resolve(reference: Value) -> Any:
            kind, x = reference
            if kind in ("tuple", "list"):
                items = [resolve(item) for item in x]
                return tuple(items) if kind == "tuple" else items
            return values[x] if kind == "value" else captures[x] if kind == "capture" else \
                float.fromhex(x) if kind == "float" else x

        for function, args, kwargs in calls:
            values.append(function(*[resolve(x) for x in args], **{name: resolve(x) for name, x in kwargs}))
        return resolve(returned)

    repeat.__name__ = "<lambda>"  # messages give other names
    traced = trace(repeat, role, precision, bakes_numbers=True)
    numbers = [next(i for i, known in enumerate(captures) if known is x) for x in traced.captures]
    return traced, tuple(numbers)
