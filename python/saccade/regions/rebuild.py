"""Copies a function with its captured arrays, lists or numbers replaced."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable
from typing import Any

from saccade.regions.traced_function import is_library, names_in


def rebuild(function: Callable[..., Any], matches: Callable[[Any], bool],
            replace: Callable[[Any], Any]) -> Callable[..., Any]:
    """A copy of `function` with every `x` that `matches(x)` replaced by `replace(x)`: in its closure, globals and
    defaults, in those of functions it calls, in tuples, lists and dicts, and in attributes of objects and modules that
    it names. The original is unchanged."""
    return _rebuild(function, _Rebuilder(matches, replace))


def rebuild_numbers(function: Callable[..., Any], replace: Callable[[int | float], Any]) -> Callable[..., Any]:
    """The same for ints and floats. Numbers that are read through several variables are replaced for each of them:
    another function with the same fingerprint may have different numbers there."""
    return _rebuild(function, _NumberRebuilder(replace))


def _rebuild(function: Callable[..., Any], rebuilder: _Rebuilder) -> Callable[..., Any]:
    if not isinstance(function, (types.FunctionType, types.MethodType, functools.partial)):
        call = getattr(type(function), "__call__", None)
        function = types.MethodType(call, function) if isinstance(call, types.FunctionType) else function
    rebuilt: Callable[..., Any] = rebuilder.visit(function)
    return rebuilt


class _Rebuilder:
    """Copies what is reached by several paths once."""

    def __init__(self, matches: Callable[[Any], bool], replace: Callable[[Any], Any]):
        self.matches, self.replace = matches, replace
        self.done: dict[int, tuple[Any, Any]] = {}  # by id; the original is kept so that the id stays unique
        self.attributes: set[str] = set()  # read by the code visited so far

    def visit(self, x: Any) -> Any:
        if id(x) in self.done:
            return self.done[id(x)][1]
        if self.matches(x):
            new = self.replace(x)
        elif isinstance(x, types.FunctionType) and not is_library(x):
            return self._function(x)
        elif isinstance(x, functools.partial):
            new = functools.partial(self.visit(x.func), *map(self.visit, x.args),
                                    **{key: self.visit(value) for key, value in x.keywords.items()})
        elif isinstance(x, types.MethodType):
            new = types.MethodType(self.visit(x.__func__), self.visit(x.__self__))
        elif type(x) in (tuple, list):
            new = type(x)([self.visit(item) for item in x])
        elif type(x) is dict:
            new = {key: self.visit(value) for key, value in x.items()}
        elif isinstance(x, types.ModuleType) and not is_library(x):
            new = self._module(x)
        elif self._holds(x):
            new = self._object(x)
        else:
            new = x
        self.done[id(x)] = (x, new)
        return new

    def _holds(self, x: Any) -> bool:
        """Whether `x` is a plain object with arrays among its attributes."""
        held = getattr(x, "__dict__", None)
        return (type(held) is dict and not isinstance(x, type) and not is_library(type(x))
                and any(self.matches(value) for value in held.values()))

    def _object(self, x: Any) -> Any:
        """A copy of an object; the object itself if its class requires arguments."""
        try:
            kind: Any = type(x)
            new = kind.__new__(kind)
        except TypeError:
            return x
        self.done[id(x)] = (x, new)
        for key, value in vars(x).items():
            vars(new)[key] = self.visit(value) if self.matches(value) else value
        return new

    def _module(self, x: types.ModuleType) -> types.ModuleType:
        """A copy of a module; attributes that code reads are visited."""
        new = types.ModuleType(x.__name__)
        self.done[id(x)] = (x, new)
        for key, value in vars(x).items():
            vars(new)[key] = self.visit(value) if key in self.attributes else value
        return new

    def _function(self, x: types.FunctionType) -> types.FunctionType:
        global_names, attributes = names_in(x.__code__)
        self.attributes.update(attributes)
        cells = tuple([types.CellType() for _ in x.__closure__ or ()])
        names = {"__builtins__": x.__globals__.get("__builtins__", __builtins__),
                 "__name__": x.__globals__.get("__name__", "")}
        new = types.FunctionType(x.__code__, names, x.__name__, None, cells or None)
        self.done[id(x)] = (x, new)  # registered first: it may refer to itself
        for cell, old in zip(cells, x.__closure__ or ()):
            with contextlib.suppress(ValueError):  # an unbound cell
                cell.cell_contents = self.visit(old.cell_contents)
        names.update({name: self.visit(x.__globals__[name]) for name in global_names if name in x.__globals__})
        new.__defaults__ = self.visit(x.__defaults__)
        new.__kwdefaults__ = self.visit(x.__kwdefaults__)
        new.__dict__.update(x.__dict__)
        return new


class _NumberRebuilder(_Rebuilder):
    """Copies functions and containers once for every path to them. Dict keys, objects and what they hold stay."""

    def __init__(self, replace: Callable[[Any], Any]):
        super().__init__(lambda x: type(x) in (int, float), replace)

    def visit(self, x: Any) -> Any:
        if self.matches(x):
            return self.replace(x)
        is_known = id(x) in self.done
        new = super().visit(x)
        if not is_known and not isinstance(x, types.ModuleType):
            self.done.pop(id(x), None)
        return new

    def _holds(self, x: Any) -> bool:
        return False
