"""The function being traced: what messages call it, its variables and the line at fault."""

from __future__ import annotations

import dis
import functools
import inspect
import linecache
import os
import sys
import traceback
import types
from typing import Any, Callable, Iterator

PARAMETERS = {"score": ("s", "b", "h", "i", "j"), "mask": ("b", "h", "i", "j"),
              "weight": ("p", "b", "h", "i", "j")}  # fmt: skip
"""What functions of each role are called with."""

_PACKAGE_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_MEANINGS = {"s": "score of query i and key j", "p": "weight of key j for query i", "b": "batch index", "h": "head index", "i": "query index",
             "j": "key index"}  # fmt: skip


class TraceError(TypeError):
    """A score, mask or weight function does what cannot become part of a kernel."""

    __module__ = "saccade"


class Subject:
    """A score, mask or weight function, for messages."""

    def __init__(self, function: Callable, role: str):
        self.function, self.role = function, role
        self.refused: Exception | None = None
        """The first thing that was wrong: the function, or torch, may have swallowed it."""

    @property
    def title(self) -> str:
        """E.g. "mask function 'causal'"."""
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return f"{self.role} function" + ("" if name == "<lambda>" else f" '{name}'")

    def error(self, problem: str, cause: BaseException | None = None) -> TraceError:
        """The exception for what the function did to raise `cause`, or without one does at this moment: then call it
        from below the function's frame."""
        if cause is None:
            frames = list(traceback.walk_stack(sys._getframe(1)))
        else:
            frames = list(traceback.walk_tb(cause.__traceback__))[::-1]
        return self.refuse(TraceError(f"{self.title} {problem}{_place(frames)}"))

    def function_error(self, problem: str) -> TraceError:
        """The exception for what is wrong with the function as a whole, such as what it returned: with its first
        line."""
        function = self.function
        while isinstance(function, functools.partial):
            function = function.func
        if not isinstance(function, (types.FunctionType, types.MethodType)):
            function = getattr(type(function), "__call__", None)
        code = getattr(function, "__code__", None)
        place = _line(code.co_filename, code.co_firstlineno) if isinstance(code, types.CodeType) else ""
        return self.refuse(TraceError(f"{self.title} {problem}{place}"))

    def refuse(self, error: Any) -> Any:
        """Remembers what was wrong."""
        self.refused = self.refused or error
        return error

    def describe(self, argument: int | None, dtype: str) -> str:
        """What stands for a value where the function prints one: the role's argument of that number, or something
        computed."""
        if argument is None:
            return f"<{dtype}, computed from positions or scores>"
        return f"<{_MEANINGS[PARAMETERS[self.role][argument]]}>"

    def name_of(self, x: object) -> str:
        """The variable through which the function reaches the array `x`, in quotes."""
        for name, value in variables(self.function):
            if value is x:
                return f"'{name}'"
        return "a captured array"

    def check_arity(self) -> None:
        """Raises where the function surely does not take its arguments."""
        expected = PARAMETERS[self.role]
        if not callable(self.function):
            found = type(self.function).__name__
            raise TraceError(f"{self.role} is a {found}, expected a function of ({', '.join(expected)})")
        try:
            signature = inspect.signature(self.function)
        except (TypeError, ValueError):
            return
        try:
            signature.bind(*expected)
        except TypeError:
            raise self.function_error(f"takes {signature}, expected ({', '.join(expected)})") from None


