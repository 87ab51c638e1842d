"""Helpers for tests on a fake GPU: tensors in the memory of the fake CUDA driver, and calls on them."""

import ctypes
import pathlib
import shutil
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "Tools" / "Inputs"))
from artifact import DLTensor, attention, compile_artifact, expect, finish, plain_call  # noqa: F401

CUDA = 2
Address = ctypes.c_uint64


class Double:
    """The fake driver, loaded into this process: later loads of libcuda.so.1 find it."""

    def __init__(self, build):
        self.library = ctypes.CDLL(str(pathlib.Path(build, "test", "Support", "FakeCUDA", "libcuda.so.1")))
        self.library.double_log.restype = ctypes.c_char_p
        self.library.double_set.argtypes = [ctypes.c_char_p, ctypes.c_int64]
        self.library.double_capture.argtypes = [ctypes.c_void_p, ctypes.c_int32]
        self.library.double_undefined.restype = ctypes.c_uint64
        self.library.double_undefined.argtypes = [Address, ctypes.c_uint64]
        self.library.double_allocations.restype = ctypes.c_int64
        self.call("cuInit", 0)
        self.log()

    def call(self, function, *arguments):
        result = getattr(self.library, function)(*arguments)
        assert result == 0, f"{function} gave {result}"

    def log(self):
        """The driver calls since the last log, as (function, detail)."""
        lines = self.library.double_log().decode().splitlines()
        return [tuple(line.partition(" ")[::2]) for line in lines]

    def called(self, function, log=None):
        """The details of the calls of one function."""
        return [detail for name, detail in (self.log() if log is None else log) if name == function]

    def set(self, **settings):
        for name, value in settings.items():
            self.library.double_set(name.encode(), value)

    def allocate(self, size):
        memory = Address()
        self.call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(max(size, 16)))
        return memory.value

    def put(self, array):
        """A copy of an array in GPU memory."""
        array = np.ascontiguousarray(array)
        memory = self.allocate(array.nbytes)
        self.call("cuMemcpyHtoD_v2", Address(memory), ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(array.nbytes))
        return describe(memory, array.dtype, array.shape)

    def empty(self, shape, dtype):
        """Uninitialised memory."""
        dtype = np.dtype(dtype)
        return describe(self.allocate(int(np.prod(shape)) * dtype.itemsize), dtype, shape)

    def get(self, tensor, dtype):
        array = np.empty([tensor.shape[i] for i in range(tensor.ndim)], dtype)
        self.call("cuMemcpyDtoH_v2", ctypes.c_void_p(array.ctypes.data), Address(tensor.data),
                  ctypes.c_size_t(array.nbytes))
        return array


def describe(memory, dtype, shape, device=0):
    """A DLTensor of contiguous GPU memory."""
    codes, ints = {"i": 0, "u": 1, "f": 2, "b": 6}, ctypes.c_int64 * max(len(shape), 1)
    return DLTensor(memory, CUDA, device, len(shape), codes[dtype.kind], 8 * dtype.itemsize, 1, ints(*shape), None, 0)


def changed(tensor, **fields):
    """A copy of a DLTensor with other fields; `tensor` must outlive it."""
    copy = DLTensor.from_buffer_copy(tensor)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def load(library, folder, name):
    """Loads a copy of a library, which has not loaded its kernels yet."""
    path = pathlib.Path(folder, name + ".so")
    shutil.copy(library, path)
    return ctypes.CDLL(str(path))


class Problem:
    """Arguments of @attend and @twice, with a float64 reference."""

    def __init__(self, double, seed=1, queries=37, keys=50):
        rng = np.random.default_rng(seed)
        self.double, self.arrays = double, [rng.standard_normal((2, heads, rows, 64)).astype(np.float16)
                                            for heads, rows in ((2, queries), (1, keys), (1, keys))]
        self.inputs = [double.put(array) for array in self.arrays]
        self.output, self.lse = double.empty((2, 2, queries, 64), "f2"), double.empty((2, 2, queries), "f4")

    def attend(self, library):
        return plain_call(library, "attend", *self.inputs, self.output, self.lse)

    def twice(self, library):
        return plain_call(library, "twice", *self.inputs, self.output)

    def check(self, what):
        """Compares the results of @attend with the reference."""
        expected, lse = attention(*self.arrays, 0.125, self.arrays[1].shape[2])
        for tensor, dtype, reference in ((self.output, "f2", expected), (self.lse, "f4", lse)):
            found = self.double.get(tensor, dtype).astype(np.float64)
            with np.errstate(invalid="ignore"):  # a row without keys has -inf on both sides
                error = np.where(found == reference, 0, np.abs(found - reference)).max()
            expect(error < 4e-3, f"{what}: off by {error}")
