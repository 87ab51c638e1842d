"""Notices modules of Transformers that compute attention themselves although attn_implementation="saccade" is set, for
`saccade.served`: their forward never calls the attention function. Global hooks of modules, only while there is a
report."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules import module as hooks

from saccade import _served
from saccade._places import name_of

REASON = "own code: the model computes this attention itself, whatever attn_implementation is"


class _Entered:
    """A module of attention that runs."""

    def __init__(self, module: Any):
        self.module = module
        self.has_calls = False
        """Whether the attention function was called in it, or a module in it is reported already."""


class _State(threading.local):
    def __init__(self) -> None:
        self.entered: list[_Entered] = []
        self.roots: list[Any] = []


_state = _State()


def called() -> None:
    """The attention function is called in this thread."""
    for entered in _state.entered:
        entered.has_calls = True


def _is_attention(module: Any, name: str) -> bool:
    """Whether a module is one of attention whose configuration asks for Saccade."""
    config = getattr(module, "config", None)
    return "Attention" in type(module).__name__ and getattr(config, "_attn_implementation", None) == name


def watch() -> Callable[[], None]:
    """Begins; returns the function that ends it."""
    from saccade.transformers.interface import NAME

    def enter(module: Any, arguments: Any) -> None:
        if torch.compiler.is_compiling():
            return
        if not _state.roots:
            _state.roots.append(module)
        if _is_attention(module, NAME):
            _state.entered.append(_Entered(module))

    def leave(module: Any, arguments: Any, result: Any) -> None:
        if torch.compiler.is_compiling():
            return
        root = _state.roots[0] if _state.roots else module
        try:
            if _state.entered and _state.entered[-1].module is module:
                entered = _state.entered.pop()
                if not entered.has_calls and result is not None:
                    called()
                    _report(module, root)
        finally:
            if module is root:
                _state.roots.clear()
                _state.entered.clear()

    handles = [hooks.register_module_forward_pre_hook(enter),
               hooks.register_module_forward_hook(leave, always_call=True)]

    def end() -> None:
        for handle in handles:
            handle.remove()

    return end


def _report(module: Any, root: Any) -> None:
    try:
        place = f"{inspect.getsourcefile(type(module))}:{inspect.getsourcelines(type(module).forward)[1]}"
    except (OSError, TypeError):  # a class without source
        place = ""
    _served.add(_served.Call(type(module).__name__, name_of(module, root), place, "", REASON))
