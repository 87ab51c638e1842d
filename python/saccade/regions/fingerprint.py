"""Fingerprints of functions: keys to find the kernel of a function that is created anew for every call without tracing
it.

A function is determined by its code and everything the code can access. Captured tensors are compared by element type
and rank, ints and floats by type and sign, since both are read at each call. Other scalars are compared by value,
functions by their own fingerprint, libraries by identity, and user modules by the attributes that any of the code
reads, as one function may pass a module to another. Other objects and user classes may change unnoticed, so functions
with them have no fingerprint.
"""

from __future__ import annotations

import builtins
import dis
import functools
import math
import sys
import types
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from saccade import _arrays
from saccade.regions.numbers import INTEGER_LIMIT, Number, is_variable
from saccade.regions.traced_function import is_library, names_in


class Fingerprint:
    """Functions with equal keys compute the same from their tensors and numbers, in order."""

    __slots__ = ("key", "tensors", "numbers")

    def __init__(self, key: Hashable, tensors: tuple[Any, ...], numbers: Sequence[int | float]):
        self.key, self.tensors = key, tensors
        self.numbers = numbers
        """The captured ints and floats. One that is read through several variables is several elements."""

    def values(self, chosen: Sequence[int]) -> tuple[Any, ...]:
        """The chosen numbers, for a key: 0.0 and -0.0 differ."""
        numbers = self.numbers
        return tuple([numbers[i] or str(numbers[i]) for i in chosen])

    def reads_types(self) -> bool:
        """Whether code may ask for the exact type of a number."""
        parts: Any = self.key
        return any(type(part) is _Code and part.reads_types for part in parts)

    def codes(self) -> tuple[Hashable, ...]:
        """The code of the function and of those that it calls."""
        parts: Any = self.key
        return tuple([part for part in parts if type(part) is _Code])


def fingerprint(function: Any) -> Fingerprint | None:
    """The fingerprint of a function in its current state, or None if it has none and must be traced at each call."""
    if type(function) is not types.FunctionType and type(function) is not functools.partial:
        return None
    parts = _Parts()
    tensors: list[Any] = []
    try:
        _value(function, parts, tensors)
        if parts.holders:
            _attributes(parts, tensors)
        # The type that torch converts Python floats to.
        if (torch := _arrays.torch_module()) is not None:
            parts.append(torch.get_default_dtype())
        return Fingerprint(tuple(parts), tuple(tensors), parts.numbers)
    except (_Opaque, RecursionError, ValueError):  # ValueError: an unbound cell
        return None


def numbers_of(function: Any) -> Sequence[Any]:
    """The numbers of a function in the order of its fingerprint. A copy of the function has Numbers in their places."""
    found = fingerprint(function)
    return () if found is None else found.numbers


class _Opaque(Exception):
    """Raised for objects that may change unnoticed."""


class _Parts(list[Any]):
    """The elements of a key."""

    __slots__ = ("holders", "numbers")

    def __init__(self) -> None:
        self.numbers: list[Any] = []
        self.holders: list[Any] = []  # user modules, and functions and tensors with attributes


# Builtins that access names or state that is not visible in the code.
_REFLECTIVE = {"getattr", "hasattr", "setattr", "delattr", "vars", "dir", "globals", "locals", "eval", "exec",
               "compile", "__import__", "open", "input"}  # fmt: skip


class _Code:
    """Properties of a code object. It represents the code in keys: it keeps it alive and is compared by identity, which
    is cheaper than comparing code."""

    __slots__ = ("code", "globals", "attributes", "is_opaque", "reads_types")

    def __init__(self, code: types.CodeType):
        self.code = code
        self.globals, self.attributes = names_in(code)
        self.reads_types = "type" in self.globals
        self.is_opaque = _has_effects(code) or not _REFLECTIVE.isdisjoint(self.globals)


