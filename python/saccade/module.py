"""Compiled programs: `compile` runs the compiler in this process, `Module` holds its result."""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from saccade import _log, _served, errors
from saccade._function_map import FunctionMap
from saccade._library import CacheInfo, Option, cache_info, compile_times, compiling, library, raise_error
from saccade._opaque import opaque
from saccade.function import Function, Handle


@opaque
def compile(program: str | bytes | os.PathLike[str], target: str = "host", **options: Any) -> Module:
    """Compiles a program for this machine or for a GPU.

    The same program with the same options is compiled once per process, and not at all if another process has compiled
    it (see `set_disk_cache`). Diagnostics of an accepted program are issued
    as warnings of class `saccade.Warning`.

    Args:
        program: MLIR as text (a string with a line break or "func.func" in it), as bytes (text or bytecode), or the
            path of a file with either (any other string, os.PathLike).
        target: the CPU target, "host" or one such as "v3" (docs/guides/compile.md); or the GPU target: "sm_75",
            "sm_80" or "sm_90a", which require no GPU to compile, or "cuda:1" for the newest that this GPU of this
            machine runs ("cuda": the first GPU).
        options: lint=True warns about likely mistakes in the program: a wrong scale, mask or alignment.
            remarks=True reports why a softmax was not raised to attention.
            prepack=True adds a function F__prepack for every function F: it computes the results that depend only on
            constant arguments, and F takes them as arguments. `F.bind(**weights)` calls it once. For CPUs only.
            insert_after=[(point, passes), ...] and insert_before=[...] run textual pass pipelines after and before a
            stage ("tiling") or a step of one ("transforms.raise").
            load_pass_plugin=path and load_dialect_plugin=path, or lists of paths, load passes and dialects from shared
            libraries, which stay loaded.
            transform_script=path, "POINT:path" or a list of them, runs scripts of the transform dialect before tiling
            or another point.
            schedule_table=path takes tile sizes of attention from a table that saccade.tune has written.
            verify=True verifies the program after every pass, not only after every stage.

    Raises:
        CompileError: the program is rejected; the message and `diagnostics` contain the locations and reasons.
        TypeError: an unknown option, or a program of another type.
        ValueError: an invalid option value, or an empty program.
        NotImplementedError: this machine cannot run code for the target.
        OSError: the file cannot be read.
        ImportError: the compiler's library or the LLVM libraries it requires are missing.
    """
    source, name = _read(program)
    return Module(source, name, _encode({"target": target, **options}))


def compile_model(program: str, prepack: bool, **options: Any) -> Module:
    """Compiles a program that an importer has read, for a CPU; `options` are those of `compile`.

    Raises:
        ValueError: a GPU target. The weights of models are bound and prepacked in memory of the host.
        CompileError: see `compile`.
    """
    target = options.get("target")
    if isinstance(target, str) and target.startswith(("sm_", "cuda")):
        raise ValueError(f"found target={target!r}, expected a CPU target: models run on CPUs only. "
                         f"`saccade.compile(read(MODEL).text, target={target!r})` compiles the program of a model, "
                         "whose weights are arguments")  # fmt: skip
    return compile(program, **{"prepack": prepack, **options})


