"""Functions with bound arguments: results that depend only on them are computed once."""

from __future__ import annotations

import ctypes
import math
import mmap
import threading
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NoReturn

from saccade import _arrays, _gpu
from saccade._library import library
from saccade._watched import Owner, Watched, check_storage, is_versioned
from saccade.function import Function, Handle, Shape, Value

PREPACK = "__prepack"
_ALIGNMENT = 64  # bytes; prepacked tensors are aligned to cache lines


class BoundFunction(Function):
    """A function with some arguments bound by `Function.bind`. It is called with the remaining `inputs` and is
    thread-safe. It has no TVM-FFI form and cannot be pickled."""

    def __init__(self, weights: _Weights):
        """Called by `bind_to`."""
        self._weights, main = weights, weights.main
        self.name, self.results, self.device = main.name, main.results, main.device
        self._tvm_ffi, self._torch_dtypes, self._shapes = None, [], {}
        every = main.inputs
        left = [i for i, value in enumerate(every) if value.name not in weights.bound]
        self._places = left + list(range(len(every), len(every) + len(self.results)))
        self.inputs: tuple[Value, ...] = tuple(every[i] for i in left)
        """The remaining inputs of a call, in order."""
        renumbered = {i: place for place, i in enumerate(left)}
        self._names = [value.name for value in (*self.inputs, *self.results)]
        self._tensors = [(renumbered[i], name) for i, name in main._tensors if i in renumbered]
        self._scalars = [(renumbered[i], *rest) for i, *rest in main._scalars if i in renumbered]  # type: ignore[misc]
        self._updated = [(renumbered[i], name) for i, name in main._updated]

    @property
    def tvm_ffi(self) -> Any:
        """Not available: raises TypeError."""
        raise TypeError(f"{self.name} has bound arguments, which the TVM-FFI form does not support")

    def bind(self, /, **values: Any) -> BoundFunction:
        """Binding twice raises TypeError."""
        raise TypeError(f"{self.name} already has bound arguments: bind all of them in one call")

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self.name} has bound arguments, which cannot be pickled: bind them in the calling process")

    def _call_torch(self, inputs: tuple[Any, ...], results: tuple[Any, ...] | None) -> tuple[Any, ...]:
        return self._call_described(inputs, results, True)

    def _stream(self, stream: Any, tensors: tuple[Any, ...]) -> int | None:
        # Without tensors of its own, a call follows the bound ones.
        return super()._stream(stream, (*tensors, *self._weights.memory) if self.device == "cuda" else tensors)

    def _encode(self, described: list[Any]) -> tuple[ctypes.Array[Any], int]:
        weights = self._weights
        if weights.watched is not None and weights.watched.is_changed():
            weights.update()
            self._shapes.clear()  # extents may depend on those of weights
        fixed = weights.fixed
        memory = fixed.fill(self._places[: len(described)], described)
        memory.owner = fixed  # type: ignore[attr-defined]  # another thread may replace it
        return memory, len(fixed) - len(self._places) + len(described)

    def _run_encoded(self, memory: ctypes.Array[Any], count: int, stream: int | None) -> None:
        self._weights.main._run_encoded(memory, count, stream)

    def _query_encoded(self, memory: ctypes.Array[Any], count: int, sizes: ctypes.Array[ctypes.c_int64]) -> None:
        self._weights.main._query_encoded(memory, count, sizes)


