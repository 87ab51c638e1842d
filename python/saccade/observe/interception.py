"""Calls of attention reach an observer: those of PyTorch's functions, of `nn.MultiheadAttention` that returns weights,
and of the functions of Transformers' models."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

from saccade import _served
from saccade.observe.calls import INTERFACES
from saccade.torch import overrides

_lock = threading.RLock()
_users = 0
_restore: list[Callable[[], None]] = []


@contextlib.contextmanager
def intercepted(observer: _served.Observer) -> Iterator[None]:
    """The observer sees the calls of this thread in this block. What they return does not change, except that PyTorch's
    fast path of inference, which calls none of these functions, is off."""
    with overrides.installed(), _replaced(), _served.observed(observer):
        yield


@contextlib.contextmanager
def _replaced() -> Iterator[None]:
    global _users
    with _lock:
        if not _users:
            _restore.append(_replace(F, "multi_head_attention_forward", _multi_head))
            if "transformers" in sys.modules:
                from transformers.modeling_utils import AttentionInterface

                _restore.append(_replace(AttentionInterface, "get_interface", _interface))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            while not _users and _restore:
                _restore.pop()()


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> Callable[[], None]:
    """Replaces a function by `function(original, *args, **kwargs)`; returns what restores it."""
    original = getattr(owner, name)
    is_own = name in vars(owner)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(original, *args, **kwargs)

    setattr(owner, name, call)
    return lambda: setattr(owner, name, original) if is_own else delattr(owner, name)


def _multi_head(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """PyTorch computes weights that are returned op by op. The same call without them, which is observed, follows."""
    result = original(*args, **kwargs)
    if not _served.is_observed():
        return result
    named = inspect.signature(original).bind(*args, **kwargs)
    named.apply_defaults()
    if named.arguments["need_weights"]:
        named.arguments |= {"need_weights": False, "training": False}
        with torch.no_grad():
            original(*named.args, **named.kwargs)
    return result


def _interface(original: Callable[..., Any], self: Any, name: str, default: Any) -> Any:
    function = original(self, name, default)
    if name not in INTERFACES or not _served.is_observed():
        return function

    @functools.wraps(function)
    def call(module: Any, query: Any, key: Any, value: Any, attention_mask: Any, *args: Any, **kwargs: Any) -> Any:
        given = (module, query, key, value, attention_mask, *args)
        return _served.observe(INTERFACES[name], lambda: function(*given, **kwargs), (query, key, value), module,
                               arguments=(given, kwargs), is_counted=False)

    return call
