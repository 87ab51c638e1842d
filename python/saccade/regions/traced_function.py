"""The function being traced: its title, captured variables and source lines for messages."""

from __future__ import annotations

import contextlib
import dis
import functools
import inspect
import linecache
import os
import sys
import traceback
import types
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TypeVar

from saccade._arrays import dimensions

PARAMETERS = {"score": ("s", "b", "h", "i", "j"), "mask": ("b", "h", "i", "j"),
              "weight": ("p", "b", "h", "i", "j"), "normalizer": ("s", "b", "h", "i", "j"),
              "tally": ("s", "b", "h", "i", "j")}  # fmt: skip
"""The parameters of the functions of each role."""

_PACKAGE_DIR = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")
_MEANINGS = {"s": "score of query i and key j", "p": "weight of key j for query i", "b": "batch index",
             "h": "head index", "i": "query index", "j": "key index"}  # fmt: skip


_Error = TypeVar("_Error", bound=Exception)

NUMPY: ContextVar[tuple[str, str]] = ContextVar("NUMPY", default=("np", "NumPy"))
"""The module that functions which are traced with NumPy were written with, in messages: its usual prefix and name."""
JAX = ("jnp", "jax.numpy")


@contextlib.contextmanager
def written_with(library: tuple[str, str]) -> Iterator[None]:
    """Messages about functions that are traced with NumPy have the names of another library."""
    token = NUMPY.set(library)
    try:
        yield
    finally:
        NUMPY.reset(token)


class TraceError(TypeError):
    """A score, mask, weight, normalizer or tally function that cannot be traced to a region."""

    __module__ = "saccade"


class TracedFunction:
    """A function of a role, with the errors recorded while it is traced."""

    def __init__(self, function: Callable[..., Any], role: str, device: str = "cpu"):
        self.function, self.role, self.device = function, role, device
        self.traced = function
        """What is called to trace the function: the function or a copy with numbers, lists or arrays replaced."""
        self.originals: dict[int, tuple[Any, Any]] = {}
        """By the id of a torch tensor that shares its memory with a captured NumPy array: the tensor and the array."""
        self.refused: Exception | None = None
        """The first error: the function, or torch, may have caught it."""

    @property
    def title(self) -> str:
        """E.g. "mask function 'causal'"."""
        name = getattr(self.function, "__name__", None) or type(self.function).__name__
        return f"{self.role} function" + ("" if name == "<lambda>" else f" '{name}'")

    def error(self, problem: str, cause: BaseException | None = None) -> TraceError:
        """Records and returns an error with the source line at fault: that of the traceback of `cause`, or the current
        one if this is called below the function's frame."""
        if cause is None:
            frames = list(traceback.walk_stack(sys._getframe(1)))
        else:
            frames = list(traceback.walk_tb(cause.__traceback__))[::-1]
        return self.refuse(TraceError(f"{self.title} {problem}{_place(frames)}"))

    def function_error(self, problem: str) -> TraceError:
        """Records and returns an error about the function as a whole, such as its return value, with its first line."""
        function: Any = self.function
        while isinstance(function, functools.partial):
            function = function.func
        if not isinstance(function, (types.FunctionType, types.MethodType)):
            function = getattr(type(function), "__call__", None)
        code = getattr(function, "__code__", None)
        place = _line(code.co_filename, code.co_firstlineno) if isinstance(code, types.CodeType) else ""
        return self.refuse(TraceError(f"{self.title} {problem}{place}"))

    def refuse(self, error: _Error) -> _Error:
        """Records the first error and returns `error`."""
        self.refused = self.refused or error
        return error

    def describe(self, argument: int | None, dtype: str) -> str:
        """The printed form of a proxy: argument `argument` of the role, or a computed value."""
        if argument is None:
            return f"<{dtype}, computed from positions or scores>"
        return f"<{_MEANINGS[PARAMETERS[self.role][argument]]}>"

    def name_of(self, x: object) -> str:
        """The quoted name of the variable through which the function captures the array `x`."""
        _, x = self.originals.get(id(x), (x, x))
        for name, value in variables(self.function):
            if value is x:
                return f"'{name}'"
        return "a captured array"

    def whole_error(self, x: Any) -> TraceError:
        """The error for computing with all elements of the captured array `x`, with how to read one of them."""
        name = self.name_of(x)
        index = ", ".join("0" if extent == 1 else letter for letter, extent in zip("bhij", x.shape))
        example = f", e.g. {name[1:-1]}[{index}]" if name.startswith("'") and " of " not in name else ""
        return self.error(f"computes with all of {name}, which has {dimensions(x.ndim)}: read an element{example}")

    def check_arity(self) -> None:
        """Raises if the function does not accept the arguments of its role."""
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
    """The values that a function can access through its closure, globals and defaults, and the values inside of them,
    up to `depth` levels: names and values."""
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
    """The values bound to the free and global names of a function's code; for user modules also the attributes that the
    code reads."""
    code = function.__code__
    names, attributes = names_in(code)
    bound = {name: function.__globals__[name] for name in names if name in function.__globals__}
    for name, cell in zip(code.co_freevars, function.__closure__ or ()):
        with contextlib.suppress(ValueError):  # an unbound cell
            bound[name] = cell.cell_contents
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
    """" of masks.window" for a function made by saccade.masks or saccade.scores, which users know by its parameters."""
    package, _, module = (function.__globals__.get("__name__") or "").partition(".")
    maker = function.__qualname__.partition(".")[0]
    return f" of {module}.{maker}" if package == "saccade" and module in ("masks", "scores") and maker.islower() else ""


def names_in(code: types.CodeType) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The global names and the attributes that code and its nested functions read, each in order."""
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


_LIBRARIES = {"torch", "numpy", "jax", "math", "operator", "functools", "builtins", "itertools", "typing", "cmath",
              "_operator", "_functools"}  # fmt: skip


def is_library(x: Any) -> bool:
    """Whether a module, function or class belongs to Python, torch, NumPy or JAX and is assumed constant. Functions
    with a closure, such as wrappers of user functions, do not."""
    if isinstance(x, types.FunctionType):
        name = x.__globals__.get("__name__") or ""  # functools.wraps copies __module__
    else:
        name = x.__name__ if isinstance(x, types.ModuleType) else getattr(x, "__module__", None) or ""
    return name.partition(".")[0] in _LIBRARIES and not getattr(x, "__closure__", None)


def _place(frames: list[tuple[types.FrameType, int]]) -> str:
    """The user's source line: the innermost frame outside of saccade, torch, NumPy and JAX."""
    for frame, number in frames:
        file = frame.f_code.co_filename
        package = (frame.f_globals.get("__name__") or "").partition(".")[0]
        if not file.startswith(_PACKAGE_DIR) and package not in ("torch", "numpy", "jax", "concurrent", "threading"):
            return _line(file, number)
    return ""


def _line(file: str, number: int) -> str:
    line = linecache.getline(file, number).strip()
    return f" ({os.path.basename(file)}, line {number}{f': {line}' if line else ''})"