class _Weights:
    """The bound arguments of a function. They are described, and packed by the prepack function, again after torch
    tensors among them have changed."""

    def __init__(self, main: Function, prepack: Function | None, values: dict[str, Any], titles: Mapping[str, str],
                 owners: Mapping[str, Owner]):
        self.main, self._prepack, self._titles, self._owners = main, prepack, titles, owners
        self._expected = expected_arguments(main, prepack)
        self._taken = {value.name for value in main.inputs}
        self._packed = {value.name for value in prepack.inputs} if prepack else set()
        self._lock = threading.Lock()
        self._scalars = {name for name in values if self._expected[name].shape is None}
        # What is needed again after a change, beside watched tensors. Arrays that are only packed are not kept.
        self._values: dict[str, Any] = {}
        self.bound = {name for name in values if name in self._taken}
        self.bound |= {value.name for value in prepack.results} if prepack else set()
        self.watched: Watched | None
        self._read(values)

    def _read(self, values: dict[str, Any]) -> None:
        """Describes and packs values."""
        tensors = {name: x for name, x in values.items() if is_versioned(x) and name not in self._scalars}
        watched = Watched(tensors, self._packed, self._owners) if tensors else None  # before they are read
        device = self.main.device
        if device == "cpu":
            values = {name: self._snapshot(name, x) for name, x in values.items()}
        # Another thread may give a tensor other memory meanwhile.
        values = {name: x if name in self._scalars else _view(x) for name, x in values.items()}
        fixed = {name: _describe(self._titles.get(name, name), self._expected[name], x, device)
                 for name, x in values.items()}  # fmt: skip
        memory: list[Any] = []
        if self._prepack:
            made_of = [fixed[value.name] for value in self._prepack.inputs]
            results = _allocate(self._prepack.results, memory)
            self._prepack._run(made_of + results)
            fixed |= zip((value.name for value in self._prepack.results), results)
        memory += (x for name, x in values.items() if name in self._taken - self._scalars)
        # All values as the C API takes them; each call fills in the unbound ones.
        encoded = _arrays.EncodedValues([fixed.get(value.name, 0) for value in self.main.inputs]
                                        + [0] * len(self.main.results))  # fmt: skip
        encoded.owner = memory
        self.fixed, self.memory, self.watched = encoded, memory, watched
        self._values = {name: fixed[name] if name in self._scalars else x for name, x in values.items()
                        if name not in tensors and name in self._taken - self._packed | self._scalars}  # fmt: skip

    def _snapshot(self, name: str, x: Any) -> Any:
        """What calls read in place: x if it has a version or cannot change, else a copy."""
        if name not in self._taken or name in self._scalars or is_versioned(x):
            return x
        if _arrays.is_torch(x):
            return x.clone()
        return _arrays.snapshot(x) if _arrays.is_numpy(x) and _is_writable(x) else x

    def update(self) -> None:
        """Reads the tensors again. Raises ValueError or TypeError, which names the tensor, if that is impossible."""
        with self._lock:
            watched = self.watched
            if watched is None or not watched.is_changed():  # another thread was first
                return
            values = {**watched.tensors(), **self._values}
            made = {value.name for value in self._prepack.results} if self._prepack else set()
            if missing := [self._titles.get(name, name) for name in sorted(self._packed | self.bound - made)
                           if name not in values]:  # fmt: skip
                raise ValueError(f"{self.main.name}: a bound tensor has changed, and {', '.join(missing)}, which must "
                                 "be packed again, is no torch tensor or no longer exists: bind or compile again")
            self._read(values)


def expected_arguments(main: Function, prepack: Function | None) -> dict[str, Value]:
    """The arguments that can be bound, by name."""
    made = {value.name for value in prepack.results} if prepack else set()
    return {value.name: value for value in (*(prepack.inputs if prepack else ()), *main.inputs)
            if value.name not in made}  # fmt: skip


def bind(function: Function, values: dict[str, Any], titles: Mapping[str, str] = MappingProxyType({}),
         owners: Mapping[str, Owner] = MappingProxyType({})) -> BoundFunction:
    """Implements `Function.bind`.

    Args:
        titles: the caller's names of arguments, in messages.
        owners: where the tensors of a module are, which may be replaced by others.
    """
    handle, prepack = _prepack_function(function)
    return bind_to(Function(handle, _find(handle, function.name)), prepack, values, titles, owners)


def bind_to(main: Function, prepack: Function | None, values: dict[str, Any],
            titles: Mapping[str, str] = MappingProxyType({}),
            owners: Mapping[str, Owner] = MappingProxyType({})) -> BoundFunction:
    """As `bind`, for `main` of a library whose `prepack` computes inputs of it once."""
    if main.device == "cuda":
        handle_of_stream = _gpu.current_stream(values.values())
        values = {name: x if _arrays.is_torch(x) else _gpu.view(name, x, handle_of_stream)
                  for name, x in values.items()}  # fmt: skip
    expected = expected_arguments(main, prepack)
    for name in values:
        if name not in expected:
            raise TypeError(f"{main.name} has no argument {name!r}; it has: {', '.join(expected)}")
        if expected[name].updated_by is not None:
            raise TypeError(f"{main.name} updates {name!r}, so it cannot be bound: pass it to each call")
    if prepack and (missing := [value.name for value in prepack.inputs if value.name not in values]):
        raise TypeError(f"{main.name} is bound without its constant argument{'s' * (len(missing) > 1)} "
                        f"{', '.join(missing)}")
    for name, x in values.items():
        if expected[name].shape is not None:
            (_arrays.check_tensor if main.device == "cpu" else _gpu.check_tensor)(titles.get(name, name), x)
    return BoundFunction(_Weights(main, prepack, values, titles, owners))


