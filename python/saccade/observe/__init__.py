"""`saccade.observe`: the attention of a model, by layer and head, over steps of training or inference.

    >>> with saccade.observe(model, every=100) as record:
    ...     train(model)
    >>> print(record)

The package is the function `session.observe`, and has these names beside it. It imports torch at the first call.
"""

from __future__ import annotations

import importlib
import sys
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saccade.observe import writers
    from saccade.observe.events import Thresholds
    from saccade.observe.record import Event, Layer, Record
    from saccade.observe.session import Step

_LAZY = {"Event": "record", "Layer": "record", "Record": "record", "Step": "session", "Thresholds": "events"}
_MODULES = ("report", "writers")


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"saccade.observe.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'saccade.observe' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"saccade.observe.{_LAZY[name]}"), name)
    return value


class _Package(types.ModuleType):
    """The package as a function."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        from saccade.observe.session import observe

        return observe(*args, **kwargs)


sys.modules[__name__].__class__ = _Package

__all__ = ["Event", "Layer", "Record", "Step", "Thresholds", "writers"]
