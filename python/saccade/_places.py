"""Where a call of attention comes from: the module of PyTorch and the line of the user's code."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import weakref
from typing import Any

# Packages whose frames are no places of the user. Models of Transformers are.
_INNER = frozenset({"saccade", "torch", "jax", "jaxlib", "functools", "contextlib", "threading", "concurrent",
                    "einops"})
_MAX_DEPTH = 400
_names: weakref.WeakKeyDictionary[Any, dict[int, str]] = weakref.WeakKeyDictionary()


def of_call(module: Any = None) -> tuple[str, str]:
    """The module and the place of the call that this thread is in. `module` is the innermost module, if the caller
    knows it."""
    call = _module_call()
    place = ""
    inner, root = module, None
    frame: Any = sys._getframe(1)
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        if frame.f_code is call:
            root = frame.f_locals.get("self")
            inner = root if inner is None else inner
        elif not place and (frame.f_globals.get("__name__") or "").partition(".")[0] not in _INNER:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return "" if inner is None else name_of(inner, inner if root is None else root), place


def innermost_module() -> Any:
    """The innermost module of PyTorch that runs in this thread; None if there is none."""
    call = _module_call()
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code is not call:
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("self")


def name_of(module: Any, root: Any) -> str:
    """The qualified name of a module within another one; of that one, its class."""
    if module is root:
        return type(root).__name__
    names = _names.get(root)
    if names is None or id(module) not in names:
        names = _names[root] = {id(x): name for name, x in root.named_modules()}
    return names.get(id(module)) or type(module).__name__


def _module_call() -> Any:
    """The code of the function that calls `forward` of a module; None if torch is not imported."""
    return _code() if "torch" in sys.modules else None


@functools.cache
def _code() -> Any:
    import torch

    return torch.nn.Module._call_impl.__code__


def is_installed(place: str) -> bool:
    """Whether a place is in a package that is installed."""
    return any(place.startswith(folder) for folder in _installed_folders())


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    return tuple({sysconfig.get_path(name) + os.sep for name in ("purelib", "platlib")})


def is_inner_file(file: str) -> bool:
    """Whether a source file is one of Saccade or PyTorch."""
    return any(file.startswith(folder) for folder in _inner_folders())


@functools.cache
def _inner_folders() -> tuple[str, ...]:
    modules = [sys.modules[name] for name in sorted(_INNER) if getattr(sys.modules.get(name), "__file__", None)]
    return tuple(os.path.dirname(str(module.__file__)) + os.sep for module in modules
                 if os.path.basename(str(module.__file__)) == "__init__.py")
