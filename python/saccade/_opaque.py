"""Functions that torch.compile leaves as they are.

It knows them by an attribute, that of `torch._dynamo.disable`, which needs no torch: where it meets one, it ends its
graph, and begins another behind the call. The frames of the call are none of its business either, but only torch can
be told so.
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
    """What torch.compile says where it meets such a function. It writes that before any frame of the function runs: the
    moment to tell it, since torch may have been imported after us."""

    def __format__(self, spec: str) -> str:
        skip_dynamo_frames()
        return super().__format__(spec)


def opaque(function: _Function) -> _Function:
    """Marks a function whose calls torch.compile shall not look into."""
    marked: Any = function
    marked._torchdynamo_disable = True
    marked._torchdynamo_disable_msg = _Reason(f"saccade.{function.__qualname__} is opaque: it calls compiled code")
    _codes.append(function.__code__)
    return function


def skip_dynamo_frames() -> None:
    """Has torch, which is in the process, leave alone what our functions call. Without that it still works, but
    compiles pieces of them, and warns of the rest."""
    global _is_registered
    if _is_registered:
        return
    _is_registered = True
    try:
        evaluation = sys.modules["torch"]._C._dynamo.eval_frame
        skip = evaluation._FrameAction.SKIP
        strategy = evaluation._FrameExecStrategy(skip, skip)  # for the frame, and for all that it calls
        for code in _codes:
            evaluation.set_code_exec_strategy(code, strategy)
    except (AttributeError, TypeError):  # not promised to stay where it is
        pass