def _has_effects(code: types.CodeType) -> bool:
    """Whether the code has side effects, imports other modules than libraries, or draws random numbers: np.random is
    part of a library, and libraries are not inspected."""
    for instruction in dis.get_instructions(code):
        name, argument = instruction.opname, instruction.argval
        if name in ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR", "STORE_SUBSCR"):
            return True
        if name in ("STORE_DEREF", "DELETE_DEREF") and argument in code.co_freevars:
            return True
        if name == "IMPORT_NAME" and (not is_library(types.ModuleType(argument)) or _is_random(argument)):
            return True
        if name in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") and argument == "random":
            return True
    return any(_has_effects(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))


def _is_random(module: str) -> bool:
    return module.startswith("numpy.random")


_codes: dict[int, _Code] = {}
_MAX_CODES = 4096


def _code_of(code: types.CodeType) -> _Code:
    known = _codes.get(id(code))
    if known is None:
        if len(_codes) >= _MAX_CODES:
            _codes.clear()  # cached keys with the old objects no longer match, nothing else
        known = _codes[id(code)] = _Code(code)
    return known


def _attributes(parts: _Parts, tensors: list[Any]) -> None:
    """Adds the attributes of user modules that the code reads, until there are no new ones: their values may contain
    further code and modules. Functions and tensors with attributes are rare and rejected."""
    done: set[tuple[int, str]] = set()
    while True:
        asked = {name for part in parts if type(part) is _Code for name in part.attributes}
        todo = [(holder, name) for holder in parts.holders for name in sorted(asked) if (id(holder), name) not in done]
        if not todo:
            return
        for holder, name in todo:
            done.add((id(holder), name))
            held = vars(holder)
            if name in held and isinstance(holder, types.ModuleType):
                parts += (holder, name)
                _value(held[name], parts, tensors)
            elif name in held or "__getattr__" in held:
                raise _Opaque


def _function(x: types.FunctionType, parts: _Parts, tensors: list[Any]) -> None:
    code = x.__code__
    known = _codes.get(id(code)) or _code_of(code)
    if parts and is_library(x):
        parts.append(x)
        return
    if known.is_opaque:
        raise _Opaque
    if x.__dict__:
        parts.holders.append(x)
    parts.append(known)
    if x.__closure__ is not None:
        for cell in x.__closure__:
            value = cell.cell_contents
            _HANDLERS.get(type(value), _unusual)(value, parts, tensors)
    if known.globals:
        names = x.__globals__
        for name in known.globals:
            if name not in names:
                parts.append(getattr(builtins, name, None))
            elif (value := names[name]) is not x:
                _HANDLERS.get(type(value), _unusual)(value, parts, tensors)
            else:  # a recursive function is visited once
                parts.append(_Code)
    # What is absent has an element, so that nothing that follows can stand for it.
    if x.__defaults__:
        _sequence(x.__defaults__, parts, tensors)
    else:
        parts.append(None)
    if x.__kwdefaults__:
        _dict(x.__kwdefaults__, parts, tensors)
    else:
        parts.append(None)


