"""Checks of array arguments, and their description for the C API as DLTensors.

Nothing here imports torch or NumPy: their arrays can only be passed if the process has imported them already.
"""

from __future__ import annotations

import ctypes
import operator
import struct
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, Union

if TYPE_CHECKING:
    import numpy
    import torch

Array: TypeAlias = Union["torch.Tensor", "numpy.ndarray"]
"""A torch tensor or a NumPy array. Programs for a GPU take torch tensors and any other tensors with `__dlpack__`."""

# DLPack's (type code, bits) of the element types.
DTYPES = {
    "float64": (2, 64), "float32": (2, 32), "float16": (2, 16), "bfloat16": (4, 16), "bool": (6, 8),
    "float8_e4m3fn": (10, 8), "float8_e5m2": (12, 8),
    "int64": (0, 64), "int32": (0, 32), "int16": (0, 16), "int8": (0, 8),
    "uint64": (1, 64), "uint32": (1, 32), "uint16": (1, 16), "uint8": (1, 8),
}  # fmt: skip
DTYPE_NAMES = {encoded: name for name, encoded in DTYPES.items()}
_CPU, _CUDA = 1, 2  # DLPack's device types

_torch: Any = None  # the torch module, once imported
_plain: set[type] = set()  # tensor types that access their memory directly
_ndarray: Any = None  # numpy.ndarray, once imported
_codes: dict[Any, int] = {}  # torch and NumPy dtypes as a DLDataType of one lane


def torch_module() -> Any:
    """The torch module if the process has imported it, else None."""
    global _torch
    if _torch is None:
        torch = sys.modules.get("torch")
        if torch is None or getattr(torch.__spec__, "_initializing", False):  # another thread is importing it
            return None
        for name, (code, bits) in DTYPES.items():
            if hasattr(torch, name):
                _codes[getattr(torch, name)] = code | bits << 8 | 1 << 16
        _torch = torch
        _plain.update((torch.Tensor, torch.nn.Parameter))
    return _torch


def is_torch(x: object) -> bool:
    """Whether x is a torch tensor."""
    if type(x) in _plain:
        return True
    if type(x) is _ndarray:
        return False
    return (torch := torch_module()) is not None and isinstance(x, torch.Tensor)


def is_recorded() -> bool:
    """Whether a call of `saccade.attention` is read for an operator of PyTorch, which takes tensors without memory."""
    autograd = sys.modules.get("saccade._autograd")
    return autograd is not None and autograd.state.recorder is not None


def are_torch(*arrays: object) -> bool:
    """Whether all are torch tensors, in a function that torch.compile traces."""
    return all([isinstance(x, sys.modules["torch"].Tensor) for x in arrays])


def copied(made: Any, outs: Any) -> bool:
    """Copies torch tensors to those of `outs`, in a function that torch.compile traces; False, and nothing is written,
    if one of these has another shape or element type, or is no tensor."""
    fits = all([isinstance(x, sys.modules["torch"].Tensor) and x.shape == y.shape and x.dtype == y.dtype
                for x, y in zip(outs, made)])
    if fits:
        for written, result in zip(outs, made):
            written.copy_(result)
    return fits


def library_of(x: Any) -> Any:
    """torch for its tensors, otherwise NumPy."""
    if is_torch(x):
        return torch_module()
    import numpy

    return numpy


def is_numpy(x: object) -> bool:
    """Whether x is a NumPy array."""
    global _ndarray
    if _ndarray is None:
        _ndarray = getattr(sys.modules.get("numpy"), "ndarray", None)
    return _ndarray is not None and isinstance(x, _ndarray)


def kind_of(x: object) -> str | None:
    """"a torch tensor", "a NumPy array", or None for anything else."""
    return "a torch tensor" if is_torch(x) else "a NumPy array" if is_numpy(x) else None


def dimensions(count: int) -> str:
    """"1 dimension", "2 dimensions"."""
    return f"{count} dimension{'' if count == 1 else 's'}"


# --- guards -----------------------------------------------------------------------------------------------------------


def check_tensor(name: str, x: Any) -> bool:
    """Rejects arrays that compiled code cannot read; the compiled code checks extents and element types. Returns
    whether x is a torch tensor (otherwise it is a NumPy array).

    Raises:
        ValueError: a tensor that requires grad (unless grad mode is off) or has the negative or conjugate bit set.
        TypeError: another device, no memory of its own (fake, meta, sparse, nested and functorch tensors, masked
            arrays), a NumPy dtype that is not supported or not native, or not an array.
    """
    if type(x) in _plain and x.is_cpu and not x.requires_grad and not x.is_neg():
        try:
            if x.data_ptr():  # raises without storage
                return True
        except RuntimeError:
            pass
    if is_torch(x):
        check_torch(name, x)
        return True
    if is_numpy(x):
        _check_numpy(name, x)
        return False
    _refuse(name, x)


