"""Tensors in GPU memory, of torch or of any other library that hands out DLPack capsules; streams."""

from __future__ import annotations

import ctypes
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Any, NoReturn

from saccade import _arrays

CUDA = 2  # DLPack's kDLCUDA
_DEVICES = {1: "cpu", 2: "cuda", 3: "cuda_host", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda_managed"}
_LEGACY_STREAM = 1  # DLPack's number of the default stream, because 0 is ambiguous there

_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype, _get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

# DLManagedTensor begins with the DLTensor; DLManagedTensorVersioned has version, context, deleter and flags before it.
_UNVERSIONED, _VERSIONED = struct.Struct("=QiiiBBHQQQ"), struct.Struct("=IIQQQQiiiBBHQQQ")
_EXTENTS = [struct.Struct(f"={rank}q") for rank in range(9)]
_READ_ONLY = 1
_old: set[type] = set()  # types whose __dlpack__ takes no max_version


class DeviceTensor:
    """The memory of a DLPack tensor on a GPU, which it keeps alive."""

    __slots__ = ("source", "dtype", "shape", "described", "device", "is_read_only", "stream", "_capsule")

    def __init__(self, name: str, source: Any, stream: int):
        """Takes a capsule of `source` for work on `stream`: the producer makes that stream wait for its own work."""
        self.source, self.stream = source, stream
        self._capsule, flags, tensor = _read_capsule(name, source, stream)
        data, kind, number, rank, code, bits, lanes, shape, strides, offset = tensor
        self.device, self.is_read_only = (kind, number), bool(flags & _READ_ONLY)
        self.dtype: str = _arrays.DTYPE_NAMES.get((code, bits), f"DLPack type {code} of {bits} bits")
        extents = self.shape = _integers(shape, rank)
        steps = _integers(strides, rank) if strides else _compact(extents)
        self.described = data + offset, code | bits << 8 | lanes << 16, extents, steps, kind | number << 32

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def empty(self, shape: tuple[int, ...], dtype: str) -> DeviceTensor:
        """A new tensor of the source's library, on its device."""
        kind = type(self.source)
        find = getattr(self.source, "__array_namespace__", None)
        library: Any = find() if find is not None else sys.modules.get(kind.__module__.partition(".")[0])
        allocate, element = getattr(library, "empty", None), getattr(library, dtype, None)
        if allocate is None or element is None:
            lacks = "function 'empty'" if allocate is None else f"element type {dtype}"
            raise TypeError(f"{kind.__module__} has no {lacks} to allocate a result with: pass out=")
        try:
            made = allocate(shape, dtype=element, device=self.source.device)
        except TypeError:  # libraries that allocate on their current device only
            made = allocate(shape, dtype=element)
        return DeviceTensor("the result", made, self.stream)


def _integers(address: int, count: int) -> tuple[int, ...]:
    """`count` 64-bit integers at an address."""
    form = _EXTENTS[count] if count < len(_EXTENTS) else struct.Struct(f"={count}q")
    return form.unpack(ctypes.string_at(address, form.size)) if count else ()


def _compact(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides = [1] * len(shape)
    for i in range(len(shape) - 1, 0, -1):
        strides[i - 1] = strides[i] * max(shape[i], 1)
    return tuple(strides)


def _read_capsule(name: str, source: Any, stream: int) -> tuple[Any, int, tuple[int, ...]]:
    """A capsule of `source`, its flags, and the fields of its DLTensor."""
    kind = type(source)
    requested = stream or _LEGACY_STREAM
    try:
        if kind not in _old:
            try:
                capsule = source.__dlpack__(stream=requested, max_version=(1, 0))
            except TypeError:  # DLPack before 1.0
                capsule = source.__dlpack__(stream=requested)
                _old.add(kind)
        else:
            capsule = source.__dlpack__(stream=requested)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {_name_of(kind)} that hands out no memory by DLPack: {error}") from error
    try:
        if kind not in _old:
            address = _get_pointer(capsule, b"dltensor_versioned")
            major, _, _, _, flags, *tensor = _VERSIONED.unpack(ctypes.string_at(address, _VERSIONED.size))
            if major != 1:
                raise TypeError(f"{name} is a tensor of DLPack {major}, expected DLPack 1")
            return capsule, flags, tuple(tensor)
    except ValueError:  # an unversioned one
        pass
    try:
        return capsule, 0, _UNVERSIONED.unpack(ctypes.string_at(_get_pointer(capsule, b"dltensor"), _UNVERSIONED.size))
    except ValueError:
        raise TypeError(f"{name} is a {_name_of(kind)}, whose __dlpack__ returns no unused DLPack capsule") from None


def _name_of(kind: type) -> str:
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# --- devices ----------------------------------------------------------------------------------------------------------


def device_of(x: Any) -> tuple[int, int] | None:
    """The type and number of the device by DLPack; None if x does not tell it."""
    if type(x) is DeviceTensor:
        return x.device
    if _arrays.is_torch(x):
        return (1, 0) if x.is_cpu else (CUDA, x.get_device()) if x.is_cuda else None
    find = getattr(x, "__dlpack_device__", None)
    if find is None or isinstance(x, type):
        return None
    try:
        kind, number = find()
        return int(kind), int(number)
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None


def device_name(device: tuple[int, int]) -> str:
    """"cpu", "cuda:1"."""
    kind, number = device
    name = _DEVICES.get(kind, f"DLPack device {kind}")
    return name if kind == 1 else f"{name}:{number}"


def ordinal_of(x: Any) -> int | None:
    """The number of the GPU whose memory x is in; None for anything else."""
    if _arrays.is_numpy(x):
        return None
    device = device_of(x)
    return device[1] if device is not None and device[0] == CUDA else None


def is_foreign(x: Any) -> bool:
    """Whether x is a tensor of another library than torch and NumPy, handed over by DLPack."""
    return not _arrays.is_torch(x) and not _arrays.is_numpy(x) and hasattr(x, "__dlpack__") and not isinstance(x, type)


def check_tensor(name: str, x: Any) -> bool:
    """As `_arrays.check_tensor`, for a tensor on a GPU."""
    if type(x) is DeviceTensor:
        return False
    if _arrays.is_torch(x):
        _arrays.check_torch(name, x, "cuda")
        return True
    device = device_of(x)
    if device is None:
        _refuse(name, x)
    if device[0] != CUDA:
        raise TypeError(f"{name} is on {device_name(device)}, expected cuda")
    if not hasattr(x, "__dlpack__"):
        _refuse(name, x)
    return False


def _refuse(name: str, x: Any) -> NoReturn:
    found = "None" if x is None else f"a {_name_of(type(x))}"
    raise TypeError(f"{name} is {found}, expected a tensor on cuda: a torch tensor, or one with __dlpack__")


def view(name: str, x: Any, stream: int) -> Any:
    """A DLPack tensor on a GPU as a `DeviceTensor`; torch tensors and anything else unchanged."""
    return DeviceTensor(name, x, stream) if is_foreign(x) and ordinal_of(x) is not None else x


def source_of(x: Any) -> Any:
    """The tensor of which x is a view, or x."""
    return x.source if type(x) is DeviceTensor else x


def call_with_views(function: Callable[..., Any], *, stream: Any, **named: Any) -> Any:
    """Calls a function that takes views with the tensors among `named` as views, and with their stream by default.
    Returns tensors of their library. A tensor of 0 dimensions stands for a number and stays."""
    handle = current_stream(named.values()) if stream is None else stream_handle(stream)

    def convert(name: str, x: Any) -> Any:
        if type(x) is tuple:
            return tuple([convert(name, each) for each in x])
        return view(name, x, handle) if getattr(x, "ndim", 1) else x

    result = function(stream=handle, **{name: convert(name, x) for name, x in named.items()})
    return tuple([source_of(x) for x in result]) if isinstance(result, tuple) else source_of(result)


# --- streams ----------------------------------------------------------------------------------------------------------


def stream_handle(stream: Any) -> int:
    """A CUstream as a number, from a number or a stream object of torch, CuPy or CUDA Python. Raises TypeError for
    anything else."""
    if type(stream) is int:
        handle: Any = stream
    elif hasattr(stream, "__cuda_stream__"):
        given = stream.__cuda_stream__
        handle = (given() if callable(given) else given)[1]
    else:
        handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", None))
    if not isinstance(handle, int) or isinstance(stream, bool):
        raise TypeError(f"stream is {stream!r:.80}, expected a CUDA stream: its address, or an object with "
                        "cuda_stream, ptr or __cuda_stream__")
    if handle < 0:
        raise ValueError(f"stream is {handle}, expected the address of a CUDA stream, or 0 for the default one")
    return handle


def current_stream(tensors: Iterable[Any]) -> int:
    """The stream that the libraries of the tensors currently work on: torch's, that of a tensor with TVM-FFI's
    `__tvm_ffi_env_stream__`, else the default one."""
    for x in tensors:
        if type(x) is DeviceTensor:
            return x.stream
        if _arrays.is_torch(x) and x.is_cuda:
            handle: int = _arrays.torch_module().cuda.current_stream(x.device).cuda_stream
            return handle
    for x in tensors:
        if hasattr(x, "__tvm_ffi_env_stream__"):
            return int(x.__tvm_ffi_env_stream__())
    return 0
