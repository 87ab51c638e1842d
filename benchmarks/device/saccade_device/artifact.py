"""Calls shared libraries of --emit=so through ctypes; see include/saccade-c/DLTensor.h and docs/guides/gpu.md."""

import ctypes
import math

# DLPack type code and bits of an element.
TYPES = {"f16": (2, 16), "bf16": (4, 16), "f32": (2, 32), "i32": (0, 32)}
_CUDA = 2


def bytes_of(dtype, shape):
    return TYPES[dtype][1] // 8 * math.prod(shape)


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def describe(address, dtype, shape):
    """A contiguous tensor on the first GPU."""
    code, bits = TYPES[dtype]
    extents = (ctypes.c_int64 * max(len(shape), 1))(*shape)
    return DLTensor(address, _CUDA, 0, len(shape), code, bits, 1, extents, None, 0)


class Artifact:
    def __init__(self, path):
        self.library = ctypes.CDLL(str(path))

    def function(self, entry, tensors):
        """A function that calls the entry with these tensors; raises RuntimeError if the entry returns a message."""
        function = getattr(self.library, "saccade_" + entry)
        function.restype = ctypes.c_char_p
        arguments = [ctypes.byref(tensor) for tensor in tensors]

        def call():
            message = function(*arguments)
            if message is not None:
                raise RuntimeError(message.decode())

        return call

    def set_stream(self, stream):
        self.library.saccade_set_stream(ctypes.c_void_p(stream))
