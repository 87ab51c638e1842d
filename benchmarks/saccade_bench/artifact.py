"""Compiles the program of a kind to a shared library, once for all its cases, and calls it through ctypes."""

import ctypes
import pathlib
import re
import subprocess
import time

from .programs import ENTRY, source


class BuildFailed(RuntimeError):
    """A tool failed; the message has its exit code and its stderr."""


def run(command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise BuildFailed(f"{pathlib.Path(command[0]).name} failed with exit code {done.returncode}:\n{done.stderr.strip()}")


def toolchain(build):
    """The C++ compiler that made the build tree, and its flags for shared libraries."""
    cache = (build / "CMakeCache.txt").read_text()
    found = lambda name: re.search(rf"^{name}:\w+=(.*)$", cache, re.M)
    return [found("CMAKE_CXX_COMPILER")[1], *found("CMAKE_SHARED_LINKER_FLAGS")[1].split()]


class Artifact:
    """The shared library of one kind in `folder`, compiled by the tools of the build tree `build`."""

    def __init__(self, kind, build, folder, target="host"):
        folder.mkdir(parents=True, exist_ok=True)
        self.kind = kind
        self.program = folder / f"{kind}.mlir"
        self.library = folder / f"{kind}.so"
        self.program.write_text(source(kind))
        start = time.perf_counter()
        run([build / "bin" / "saccade-compile", self.program, f"--target={target}", "--emit=so", "-o", self.library])
        self.seconds = time.perf_counter() - start


class DLDevice(ctypes.Structure):
    _fields_ = [("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32)]


class DLDataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device", DLDevice), ("ndim", ctypes.c_int32), ("dtype", DLDataType),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


def tensor(array):
    """A DLTensor view of `array`, which must outlive it. uint16 arrays hold bf16 bits."""
    extents = ctypes.c_int64 * array.ndim
    strides = extents(*(stride // array.itemsize for stride in array.strides))
    code = 4 if array.dtype == "uint16" else 2
    return DLTensor(array.ctypes.data, DLDevice(1, 0), array.ndim, DLDataType(code, 8 * array.itemsize, 1),
                    extents(*array.shape), strides, 0)


class Program:
    """A loaded library of a kind. It uses as many threads as the process has processors."""

    def __init__(self, library, kind, entry=ENTRY):
        self.kind = kind
        self.entry = getattr(ctypes.CDLL(str(library)), f"saccade_{entry}")
        self.entry.restype = ctypes.c_char_p

    def bind(self, inputs, *outputs):
        """A function without arguments that computes `outputs` from `inputs`, which must outlive it. Each call validates
        its arguments, as for any caller."""
        tensors = [tensor(array) for array in (*inputs, *outputs)]
        arguments = [ctypes.byref(each) for each in tensors]
        call = self.entry

        def bound(_keep=tensors):
            message = call(*arguments)
            if message is not None:
                raise ValueError(message.decode())

        return bound