def check_result(name: str, x: Any) -> bool:
    """`check_tensor` for an array that is written to; a read-only one raises ValueError."""
    if check_tensor(name, x):
        if x.is_nested:
            check_torch(name, x)
        return True
    check_writable(name, x)
    return False


def check_writable(name: str, x: Any) -> None:
    """Raises ValueError for a read-only NumPy array or `_gpu.DeviceTensor`; accepts anything else."""
    if is_numpy(x):
        if not x.flags.writeable:
            raise ValueError(f"{name} is a read-only NumPy array, expected one to write to")
    elif getattr(x, "is_read_only", False) is True:
        raise ValueError(f"{name} is a read-only tensor, expected one to write to")


def _refuse(name: str, x: object) -> NoReturn:
    from saccade import _gpu  # imported late: it is needed for GPUs and for errors

    if (device := _gpu.device_of(x)) is not None and device[0] != 1:
        raise TypeError(f"{name} is on {_gpu.device_name(device)}, expected cpu")
    kind = type(x)
    found = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    found = "None" if x is None else f"{'an' if found[0] in 'aeio' else 'a'} {found}"
    raise TypeError(f"{name} is {found}, expected a torch CPU tensor or a NumPy array")


def check_torch(name: str, x: Any, device: str = "cpu") -> None:
    """`check_tensor` for a known torch tensor, without its fast path, on the CPU or on "cuda"."""
    if type(x) not in _plain and type(x).__torch_dispatch__ is not _torch._C._disabled_torch_dispatch_impl:
        raise TypeError(f"{name} is a {type(x).__name__}, expected a plain torch.Tensor: it has no memory to read")
    if x.device.type != device:
        raise TypeError(f"{name} is on {x.device}, expected {device}")
    if x.layout is not _torch.strided or x.is_nested:
        kind = "nested" if x.is_nested else str(x.layout).removeprefix("torch.")
        raise TypeError(f"{name} is a {kind} tensor, expected a dense one")
    try:
        is_missing = x.data_ptr() == 0 and x.numel() > 0
    except RuntimeError:
        is_missing = True
    if is_missing and not (_torch._C._functorch.is_functorch_wrapped_tensor(x) and is_recorded()):
        raise TypeError(f"{name} has no memory to read: it is traced by torch.func or was never computed")
    if x.requires_grad and _torch.is_grad_enabled():
        raise ValueError(
            f"{name} requires grad, and this function has no backward: call under torch.no_grad() or pass its .detach()"
        )
    if x.is_neg():
        raise ValueError(f"{name} is a view with the negative bit set: pass its .resolve_neg()")
    if x.is_conj():
        raise ValueError(f"{name} is a view with the conjugate bit set: pass its .resolve_conj()")