def variables(function: Any, prefix: str = "", depth: int = 6) -> Iterator[tuple[str, object]]:
    """The values that a function reaches through its closure, globals and defaults, and those inside of them: names and
    values, as far as `depth` steps from it."""
    if depth == 0:
        return
    inner: list[tuple[str, object]] = []
    if isinstance(function, functools.partial):
        inner = [("func", function.func), *enumerate_as("args", function.args), *function.keywords.items()]
    elif isinstance(function, types.MethodType):
        inner = [("self", function.__self__), (function.__name__, function.__func__)]
    elif isinstance(function, types.FunctionType):
        inner = list(bindings(function))
    elif isinstance(function, (tuple, list)):
        inner = list(enumerate_as("", function))
    elif isinstance(function, dict):
        inner = [(f"[{key!r}]", value) for key, value in function.items()]
    elif isinstance(function, types.ModuleType) or type(function).__module__ in ("builtins", "torch", "numpy"):
        return
    elif hasattr(function, "__dict__"):
        prefix = prefix or "self"
        for key, value in vars(function).items():
            if key in ("_parameters", "_buffers", "_modules") and isinstance(value, dict):  # attributes of an nn.Module
                inner += [(f".{name}", held) for name, held in value.items()]
            else:
                inner.append((f".{key}", value))
    for name, value in inner:
        full = prefix + name if name.startswith((".", "[")) else name
        yield full, value
        yield from variables(value, full, depth - 1)


def enumerate_as(name: str, values: Any) -> Iterator[tuple[str, object]]:
    """(name[0], values[0]), (name[1], values[1]), ..."""
    return ((f"{name}[{i}]", value) for i, value in enumerate(values))


def bindings(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """What the names in a function's code mean, as far as they are bound outside of it; those of modules of the user's
    with the attributes that it asks for."""
    code = function.__code__
    names, attributes = names_in(code)
    bound = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        try:
            bound[name] = cell.cell_contents
        except ValueError:  # not bound yet
            pass
    parameters = code.co_varnames[: code.co_argcount]
    defaults = function.__defaults__ or ()
    bound.update(zip(parameters[len(parameters) - len(defaults):], defaults))
    bound.update(function.__kwdefaults__ or {})
    suffix = _given_to(function)
    for name, value in bound.items():
        yield name + suffix, value
        if isinstance(value, types.ModuleType) and not is_library(value):
            yield from ((f"{name}.{asked}", vars(value)[asked]) for asked in attributes if asked in vars(value))


def _given_to(function: types.FunctionType) -> str:
    """" of masks.window" for a function that our library made: users know it by its parameters."""
    package, _, module = (function.__globals__.get("__name__") or "").partition(".")
    maker = function.__qualname__.partition(".")[0]
    return f" of {module}.{maker}" if package == "saccade" and module in ("masks", "scores") and maker.islower() else ""


def names_in(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global names and the attributes that code and the functions made in it read, each in order."""
    names: dict[str, None] = {}
    attributes: dict[str, None] = {}
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            names[instruction.argval] = None
        elif instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes[instruction.argval] = None
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            inner, asked = names_in(constant)
            names.update(dict.fromkeys(inner))
            attributes.update(dict.fromkeys(asked))
    return tuple(names), tuple(attributes)


_LIBRARIES = {"torch", "numpy", "math", "operator", "functools", "builtins", "itertools", "typing", "cmath", "_operator",
              "_functools"}  # fmt: skip


def is_library(x: Any) -> bool:
    """Whether a module, function or class is one that nobody changes: of Python, torch or NumPy. Functions that these
    make around the user's have a closure, and are not."""
    if isinstance(x, types.FunctionType):
        name = x.__globals__.get("__name__") or ""  # wrappers may say that they are of the module of what they wrap
    else:
        name = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None) or ""
    return name.partition(".")[0] in _LIBRARIES and not getattr(x, "__closure__", None)


def _place(frames: list[tuple[types.FrameType, int]]) -> str:
    """Where in the user's code we are: the first of the frames, innermost first, that is neither ours nor torch's nor
    NumPy's."""
    for frame, number in frames:
        file = frame.f_code.co_filename
        package = (frame.f_globals.get("__name__") or "").partition(".")[0]
        if not file.startswith(_PACKAGE_DIR) and package not in ("torch", "numpy"):
            return _line(file, number)
    return ""


def _line(file: str, number: int) -> str:
    line = linecache.getline(file, number).strip()
    return f" ({os.path.basename(file)}, line {number}{f': {line}' if line else ''})"