class Module(FunctionMap[Function]):
    """A compiled program. Its public functions are its items and, if their names are valid Python, its attributes."""

    def __init__(self, source: bytes, name: str, options: tuple[tuple[str, str], ...]):
        """Called by `compile` with the program, its name in diagnostics, and the options of the C API."""
        self._source, self._name, self._options = source, name, options
        pointer = ctypes.c_void_p()
        with _log.step(f"compiling {name} for {self.target}") as step:
            before = cache_info() if _log.is_debug() or _served.is_on else None
            start = time.perf_counter_ns()
            with compiling() as (context, diagnostics):
                given = _arguments(context, source, name, options)
                if error := library().saccade_compile(*given, ctypes.byref(pointer)):
                    raise_error(error, tuple(diagnostics))
            self._handle = handle = Handle(pointer, (source, name, options))
            count = library().saccade_module_num_functions(pointer)
            functions = (Function(handle, library().saccade_module_function_at(pointer, i)) for i in range(count))
            self.functions: Mapping[str, Function] = MappingProxyType({each.name: each for each in functions})
            """The public functions by name, in program order."""
            step.done = f"{_origin(before)} {', '.join(self.functions)} of {name} for {self.target}"
            if _served.is_on:
                times = start, time.perf_counter_ns()
                origin = _origin(before).rstrip(":")
                _served.note_compiled(list(self.functions), origin, times,
                                      compile_times(pointer) if origin == "compiled" else {})
        for diagnostic in diagnostics:
            errors.warn(diagnostic.text)

    @property
    def target(self) -> str:
        """The target as passed to `compile`."""
        return dict(self._options)["target"]

    @opaque
    def ir(self, stage: str) -> str:
        """The program after a stage of the compiler, as text: "transforms", "schedule", "tiling", ..., then "llvm" and
        "asm", or for a GPU "llvm" and "ptx" of its kernels. Raises ValueError for an unknown name; the message lists
        all stages."""
        return self._text(library().saccade_print_stage, str(stage))[0]

    @opaque
    def explain(self, function: str | None = None, /, **sizes: int) -> str:
        """A report of each attention op: its kernels, the proven properties of its mask and softmax and, if sizes are
        given, the number of empty, full and partial tiles, the work, and a plot of the mask.

        Args:
            function: the function that the sizes apply to; None for all.
            sizes: dynamic extents b, h, q and k of an attention op, and integer arguments of a function by name.

        Raises:
            KeyError: an unknown function.
            ValueError: a negative size.
            TypeError: a size that is no int.

        An unused size is reported as a `saccade.Warning`. Example:

            >>> print(module.explain(b=1, q=4096, k=4096))
        """
        return self._explained(library().saccade_explain, function, sizes)

    @opaque
    def explain_record(self, function: str | None = None, /, **sizes: int) -> dict[str, Any]:
        """What `explain` reports, as the object of `saccade-compile --explain=json`: "version" and "reports", of which
        there is one. Arguments, errors and warnings are those of `explain`."""
        record: dict[str, Any] = json.loads(self._explained(library().saccade_explain_json, function, sizes))
        return record

    def _explained(self, query: Any, function: str | None, sizes: dict[str, int]) -> str:
        if function is not None and function not in self.functions:
            raise KeyError(f"the program has no public function {function!r}; {self._has()}")
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int):
                raise TypeError(f"size {name} is {size!r:.80}, expected an int")
        given = ",".join(f"{name}={size}" for name, size in sizes.items())
        argument = f"{function}:{given}" if function and given else given
        text, diagnostics = self._text(query, argument)
        for diagnostic in diagnostics:
            if "no attention uses" in diagnostic.text:
                errors.warn(diagnostic.text)
        return text

    def _text(self, query: Any, argument: str) -> tuple[str, list[errors.Diagnostic]]:
        return make_text(query, self._source, self._name, self._options, argument)

    def _title(self) -> str:
        return "the program has no public function"

    def __repr__(self) -> str:
        lines = [f"<saccade.Module {self._name!r} for {self.target}", *(f.signature for f in self.functions.values())]
        return "\n  ".join(lines) + ">"

    def __reduce__(self) -> tuple[Any, ...]:
        # Machine code is not pickled: the receiving process compiles the program again.
        return Module, (self._source, self._name, self._options)


def _origin(before: CacheInfo | None) -> str:
    """Where a program came from, by the statistics before it was requested. Other threads may have changed them."""
    now = cache_info() if before is not None else None
    if before is None or now is None or now.compilations > before.compilations:
        return "compiled"
    return "disk cache hit:" if now.disk_hits > before.disk_hits else "cache hit:"


