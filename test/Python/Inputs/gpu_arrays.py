"""An array library on the fake GPU of test/Support/FakeCUDA: arrays hand out their memory by DLPack and record for which
stream. `Array` speaks DLPack 1, `OldArray` the version before."""

import ctypes
import os
import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "Runtime" / "CUDA" / "Inputs"))
from gpu import Double

CUDA = 2
float16, float32, float64, int32, int64 = map(np.dtype, ("float16", "float32", "float64", "int32", "int64"))
double = None  # of `start`

_CODES = {"i": 0, "u": 1, "f": 2, "b": 6, "V": 4}  # V: bfloat16 of ml_dtypes
_python = ctypes.PyDLL(None)  # ctypes.pythonapi is shared: other packages declare its functions, too
_python.PyCapsule_New.restype = ctypes.py_object
_python.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                ("byte_offset", ctypes.c_uint64)]  # fmt: skip


class _Versioned(ctypes.Structure):
    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]  # fmt: skip


class _Unversioned(ctypes.Structure):
    _fields_ = [("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


_live = {}  # the structures of capsules by address
_get_name = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.c_void_p)(("PyCapsule_GetName", _python))
_get_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(("PyCapsule_GetPointer", _python))


@ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
def _destroy(capsule):
    name = _get_name(capsule)
    if not name.startswith(b"used_"):
        _delete(_get_pointer(capsule, name))


@ctypes.CFUNCTYPE(None, ctypes.c_void_p)
def _delete(held):
    del _live[held]


def start(build):
    """Loads the fake driver of the build tree into this process; returns it."""
    global double
    if "SACCADE_CHECKS_WHEEL" in os.environ:  # `./dev wheel --check`
        import pytest

        pytest.skip("the fake driver is in a build tree only")
    double = double or Double(build)
    return double


class Array:
    """An array in memory of the fake GPU, with strides in elements."""

    def __init__(self, memory, dtype, shape, strides=None, device=(CUDA, 0), offset=0, is_read_only=False):
        self.memory, self.dtype, self.shape, self.offset = memory, np.dtype(dtype), tuple(shape), offset
        self.strides, self._device, self.is_read_only = strides, device, is_read_only
        self.streams = []  # those that memory was handed out for

    @property
    def ndim(self):
        return len(self.shape)

    @property
    def device(self):
        return self._device[1]

    def __array_namespace__(self):
        return sys.modules[__name__]

    def __dlpack_device__(self):
        return self._device

    def __dlpack__(self, *, stream=None, max_version=None):
        if max_version is None:
            return self._capsule(_Unversioned(), b"dltensor", stream)
        assert max_version >= (1, 0), max_version
        held = _Versioned(1, 1, None, None, int(self.is_read_only))
        return self._capsule(held, b"dltensor_versioned", stream)

    def _capsule(self, held, name, stream):
        self.streams.append(stream)
        extents, steps = (None if numbers is None else (ctypes.c_int64 * max(self.ndim, 1))(*numbers)
                          for numbers in (self.shape, self.strides))
        held.tensor = _DLTensor(self.memory, *self._device, self.ndim, _CODES[self.dtype.kind], 8 * self.dtype.itemsize, 1,
                                ctypes.addressof(extents), steps and ctypes.addressof(steps), self.offset)
        held.deleter = ctypes.cast(_delete, ctypes.c_void_p)
        _live[ctypes.addressof(held)] = held, extents, steps, self
        return _python.PyCapsule_New(ctypes.addressof(held), name, ctypes.cast(_destroy, ctypes.c_void_p))

    def get(self):
        """A copy in NumPy; of compact arrays."""
        array = np.empty(self.shape, self.dtype)
        if array.size:
            double.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), ctypes.c_uint64(self.memory),
                        ctypes.c_size_t(array.nbytes))  # fmt: skip
        return array


class OldArray(Array):
    def __dlpack__(self, stream=None):
        return self._capsule(_Unversioned(), b"dltensor", stream)


def live_capsules():
    """The number of capsules that are alive."""
    return len(_live)


def empty(shape, dtype=float32, device=0):
    dtype = np.dtype(dtype)
    return Array(double.allocate(int(np.prod(shape)) * dtype.itemsize), dtype, shape, device=(CUDA, device))


def asarray(array, kind=Array, **fields):
    """A copy of a NumPy array in GPU memory."""
    array = np.ascontiguousarray(array)
    memory = double.allocate(array.nbytes)
    if array.size:
        double.call("cuMemcpyHtoD_v2", ctypes.c_uint64(memory), ctypes.c_void_p(array.ctypes.data),
                    ctypes.c_size_t(array.nbytes))  # fmt: skip
    return kind(memory, array.dtype, array.shape, **fields)


def asnumpy(array):
    return array.get()
