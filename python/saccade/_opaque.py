"""Excludes functions from tracing by torch.compile.

Dynamo skips a function with the attribute that `torch._dynamo.disable` sets; setting it requires no torch. Dynamo ends
its graph at the call and starts another one after it. Skipping the frames below the call requires torch's own API.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar

_Function = TypeVar("_Function", bound=Callable[..., Any])
_codes: list[types.CodeType] = []
_is_registered = False


class _Reason(str):
    """The reason that torch.compile prints for a skipped function. Dynamo formats it before any frame of the function
    runs, so torch is imported by then and its frame API can be called."""

    def __format__(self, spec: str) -> str:
        skip_dynamo_frames()
        return super().__format__(spec)


def opaque(function: _Function) -> _Function:
    """Marks a function that torch.compile must not trace."""
    marked: Any = function
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = _Reason(f"saccade.{function.__qualname__} is opaque: it calls compiled code")
    _codes.append(function.__code__)
    return function


def skip_dynamo_frames() -> None:
    """Disables Dynamo for all frames below the marked functions; torch must be imported. Otherwise, Dynamo compiles
    parts of them and warns about the rest."""
    global _is_registered
    if _is_registered:
        return
    _is_registered = True
    try:
        evaluation = sys.modules["torch"]._C._dynamo.eval_frame
        skip = evaluation._FrameAction.SKIP
        strategy = evaluation._FrameExecStrategy(skip, skip)  # for the frame and for its callees
        for code in _codes:
            evaluation.set_code_exec_strategy(code, strategy)
    except (AttributeError, TypeError):  # a private API of torch
        pass
