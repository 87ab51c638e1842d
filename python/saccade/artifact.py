"""Shared libraries of `saccade-compile --emit=so`, loaded without the compiler."""

from __future__ import annotations

import ctypes
import os
import tempfile
import threading
from collections.abc import Iterable, Mapping
from ctypes import POINTER, c_char_p, c_int32, c_int64, c_uint8, c_uint16, c_void_p
from types import MappingProxyType
from typing import Any

from saccade import _elf, _gpu
from saccade._arrays import Array
from saccade._function_map import FunctionMap
from saccade._library import ERRORS, DataType, ValueInfo
from saccade._opaque import opaque
from saccade._weights_file import Weights, WeightsByArgument, absolute
from saccade.binding import PREPACK, BoundFunction, bind_to, expected_arguments
from saccade.function import Function, Shape, Value


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
_PLACES = {_INTEGER: 1, _BOOL: 1, _FLOAT: 2, _TENSOR: 0}  # of the value in a SaccadeValue


class _Library:
    """A mapped library."""

    def __init__(self, path: str, note: _elf.Note):
        self.path, self.note = path, note
        self.cpu_targets = tuple(target for target in note.targets if not target.startswith("sm_"))
        self.gpu_targets = tuple(target for target in note.targets if target.startswith("sm_"))
        try:
            self.functions = _map(path)
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


_mapped: dict[tuple[int, int], tuple[int, int]] = {}
"""The files that are mapped, by device and number: size and time of the last write."""
_file_of: dict[str, tuple[int, int]] = {}
"""The file that the dynamic linker knows by a path: the first that was mapped."""
_mapping = threading.Lock()


def _map(path: str) -> ctypes.CDLL:
    """Maps the file of now. The dynamic linker knows libraries by path, and would return the old one where a file has
    replaced another."""
    mode = os.RTLD_LOCAL | os.RTLD_NOW
    with _mapping:
        status = os.stat(path)
        file, state = (status.st_dev, status.st_ino), (status.st_size, status.st_mtime_ns)
        if _mapped.get(file, state) != state:
            raise OSError("it was written to after this process had loaded it: replace the file by another one")
        if _file_of.get(path, file) == file:
            library = ctypes.CDLL(path, mode=mode)
            _file_of[path] = file
        else:
            with tempfile.TemporaryDirectory() as folder:
                other = os.path.join(folder, os.path.basename(path))
                os.symlink(path, other)
                library = ctypes.CDLL(other, mode=mode)
        _mapped[file] = state
        return library


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
        self._kinds = [_kind_of(value) for value in (*self.inputs, *self.results)]
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

    def bind(self, /, **values: Any) -> BoundFunction:
        """As `Function.bind`. What depends on constants alone is computed here once if the library was compiled with
        --prepack, in each call otherwise. A library with code for CPUs and for GPUs is bound for CPUs."""
        return bind_to(self, self._prepack(), values)

    def _prepack(self) -> LoadedFunction | None:
        """The function that computes inputs of this one of its constants, if the library has it."""
        name = self.name + PREPACK
        is_packed = self.device == "cpu" and name in self._library.note.functions
        return LoadedFunction(self._library, name, "cpu") if is_packed else None

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

    def _run_encoded(self, memory: ctypes.Array[Any], count: int, stream: int | None) -> None:
        functions, arguments = self._library.functions, self._arguments(memory, count)
        if stream is None:
            status = functions.saccade_entry_call(self._table, arguments, count)
        else:
            status = functions.saccade_entry_call_on_stream(self._table, arguments, count, stream)
        self._library.check(status)

    def _query_encoded(self, memory: ctypes.Array[Any], count: int, sizes: ctypes.Array[ctypes.c_int64]) -> None:
        compute = self._library.functions.saccade_entry_shapes
        self._library.check(compute(self._table, self._arguments(memory, count), count, sizes))

    def _arguments(self, memory: ctypes.Array[Any], count: int) -> ctypes.Array[c_int64]:
        """SaccadeArgument[count] with what `_encode` returns, whose memory they point to."""
        slots: list[int] = []
        for i in range(count):
            expected = self._kinds[i] if i < len(self._kinds) else _TENSOR
            kind = _TENSOR if memory[3 * i] else _INTEGER if expected == _TENSOR else expected
            slots += kind, memory[3 * i + _PLACES[kind]]  # the entry refuses other counts and kinds than its own
        return (c_int64 * len(slots))(*slots)


