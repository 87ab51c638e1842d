"""Calls of compiled code in functions that torch.compile traces.

`saccade.attention` becomes an operator in the graph (saccade.torch.tracing). Other functions that call compiled code
are excluded: the graph ends before the call, and another one starts after it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def is_compiling() -> bool:
    """Whether torch.compile or torch.export traces the caller."""
    compiler = sys.modules.get("torch.compiler")
    return compiler is not None and compiler.is_compiling()


def call_untraced(function: Callable[..., _Result], name: str, /, *args: Any, **kwargs: Any) -> _Result:
    """Calls a function outside of the graph that torch.compile traces. `name` is that of messages."""
    torch = sys.modules["torch"]
    if torch.compiler.is_dynamo_compiling():
        torch._dynamo.graph_break(msg=f"saccade.{name} is opaque: it calls compiled code")
    result: _Result = torch.compiler.disable(function)(*args, **kwargs)
    return result


def opaque(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Excludes a function from tracing. It costs a Python call, so functions that are called often make the same
    distinction themselves."""
    name = function.__qualname__

    @functools.wraps(function)
    def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if is_compiling():
            return call_untraced(function, name, *args, **kwargs)
        return function(*args, **kwargs)

    return call
