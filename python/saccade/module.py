"""Programs, compiled in this process."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from saccade import errors
from saccade._library import Option, compiling, library, raise_error
from saccade._opaque import opaque
from saccade.function import Function, Handle


@opaque
def compile(program: str | bytes | os.PathLike[str], target: str = "host", **options: Any) -> Module:
    """Compiles a program for this machine.

    Args:
        program: MLIR as text (a string with a line break or "func.func" in it) or as bytes (text or bytecode), or the
            path of a file with either (any other string, os.PathLike).
        target: the CPU target: "host", "portable", "v3", "v4" or "v4-bf16".
        options: lint=True warns about likely mistakes in the program: a wrong scale, mask or alignment.
            remarks=True says why a softmax did not become attention.
            prepack=True makes what a function F computes of its constant arguments alone a function F__prepack, whose
            results F takes: `F.bind(**weights)` calls it and remembers them.
            insert_after=[(stage, passes), ...] runs a textual pass pipeline after a stage.
            verify=False does not check the program after every pass.

    The same program with the same options is compiled once in a process. What it says of a program that it accepts are
    warnings of class `saccade.Warning`.

    Raises:
        CompileError: the program was refused; the message and `diagnostics` say where and why.
        TypeError: an unknown option, or a program of another type.
        ValueError: a value that an option does not have, or an empty program.
        NotImplementedError: this machine cannot run code for that target.
        OSError: the file could not be read.
        ImportError: the compiler's library is missing, or the LLVM that it needs.
    """
    source, name = _read(program)
    return Module(source, name, _encode({"target": target, **options}))


class Module:
    """A compiled program. Its public functions are its items and, where Python's syntax allows, its attributes."""

    def __init__(self, source: bytes, name: str, options: tuple[tuple[str, str], ...]):
        """As `compile` calls it: the program, its name in diagnostics, and the C API's options."""
        self._source, self._name, self._options = source, name, options
        pointer = ctypes.c_void_p()
        with compiling() as (context, diagnostics):
            if error := library().saccade_compile(*_arguments(context, source, name, options), ctypes.byref(pointer)):
                raise_error(error, tuple(diagnostics))
        self._handle = handle = Handle(pointer, (source, name, options))
        count = library().saccade_module_num_functions(pointer)
        functions = (Function(handle, library().saccade_module_function_at(pointer, i)) for i in range(count))
        self.functions: Mapping[str, Function] = MappingProxyType({function.name: function for function in functions})
        """The public functions by their names, in the order of the program."""
        for diagnostic in diagnostics:
            warnings.warn(errors.Warning(diagnostic.text), stacklevel=3)  # at the caller of `compile`

    @property
    def target(self) -> str:
        """The CPU target that it was compiled for, as it was asked for."""
        return dict(self._options)["target"]

    @opaque
    def ir(self, stage: str) -> str:
        """The program after a stage of the compiler, as text: "transforms", "schedule", "tiling", ..., then "llvm" and
        "asm". ValueError for another name, with all that there are."""
        return self._text(library().saccade_print_stage, str(stage))[0]

    @opaque
    def explain(self, function: str | None = None, /, **sizes: int) -> str:
        """A report: of each attention its kernels, what is proved of its mask and of its softmax, and, where sizes are
        given, how many tiles are empty, full and partial, the work, and a picture of the mask.

        Args:
            function: the function that the sizes are for; None for all.
            sizes: the extents b, h, q and k of an attention, where they are dynamic, and integer arguments of a function by
                their names.

        A size that nothing has a use for is a `saccade.Warning`. KeyError for a function that is not there, ValueError for a
        size that is negative, TypeError for one that is no int. Example:

            >>> print(module.explain(b=1, q=4096, k=4096))
        """
        if function is not None and function not in self.functions:
            raise KeyError(f"the program has no public function {function!r}; {self._has()}")
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"size {name} is {size!r:.80}, expected an int")
        given = ",".join(f"{name}={size}" for name, size in sizes.items())
        text, diagnostics = self._text(library().saccade_explain, f"{function}:{given}" if function and given else given)
        for diagnostic in diagnostics:
            if "no attention has a use for" in diagnostic.text:
                warnings.warn(errors.Warning(diagnostic.text), stacklevel=3)
        return text

    def _text(self, query: Any, argument: str) -> tuple[str, list[errors.Diagnostic]]:
        return make_text(query, self._source, self._name, self._options, argument)

    def _has(self) -> str:
        return f"it has: {', '.join(self.functions)}" if self.functions else "it has none"

    def __getitem__(self, name: str) -> Function:
        try:
            return self.functions[name]
        except KeyError:
            raise KeyError(f"the program has no public function {name!r}; {self._has()}") from None

    def __getattr__(self, name: str) -> Function:
        if name.startswith("_") or name == "functions":  # not there yet
            raise AttributeError(name)
        try:
            return self.functions[name]
        except KeyError:
            raise AttributeError(f"the program has no public function {name!r}; {self._has()}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __contains__(self, name: object) -> bool:
        return name in self.functions

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.functions]

    def __repr__(self) -> str:
        lines = [f"<saccade.Module {self._name!r} for {self.target}", *(f.signature for f in self.functions.values())]
        return "\n  ".join(lines) + ">"

    def __reduce__(self):
        # Code does not travel; another process compiles the program again.
        return Module, (self._source, self._name, self._options)