def _kind_of(value: Value) -> int:
    """The SaccadeArgumentKind of a value."""
    if value.shape is not None:
        return _TENSOR
    return _BOOL if value.dtype == "bool" else _FLOAT if "float" in value.dtype else _INTEGER


class Artifact(FunctionMap[LoadedFunction | BoundFunction]):
    """A loaded library. Its functions are its items and, if their names are valid Python, its attributes."""

    def __init__(self, path: str | os.PathLike[str], weights: Weights | None = None):
        """Called by `load`."""
        self._library = library = _Library(os.path.abspath(path), _elf.read_note(path))
        device = "cpu" if library.cpu_targets else "cuda"
        self._loaded = {name: LoadedFunction(library, name, device) for name in library.note.functions}
        self._weights = absolute(weights)
        bound = {} if weights is None else _bind_weights(self._loaded.values(), WeightsByArgument(self._weights))
        self.functions: Mapping[str, LoadedFunction | BoundFunction] = MappingProxyType({**self._loaded, **bound})
        """The functions by name, in program order; those with weights have them bound."""

    @property
    def targets(self) -> tuple[str, ...]:
        """The targets that the library has code for: CPU targets in the order in which a call tries
        them, then GPUs."""
        return self._library.note.targets

    @property
    def target(self) -> str | None:
        """The CPU target whose code calls on CPU tensors run; None if the library has none for this processor."""
        return next(iter(self._loaded.values())).target

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
        return Artifact, (self._library.path, self._weights)


def _bind_weights(functions: Iterable[LoadedFunction], weights: WeightsByArgument) -> dict[str, BoundFunction]:
    """The functions that take some of the weights, with these bound."""
    bound: dict[str, BoundFunction] = {}
    for function in functions:
        if function.name.endswith(PREPACK):
            continue
        prepack = function._prepack()
        found = {name: tensor for name, value in expected_arguments(function, prepack).items()
                 if value.shape is not None and value.updated_by is None
                 and (tensor := weights.name_of(name)) is not None}  # fmt: skip
        if missing := [value.name for value in prepack.inputs if value.name not in found] if prepack else []:
            raise ValueError(weights.missing(missing))
        if found:
            values = {name: weights.read(tensor) for name, tensor in found.items()}
            bound[function.name] = bind_to(function, prepack, values, found)
    if not bound:
        raise ValueError(weights.missing(value.name for function in functions for value in function.inputs))
    return bound


def load(path: str | os.PathLike[str], weights: Weights | None = None) -> Artifact:
    """Loads a shared library that `saccade-compile --emit=so` wrote. It needs neither the compiler nor LLVM.

    Size and checksum of the file are verified before it is mapped, so a file that is incomplete or was changed is never
    executed. The checksum finds damage, not forgery: load files from sources you trust only.

    Args:
        path: the library.
        weights: a safetensors file, a list of the files of one model, or a mapping from names to arrays. Each tensor
            is bound to the argument of its name, as by `bind`: dots in names are underscores in arguments. With torch
            a file is mapped, and processes share its memory, except what is packed.

    Raises:
        OSError: a file cannot be read.
        ValueError: it is no such library, one for another version, incomplete, or changed; a safetensors file is
            damaged, it lacks constants that a library with --prepack packs, or a tensor has another shape.
        TypeError: a weight of another element type or rank.
        ImportError: the dynamic linker refuses the library, or the package safetensors is not installed.

    Example:

        >>> attend = saccade.load("attend.so").attend
        >>> o = attend(q, k, v)
        >>> encoder = saccade.load("encoder.so", weights="model.safetensors").main
    """
    return Artifact(path, weights)


def _load_function(path: str, name: str) -> LoadedFunction:
    """Unpickles a function."""
    return Artifact(path)._loaded[name]