def _prepack_function(function: Function) -> tuple[Handle, Function | None]:
    """The module with prepacking enabled, and the prepack function for `function`, None if it has none, as on a GPU."""
    from saccade.module import Module

    if function.device == "cuda":
        return function._handle, None
    source, name, options = function._handle.recipe
    if ("prepack", "true") in options:
        handle = function._handle
    else:
        handle = Module(source, name, (*options, ("prepack", "true")))._handle
    pointer = _find(handle, function.name + PREPACK)
    return handle, Function(handle, pointer) if pointer else None


def _find(handle: Handle, name: str) -> int | None:
    """Finds a function of a module by name."""
    c = library()
    for i in range(c.saccade_module_num_functions(handle.pointer)):
        pointer: int = c.saccade_module_function_at(handle.pointer, i)
        if c.saccade_function_name(pointer).decode() == name:
            return pointer
    return None


def _describe(name: str, value: Value, x: Any, device: str) -> Any:
    """Checks an argument, called `name`, against the program and returns its form for `_arrays.EncodedValues`, so that
    errors are raised at bind time."""
    if value.shape is None:
        return _arrays.check_scalar(name, value.type, _arrays.DTYPES[value.dtype], x)
    check_storage(name, x)
    (_arrays.check_tensor if device == "cpu" else _gpu.check_tensor)(name, x)
    described = _arrays.describe(name, x)
    found = _arrays.DTYPE_NAMES[described[1] & 0xFF, described[1] >> 8 & 0xFF]
    if found.removeprefix("u") != value.dtype:
        raise TypeError(f"{name} has element type {found}, expected {value.dtype}")
    shape: Shape = described[2]
    if len(shape) != len(value.shape):
        raise TypeError(f"{name} has {_arrays.dimensions(len(shape))}, expected {len(value.shape)}")
    if any(extent not in (None, here) for extent, here in zip(value.shape, shape)):
        text = ", ".join("?" if extent is None else str(extent) for extent in value.shape)
        raise ValueError(f"{name} has shape {shape}, expected ({text}{',' * (len(shape) == 1)})")
    return described


def _is_writable(x: Any) -> bool:
    """Whether the elements of a NumPy array may change: it, or an array that it is a view of, is writable."""
    while _arrays.is_numpy(x):
        if x.flags.writeable:
            return True
        x = x.base
    return False


def _view(x: Any) -> Any:
    """Keeps the memory of an array alive even if the caller replaces it, e.g. by `tensor.data = ...`."""
    if type(x) is _gpu.DeviceTensor:
        return x
    return x.detach() if _arrays.is_torch(x) else x[...]


def _allocate(values: tuple[Value, ...], memory: list[Any]) -> list[Any]:
    """Descriptions of new contiguous tensors, each aligned to a cache line, in one allocation that is appended to
    `memory`."""
    places, size = [], 0
    for value in values:
        places.append(size)
        count = _count(value.shape)
        size += (count * _arrays.DTYPES[value.dtype][1] // 8 + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
    piece = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        piece.madvise(mmap.MADV_HUGEPAGE)
    memory.append(piece)
    base = ctypes.addressof(ctypes.c_char.from_buffer(piece))
    described = []
    for value, place in zip(values, places):
        code, bits = _arrays.DTYPES[value.dtype]
        shape = value.shape or ()
        strides = tuple(_count(shape[i + 1 :]) for i in range(len(shape)))
        described.append((base + place, code | bits << 8 | 1 << 16, shape, strides, 1))
    return described


def _count(shape: tuple[Any, ...] | None) -> int:
    """The number of elements of a static shape."""
    return math.prod(shape or ())