def make_text(query: Any, source: bytes, name: str, options: tuple[tuple[str, str], ...],
              argument: str) -> tuple[str, list[errors.Diagnostic]]:
    """A text that the library makes of a program, and what was said meanwhile. `ask` is `saccade_print_stage` or
    `saccade_explain`; neither needs the program compiled. Raises CompileError."""
    text = ctypes.c_void_p()
    with compiling() as (context, diagnostics):
        if error := query(*_arguments(context, source, name, options), argument.encode(), ctypes.byref(text)):
            raise_error(error, tuple(diagnostics))
    try:
        return ctypes.string_at(text.value).decode(), diagnostics
    finally:
        library().saccade_text_free(text)


def _arguments(context: int, source: bytes, name: str, options: tuple[tuple[str, str], ...]) -> tuple:
    """A program as all functions of the C API take it."""
    given = (Option * len(options))(*((key.encode(), value.encode()) for key, value in options))
    return context, source, len(source), name.encode(), given, len(given)


def _read(program: str | bytes | os.PathLike[str]) -> tuple[bytes, str]:
    """The program's bytes, and what stands for its file in diagnostics."""
    if isinstance(program, (str, bytes, bytearray)) and not program.strip():
        raise ValueError("program is empty, expected MLIR as text or bytes, or a path")
    if isinstance(program, (bytes, bytearray, memoryview)):
        return bytes(program), "<program>"
    if isinstance(program, str) and ("\n" in program or "func.func" in program):
        return program.encode(), "<program>"
    if not isinstance(program, (str, os.PathLike)):
        raise TypeError(f"program is a {type(program).__name__}, expected MLIR as text or bytes, or a path")
    try:
        with open(program, "rb") as file:
            return file.read(), os.fspath(program)
    except OSError as error:
        if isinstance(program, str):
            error.add_note('A string without a line break and without "func.func" is taken for a path.')
        raise


def _encode(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options as the C API takes them, which also knows their names."""
    lines = library().saccade_option_help().decode().splitlines()
    known = [line.split(":")[0].replace("-", "_") for line in lines]
    encoded = []
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"compile() has no option {name!r}; it has: {', '.join(known)}")
        key = name.replace("_", "-")
        if name == "insert_after":
            encoded += [(key, f"{stage}:{passes}") for stage, passes in _pairs(value)]
        elif isinstance(value, bool):
            encoded.append((key, str(value).lower()))
        elif isinstance(value, (str, int)):
            encoded.append((key, str(value)))
        else:
            raise TypeError(f"option {name} is a {type(value).__name__}, expected a string, a number or True or False")
    return tuple(encoded)


def _pairs(value: Any) -> list[tuple[str, str]]:
    """(stage, passes) pairs; TypeError for anything else."""
    try:
        pairs = [(stage, passes) for stage, passes in value] if not isinstance(value, str) else [None]
    except (TypeError, ValueError):
        pairs = [None]
    if not all(pair and all(isinstance(text, str) for text in pair) for pair in pairs):
        raise TypeError(f"option insert_after is {value!r:.80}, expected a list of (stage, passes), both strings")
    return pairs