def make_text(query: Any, source: bytes, name: str, options: tuple[tuple[str, str], ...],
              argument: str) -> tuple[str, list[errors.Diagnostic]]:
    """Calls `saccade_print_stage` or `saccade_explain` (`query`) and returns the text and the diagnostics. Neither
    requires a compiled program. Raises CompileError."""
    text = ctypes.c_void_p()
    with compiling() as (context, diagnostics):
        if error := query(*_arguments(context, source, name, options), argument.encode(), ctypes.byref(text)):
            raise_error(error, tuple(diagnostics))
    try:
        return ctypes.string_at(text.value or 0).decode(), diagnostics
    finally:
        library().saccade_text_free(text)


def _arguments(context: int, source: bytes, name: str, options: tuple[tuple[str, str], ...]) -> tuple[Any, ...]:
    """The leading arguments of the C API functions that take a program."""
    given = (Option * len(options))(*(Option(key.encode(), value.encode()) for key, value in options))
    return context, source, len(source), name.encode(), given, len(given)


def _read(program: str | bytes | os.PathLike[str]) -> tuple[bytes, str]:
    """The program's bytes, and its file name in diagnostics."""
    if isinstance(program, (str, bytes, bytearray)) and not program.strip():
        raise ValueError("program is empty, expected MLIR as text or bytes, or a path")
    if isinstance(program, (bytes, bytearray, memoryview)):
        return bytes(program), "<program>"
    if isinstance(program, str) and ("\n" in program or "func.func" in program):
        return program.encode(), "<program>"
    if not isinstance(program, (str, os.PathLike)):
        found = "None" if program is None else f"a {type(program).__name__}"
        raise TypeError(f"program is {found}, expected MLIR as text or bytes, or a path")
    try:
        with open(program, "rb") as file:
            return file.read(), os.fspath(program)
    except OSError as error:
        if isinstance(program, str):
            error.add_note('A string without a line break and without "func.func" is interpreted as a path.')
        raise


def _encode(options: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Options as strings for the C API; the C API provides the list of names."""
    lines = library().saccade_option_help().decode().splitlines()
    known = [line.split(":")[0].replace("-", "_") for line in lines]
    encoded = []
    for name, value in options.items():
        if name not in known:
            raise TypeError(f"compile() has no option {name!r}; it has: {', '.join(known)}")
        key = name.replace("_", "-")
        if name in ("insert_after", "insert_before"):
            encoded += [(key, f"{point}:{passes}") for point, passes in _pairs(name, value)]
        elif name in ("load_pass_plugin", "load_dialect_plugin", "transform_script"):
            encoded += [(key, path) for path in _paths(name, value)]
        elif name == "schedule_table" and isinstance(value, os.PathLike):
            encoded.append((key, os.fspath(value)))
        elif isinstance(value, bool):
            encoded.append((key, str(value).lower()))
        elif isinstance(value, (str, int)):
            encoded.append((key, str(value)))
        else:
            found = "None" if value is None else f"a {type(value).__name__}"
            raise TypeError(f"option {name} is {found}, expected a string, an int or a bool")
    return tuple(encoded)


def _paths(name: str, value: Any) -> list[str]:
    """The paths of an option that takes one or several; raises TypeError for anything else."""
    paths = value if isinstance(value, (list, tuple)) else [value]
    if not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise TypeError(f"option {name} is {value!r:.80}, expected a path or a list of paths")
    return [os.fspath(path) for path in paths]


def _pairs(name: str, value: Any) -> list[tuple[str, str]]:
    """Converts to (point, passes) pairs; raises TypeError for anything else."""
    pairs: list[Any]
    try:
        pairs = [(point, passes) for point, passes in value] if not isinstance(value, str) else [None]
    except (TypeError, ValueError):
        pairs = [None]
    if not all(pair and all(isinstance(text, str) for text in pair) for pair in pairs):
        raise TypeError(f"option {name} is {value!r:.80}, expected a list of (point, passes), both strings")
    return pairs