def _check_numpy(name: str, x: Any) -> None:
    dtype = x.dtype
    if dtype not in _codes:
        encoded = DTYPES.get(dtype.name)
        if encoded is None:
            raise TypeError(f"{name} has dtype {dtype}, expected one of {', '.join(DTYPES)}")
        if not dtype.isnative:
            raise TypeError(f"{name} has dtype {dtype.str}, of the other byte order; expected native {dtype.name}")
        _codes[dtype] = encoded[0] | encoded[1] << 8 | 1 << 16
    if type(x) is not _ndarray and isinstance(x, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(f"{name} is a masked array, expected a plain one: its mask would be ignored")
    if not x.flags.aligned:
        raise ValueError(f"{name} is a view whose elements are not aligned in memory: pass a copy")


def check_scalar(name: str, type: str, encoded: tuple[int, int], x: Any) -> int | float | bool:
    """Converts the scalar argument `name` to a Python scalar.

    Args:
        type: its type in the program ("index", "f32").
        encoded: its DLPack type as (code, bits).

    Raises:
        TypeError: x is no number, or no integer for an integer type.
        ValueError: x is out of range.
    """
    code, bits = encoded
    is_real = code in (2, 4)
    try:
        if getattr(x, "ndim", 0) or isinstance(x, (str, bytes)):
            raise TypeError
        number = float(x) if is_real else _truth(x) if code == 6 else operator.index(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r:.80}, expected {'a number' if is_real else 'an integer'} ({type})") from None
    # Integers are signless in MLIR: signed and unsigned values are accepted.
    lowest, highest = (0, 1) if code == 6 else (-(1 << bits - 1), min(1 << bits, 1 << 63) - 1)
    if not is_real and not lowest <= number <= highest:
        raise ValueError(f"{name} is {number}, expected {lowest} ... {highest} ({type})")
    return number


def _truth(x: Any) -> bool | int:
    """operator.index for i1 that also accepts NumPy booleans."""
    return bool(x) if getattr(getattr(x, "dtype", None), "kind", "") == "b" else operator.index(x)


# --- descriptions for the C API ---------------------------------------------------------------------------------------


def describe(name: str, x: Any) -> tuple[int, int, tuple[int, ...], tuple[int, ...], int]:
    """The address of element 0, the DLDataType, extents, strides in elements and the DLDevice of an array. It checks
    the element type, but none of the other conditions of `check_tensor`."""
    if is_torch(x):
        try:
            device = _CPU if x.is_cpu else _CUDA | x.get_device() << 32 if x.is_cuda else None
            if device is None:
                raise TypeError(f"{name} is on {x.device}, expected cpu or cuda")
            return x.data_ptr(), _codes[x.dtype], tuple(x.shape), x.stride(), device
        except KeyError:
            raise TypeError(f"{name} has dtype {x.dtype}, expected one of {', '.join(DTYPES)}") from None
        except RuntimeError:
            check_torch(name, x)
            raise
    if not is_numpy(x) or x.dtype not in _codes:
        described: Any = getattr(x, "described", None)  # of a _gpu.DeviceTensor
        if described is not None:
            return described  # type: ignore[no-any-return]
        check_tensor(name, x)
    size, strides = x.itemsize, x.strides
    if not x.flags.c_contiguous and any(stride % size for stride in strides):
        raise ValueError(f"{name} has strides of {strides} bytes, expected multiples of its {size}-byte elements")
    steps = tuple([stride // size for stride in strides])
    return x.__array_interface__["data"][0], _codes[x.dtype], x.shape, steps, _CPU


def encode_values(values: list[Any]) -> ctypes.Array[Any]:
    """SaccadeValue[len(values)], followed by the DLTensors, extents and strides that it points to. A value is the
    result of `describe` or a Python scalar. A flat array of 64-bit slots is several times faster than ctypes
    structures."""
    return _encode([0] * (3 * len(values)), range(len(values)), values)


class EncodedValues:
    """Values that are mostly the same in many calls: their DLTensors are encoded once."""

    def __init__(self, values: list[Any]):
        self._memory = encode_values(values)
        self._slots = self._memory[: 3 * len(values)]
        self.owner: Any = None
        """Keeps the memory of arrays alive."""

    def __len__(self) -> int:
        return len(self._slots) // 3

    def fill(self, places: list[int], values: list[Any]) -> ctypes.Array[Any]:
        """As `encode_values`, with other values at some places. This object must outlive the result."""
        return _encode(self._slots.copy(), places, values)


def _encode(slots: list[int], places: Iterable[int], values: list[Any]) -> ctypes.Array[Any]:
    """Writes values at their places in the SaccadeValue `slots`, and the DLTensors that they point to after the slots.
    """
    tensors = [value for value in values if type(value) is tuple]
    count = len(slots) + sum(6 + 2 * len(shape) for _, _, shape, _, _ in tensors)
    memory = (ctypes.c_int64 * count)()
    base = ctypes.addressof(memory) + 8 * len(slots)
    extra: list[int] = []
    for place, value in zip(places, values):
        if type(value) is tuple:
            data, dtype, shape, strides, device = value
            rank = len(shape)
            at = base + 8 * len(extra)
            slots[3 * place : 3 * place + 3] = at, 0, 0
            # DLTensor: data, device, ndim and dtype, shape, strides, byte_offset.
            extra += (data, device, rank | dtype << 32, at + 48, at + 48 + 8 * rank, 0, *shape, *strides)
        elif type(value) is float:
            slots[3 * place : 3 * place + 3] = 0, 0, struct.unpack("=q", struct.pack("=d", value))[0]
        else:
            slots[3 * place : 3 * place + 3] = 0, value, 0
    memory[:] = slots + extra  # type: ignore[assignment]
    return memory


def snapshot(x: Any) -> Any:
    """What a later reader of x gets: a copy of a NumPy array, whose elements may change unnoticed, anything else as it
    is. Torch tensors have a version, which PyTorch compares. Repeated elements of a broadcast array are copied once."""
    if not is_numpy(x):
        return x
    import numpy

    steps = [stride if extent > 1 else 0 for stride, extent in zip(x.strides, x.shape)]
    once = numpy.array(x[tuple([slice(None) if step else slice(0, 1) for step in steps])], subok=False)
    if once.shape == x.shape:
        return once
    steps = [own if step else 0 for step, own in zip(steps, once.strides)]
    return numpy.lib.stride_tricks.as_strided(once, x.shape, steps)


def empty_numpy(shape: tuple[int, ...], dtype: str) -> numpy.ndarray:
    """A new NumPy array; bfloat16 and floats of 8 bits require ml_dtypes."""
    import numpy

    if DTYPES[dtype][0] in (0, 1, 2, 6):  # of NumPy itself
        return numpy.empty(shape, dtype)
    try:
        import ml_dtypes
    except ImportError:
        raise TypeError(f"a NumPy result of {dtype} requires the package ml_dtypes; or pass torch tensors") from None
    return numpy.empty(shape, getattr(ml_dtypes, dtype))
