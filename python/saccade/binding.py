"""Functions with bound arguments: results that depend only on them are computed once."""

from __future__ import annotations

import ctypes
import math
import mmap
from typing import Any, NoReturn

from saccade import _arrays, _gpu
from saccade._library import library
from saccade.function import Function, Handle, Shape, Value

_PREPACK = "__prepack"
_ALIGNMENT = 64  # bytes; prepacked tensors are aligned to cache lines


class BoundFunction(Function):
    """A function with some arguments bound by `Function.bind`. It is called with the remaining `inputs` and is
    thread-safe. It has no TVM-FFI form and cannot be pickled."""

    def __init__(self, handle: Handle, pointer: int | None, fixed: dict[str, Any], memory: Any):
        """Called by `bind`: `fixed` are the bound arguments of the function at `pointer`, as scalars or array
        descriptions; `memory` owns their memory."""
        super().__init__(handle, pointer)
        self._memory = memory
        every = self.inputs
        left = [i for i, value in enumerate(every) if value.name not in fixed]
        # All values as the C API takes them; each call fills in the unbound ones.
        self._fixed = _arrays.EncodedValues([fixed.get(value.name, 0) for value in every] + [0] * len(self.results))
        self._places = left + list(range(len(every), len(every) + len(self.results)))
        self.inputs: tuple[Value, ...] = tuple(every[i] for i in left)
        """The remaining inputs of a call, in order."""
        renumbered = {i: place for place, i in enumerate(left)}
        self._names = [value.name for value in (*self.inputs, *self.results)]
        self._tensors = [(renumbered[i], name) for i, name in self._tensors if i in renumbered]
        self._scalars = [(renumbered[i], *rest) for i, *rest in self._scalars if i in renumbered]  # type: ignore[misc]
        self._updated = [(renumbered[i], name) for i, name in self._updated]

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
        return super()._stream(stream, (*tensors, *self._memory) if self.device == "cuda" else tensors)

    def _encode(self, described: list[Any]) -> tuple[ctypes.Array[Any], int]:
        places = self._places[: len(described)]
        return self._fixed.fill(places, described), len(self._fixed) - len(self._places) + len(described)


def bind(function: Function, values: dict[str, Any]) -> BoundFunction:
    """Implements `Function.bind`."""
    handle, prepack = _prepack_function(function)
    if function.device == "cuda":
        handle_of_stream = _gpu.current_stream(values.values())
        values = {name: _gpu.view(name, x, handle_of_stream) for name, x in values.items()}
    main = Function(handle, _find(handle, function.name))
    made = {value.name for value in prepack.results} if prepack else set()
    expected = {value.name: value for value in (*(prepack.inputs if prepack else ()), *main.inputs)
              if value.name not in made}  # fmt: skip
    for name in values:
        if name not in expected:
            raise TypeError(f"{function.name} has no argument {name!r}; it has: {', '.join(expected)}")
        if expected[name].updated_by is not None:
            raise TypeError(f"{function.name} updates {name!r}, so it cannot be bound: pass it to each call")
    fixed = {name: _describe(expected[name], values[name], function.device) for name in values}
    memory: list[Any] = []
    if prepack:
        if missing := [value.name for value in prepack.inputs if value.name not in fixed]:
            raise TypeError(f"{function.name} is bound without its constant argument{'s' * (len(missing) > 1)} "
                            f"{', '.join(missing)}")
        made_of, results = [fixed[value.name] for value in prepack.inputs], _allocate(prepack.results, memory)
        prepack._run(made_of + results)
        fixed |= zip((value.name for value in prepack.results), results)
    taken = {value.name for value in main.inputs}
    # Arrays read only by the prepack function are not kept.
    memory += (_view(values[name]) for name in values if name in taken and expected[name].shape is not None)
    return BoundFunction(handle, main._pointer.value, {name: each for name, each in fixed.items() if name in taken},
                         memory)  # fmt: skip


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
    pointer = _find(handle, function.name + _PREPACK)
    return handle, Function(handle, pointer) if pointer else None


def _find(handle: Handle, name: str) -> int | None:
    """Finds a function of a module by name."""
    c = library()
    for i in range(c.saccade_module_num_functions(handle.pointer)):
        pointer: int = c.saccade_module_function_at(handle.pointer, i)
        if c.saccade_function_name(pointer).decode() == name:
            return pointer
    return None


def _describe(value: Value, x: Any, device: str) -> Any:
    """Checks an argument against the program and returns its form for `_arrays.EncodedValues`, so that errors are
    raised at bind time."""
    if value.shape is None:
        return _arrays.check_scalar(value.name, value.type, _arrays.DTYPES[value.dtype], x)
    (_arrays.check_tensor if device == "cpu" else _gpu.check_tensor)(value.name, x)
    described = _arrays.describe(value.name, x)
    found = _arrays.DTYPE_NAMES[described[1] & 0xFF, described[1] >> 8 & 0xFF]
    if found.removeprefix("u") != value.dtype:
        raise TypeError(f"{value.name} has element type {found}, expected {value.dtype}")
    shape: Shape = described[2]
    if len(shape) != len(value.shape):
        raise TypeError(f"{value.name} has {_arrays.dimensions(len(shape))}, expected {len(value.shape)}")
    if any(extent not in (None, here) for extent, here in zip(value.shape, shape)):
        text = ", ".join("?" if extent is None else str(extent) for extent in value.shape)
        raise ValueError(f"{value.name} has shape {shape}, expected ({text}{',' * (len(shape) == 1)})")
    return described


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
