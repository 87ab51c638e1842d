"""Shared libraries of `saccade-compile --emit=so`, loaded without the compiler."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_void_p
from types import MappingProxyType
from typing import Any, NoReturn

from saccade import _arrays, _elf, _gpu
from saccade._arrays import Array
from saccade._function_map import FunctionMap
from saccade._library import ERRORS, DataType, ValueInfo
from saccade._opaque import opaque
from saccade.function import Function, Shape


class _ValueType(ctypes.Structure):
    """SaccadeValueType of include/saccade/Runtime/Entry.h."""

    _fields_ = [
        ("name", c_char_p),
        ("text", c_char_p),
        ("extents", POINTER(c_int64)),
        ("rank", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("updated_by", c_uint16),
    ]


class _Entry(ctypes.Structure):
    """The first members of SaccadeEntry."""

    _fields_ = [
        ("version", c_int32),
        ("num_inputs", c_int32),
        ("num_results", c_int32),
        ("target", c_int32),
        ("name", c_char_p),
        ("values", POINTER(_ValueType)),
    ]


_CALL = [c_void_p, c_void_p, c_int32]
_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "saccade_entry_call": (c_int32, _CALL),
    "saccade_entry_shapes": (c_int32, [*_CALL, POINTER(c_int64)]),
    "saccade_entry_target": (c_char_p, [c_void_p]),
    "saccade_entry_last_error": (c_char_p, []),
    "saccade_set_cpu_limit": (c_char_p, [c_char_p]),
}
_GPU_FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {"saccade_entry_call_on_stream": (c_int32, [*_CALL, c_void_p])}
_INTEGER, _BOOL, _FLOAT, _TENSOR = 1, 2, 3, 7  # SaccadeArgumentKind


class _Library:
    """A mapped library."""

    def __init__(self, path: str, note: _elf.Note):
        self.path, self.note = path, note
        self.cpu_targets = tuple(target for target in note.targets if not target.startswith("sm_"))
        self.gpu_targets = tuple(target for target in note.targets if target.startswith("sm_"))
        try:
            self.functions = ctypes.CDLL(path, mode=os.RTLD_LOCAL | os.RTLD_NOW)
        except OSError as error:
            raise ImportError(f"{path} cannot be loaded: {error}", path=path) from error
        for name, (result, arguments) in {**_FUNCTIONS, **(_GPU_FUNCTIONS if self.gpu_targets else {})}.items():
            function = getattr(self.functions, name)
            function.restype, function.argtypes = result, arguments

    def address(self, symbol: str) -> int:
        return ctypes.addressof(c_uint8.in_dll(self.functions, symbol))

    def check(self, status: int) -> None:
        """Raises the exception for a SaccadeStatus other than success."""
        if status:
            raise ERRORS[status](self.functions.saccade_entry_last_error().decode(errors="replace"))


class LoadedFunction(Function):
    """A function of a loaded library. It is called as a `Function`. If the library has code for CPUs and for GPUs, the
    tensors of a call choose. A copy is the same function; unpickling loads the library again."""

    def __init__(self, library: _Library, name: str, device: str):
        """Called by `load`, for tensors on `device`: "cpu" or "cuda"."""
        self._library = library
        self._handle = library  # type: ignore[assignment]  # what a TVM-FFI function keeps alive
        self._table = library.address(f"__saccade_entry_{name}")
        entry = _Entry.from_address(self._table)
        values = [entry.values[i] for i in range(entry.num_inputs + entry.num_results)]
        infos = [ValueInfo(v.name, v.text, DataType(v.code, v.bits, 1), v.rank, v.extents, v.updated_by - 1)
                 for v in values]  # fmt: skip
        self._set_signature(name, infos, entry.num_inputs, device == "cuda")
        both = device == "cpu" and library.gpu_targets
        self._on_gpu: LoadedFunction | None = LoadedFunction(library, name, "cuda") if both else None

    @property
    def target(self) -> str | None:
        """The CPU target whose code calls on CPU tensors run; None if the library has none for this processor."""
        name: bytes | None = self._library.functions.saccade_entry_target(self._table)
        return name.decode() if name is not None else None

    @opaque
    def __call__(self, /, *inputs: Any, out: Array | tuple[Array, ...] | None = None, stream: Any = None,
                 **named: Any) -> Any:
        """As `Function.__call__`; with a tensor on a GPU, the GPU runs the call."""
        return self._choose(*inputs, *named.values())._call_here(*inputs, out=out, stream=stream, **named)

    @opaque
    def into(self, *values: Any, stream: Any = None) -> None:
        """As `Function.into`; with a tensor on a GPU, the GPU runs the call."""
        Function.into(self._choose(*values), *values, stream=stream)

    @opaque
    def result_shapes(self, /, *inputs: Any, **named: Any) -> tuple[Shape, ...]:
        """As `Function.result_shapes`."""
        return Function.result_shapes(self._choose(*inputs, *named.values()), *inputs, **named)

    def bind(self, /, **values: Any) -> NoReturn:
        """Not available: raises TypeError. A library compiled with --prepack has F__prepack, whose results F takes."""
        prepack = f"{self.name}__prepack"
        recipe = (f"call {prepack} once, and give its results to each call of {self.name}"
                  if prepack in self._library.note.functions else f"compile with --prepack and call {prepack} once")
        raise TypeError(f"{self.name} is loaded from {self._library.path}, which cannot be compiled again to bind "
                        f"arguments: {recipe}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _load_function, (self._library.path, self.name)

    def _call_here(self, /, *inputs: Any, **named: Any) -> Any:
        return Function.__call__(self, *inputs, **named)

    def _choose(self, *values: Any) -> LoadedFunction:
        if self._on_gpu is not None and any(_gpu.ordinal_of(value) is not None for value in values):
            return self._on_gpu
        return self

    def _tvm_ffi_address(self) -> int:
        return self._library.address(f"__tvm_ffi_{self.name}")

    def _query_sizes(self, described: list[Any], sizes: ctypes.Array[ctypes.c_int64]) -> None:
        memory, arguments = _encode_arguments(described)
        compute = self._library.functions.saccade_entry_shapes
        self._library.check(compute(self._table, arguments, len(described), sizes))
        del memory  # the tensors of `arguments`

    def _run(self, described: list[Any], stream: int | None = None) -> None:
        memory, arguments = _encode_arguments(described)
        functions = self._library.functions
        if stream is None:
            status = functions.saccade_entry_call(self._table, arguments, len(described))
        else:
            status = functions.saccade_entry_call_on_stream(self._table, arguments, len(described), stream)
        self._library.check(status)
        del memory


def _encode_arguments(described: list[Any]) -> tuple[Any, ctypes.Array[c_int64]]:
    """SaccadeArgument[len(described)], and the memory of the DLTensors that it points to."""
    memory = _arrays.encode_values(described)
    slots: list[int] = []
    for i, value in enumerate(described):
        if type(value) is tuple:
            slots += _TENSOR, memory[3 * i]
        elif type(value) is float:
            slots += _FLOAT, memory[3 * i + 2]
        else:
            slots += _BOOL if type(value) is bool else _INTEGER, memory[3 * i + 1]
    return memory, (c_int64 * len(slots))(*slots)


class Artifact(FunctionMap[LoadedFunction]):
    """A loaded library. Its functions are its items and, if their names are valid Python, its attributes."""

    def __init__(self, path: str | os.PathLike[str]):
        """Called by `load`."""
        self._library = library = _Library(os.path.abspath(path), _elf.read_note(path))
        device = "cpu" if library.cpu_targets else "cuda"
        self.functions: Mapping[str, LoadedFunction] = MappingProxyType(
            {name: LoadedFunction(library, name, device) for name in library.note.functions}
        )
        """The functions by name, in program order."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the library has code for: CPU targets in the order in which a call tries
        them, then GPUs."""
        return self._library.note.targets

    @property
    def target(self) -> str | None:
        """The CPU target whose code calls on CPU tensors run; None if the library has none for this processor."""
        return next(iter(self.functions.values())).target

    def set_cpu_limit(self, target: str | None) -> None:
        """Limits calls of all loaded libraries of the process to code that runs on processors of the CPU target
        `target`, such as "v3"; None removes the limit. Code that `saccade.compile` compiles is not affected. Raises
        ValueError for a name that is no target of this architecture."""
        encoded = None if target is None else target.encode()
        if message := self._library.functions.saccade_set_cpu_limit(encoded):
            raise ValueError(message.decode())

    def _title(self) -> str:
        return f"{self._library.path} has no function"

    def __repr__(self) -> str:
        lines = [f"<saccade.Artifact {self._library.path!r} for {', '.join(self.targets)}",
                 *(function.signature for function in self.functions.values())]  # fmt: skip
        return "\n  ".join(lines) + ">"

    def __reduce__(self) -> tuple[Any, ...]:
        return Artifact, (self._library.path,)


def load(path: str | os.PathLike[str]) -> Artifact:
    """Loads a shared library that `saccade-compile --emit=so` wrote. It needs neither the compiler nor LLVM.

    Size and checksum of the file are verified before it is mapped, so a file that is incomplete or was changed is never
    executed. The checksum finds damage, not forgery: load files from sources you trust only.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no such library, one for another version, incomplete, or changed.
        ImportError: the dynamic linker refuses it.

    Example:

        >>> attend = saccade.load("attend.so").attend
        >>> o = attend(q, k, v)
    """
    return Artifact(path)


def _load_function(path: str, name: str) -> LoadedFunction:
    """Unpickles a function."""
    return Artifact(path)[name]