def _value(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    _HANDLERS.get(type(x), _unusual)(x, parts, tensors)


def _number(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    parts.append(type(x))
    parts.append(x)


# What the key has of a captured number. The analysis of ranges depends on the sign of an int.
_NATURAL, _NEGATIVE, _REAL = object(), object(), object()


def _int(x: int, parts: _Parts, tensors: list[Any]) -> None:
    if 0 <= x < INTEGER_LIMIT:
        parts.append(_NATURAL)
    elif -INTEGER_LIMIT < x < 0:
        parts.append(_NEGATIVE)
    else:
        parts += (int, x)
        return
    parts.numbers.append(x)


def _python_float(x: float, parts: _Parts, tensors: list[Any]) -> None:
    if is_variable(x):
        parts.append(_REAL)
        parts.numbers.append(x)
    else:
        _float(x, parts, tensors)


def _float(x: float, parts: _Parts, tensors: list[Any]) -> None:
    parts.append(type(x))
    # 0.0 == -0.0, but they differ in results.
    parts.append(x if x else math.copysign(1.0, x))
    parts.append(x)


def _variable(x: Number, parts: _Parts, tensors: list[Any]) -> None:
    """A Number in a copy of a function: `numbers_of` finds where the fingerprint has it."""
    parts.append(Number)
    parts.numbers.append(x)


def _complex(x: complex, parts: _Parts, tensors: list[Any]) -> None:
    parts.append(complex)
    _float(x.real, parts, tensors)
    _float(x.imag, parts, tensors)


def _range(x: range, parts: _Parts, tensors: list[Any]) -> None:
    # Ranges are equal if their elements are, but code can also read their bounds.
    parts += (range, x.start, x.stop, x.step)


def _tensor(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    number = 0
    for known in tensors:
        if known is x:
            break
        number += 1
    else:
        tensors.append(x)
        if getattr(x, "__dict__", None):
            parts.holders.append(x)
    parts += (type(x), x.dtype, x.ndim, number)


def _sequence(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    parts.append(type(x))
    parts.append(len(x))
    for item in x:
        _value(item, parts, tensors)


def _dict(x: dict[Any, Any], parts: _Parts, tensors: list[Any]) -> None:
    parts.append(dict)
    parts.append(len(x))
    for key, value in x.items():
        _value(key, parts, tensors)
        _value(value, parts, tensors)


def _partial(x: functools.partial[Any], parts: _Parts, tensors: list[Any]) -> None:
    if x.__dict__:
        raise _Opaque
    parts.append(functools.partial)
    _value(x.func, parts, tensors)
    _sequence(x.args, parts, tensors)
    _dict(x.keywords, parts, tensors)


_libraries: set[types.ModuleType] = set()


def _module(x: types.ModuleType, parts: _Parts, tensors: list[Any]) -> None:
    parts.append(x)
    if x in _libraries:
        return
    if _is_random(x.__name__):
        raise _Opaque
    if is_library(x):
        _libraries.add(x)
        return
    parts.holders.append(x)


def _builtin(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    owner = getattr(x, "__self__", None)
    if owner is not None and not isinstance(owner, (types.ModuleType, type)):
        raise _Opaque  # bound to an object that may change
    if not is_library(x) and (owner is None or not is_library(owner)) or x.__name__ in _REFLECTIVE:
        raise _Opaque
    parts.append(x)


def _class(x: type, parts: _Parts, tensors: list[Any]) -> None:
    if not is_library(x) or _is_random(x.__module__):
        raise _Opaque
    parts.append(x)


_HANDLERS: dict[type, Callable[[Any, _Parts, list[Any]], None]] = {
    int: _int, bool: _number, str: _number, bytes: _number, type(None): _number, type(...): _number,
    float: _python_float, Number: _variable, complex: _complex, range: _range, tuple: _sequence, list: _sequence,
    dict: _dict, types.FunctionType: _function, functools.partial: _partial, types.ModuleType: _module,
    types.BuiltinFunctionType: _builtin, type: _class,
}  # fmt: skip


def _unusual(x: Any, parts: _Parts, tensors: list[Any]) -> None:
    """Types that are not in _HANDLERS yet."""
    if (torch := sys.modules.get("torch")) is not None and hasattr(torch, "Tensor"):
        _HANDLERS.update({torch.Tensor: _tensor, torch.nn.Parameter: _tensor})
        _HANDLERS.update({torch.dtype: _number, torch.Size: _sequence})
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "ufunc"):
        _HANDLERS.update({numpy.ndarray: _tensor, numpy.ufunc: _number})
        _HANDLERS.update({kind: _number for kind in (numpy.bool_, *numpy.sctypeDict.values())
                          if issubclass(kind, (numpy.bool_, numpy.integer))})
        _HANDLERS.update({kind: _float for kind in numpy.sctypeDict.values() if issubclass(kind, numpy.floating)})
    kind = type(x)
    if kind in _HANDLERS:
        _HANDLERS[kind](x, parts, tensors)
    elif isinstance(x, type):
        _class(x, parts, tensors)
    elif (kind.__module__ == "torch._ops" or numpy is not None and isinstance(x, numpy.dtype)
          or kind.__name__ == "_ArrayFunctionDispatcher" and kind.__module__.startswith("numpy")):
        parts.append(x)
    else:
        raise _Opaque
