"""The machine's peak FLOP rate and read bandwidth, measured by peaks.c compiled for this processor."""

import ctypes
import pathlib

from .artifact import run, toolchain
from .problems import aligned_empty

TYPES = ("f32", "f64", "bf16")
# The -march option of a CPU target; others use -march=native.
MARCH = {"portable": "x86-64-v3", "v3": "x86-64-v3", "v4": "x86-64-v4", "v4-bf16": "cooperlake"}


def compile_peaks(build, folder, target="host"):
    """Compiles peaks.c for this processor or for a CPU target; the shared library."""
    folder.mkdir(parents=True, exist_ok=True)
    march = MARCH.get(target, "native")
    library = folder / f"peaks-{march}.so"
    compiler, *flags = toolchain(build)
    source = pathlib.Path(__file__).with_name("peaks.c")
    run([compiler, *flags, "-x", "c", "-O3", f"-march={march}", "-mprefer-vector-width=512", "-shared", "-fPIC",
         "-pthread", source, "-o", library])
    return library


class Machine:
    """Peak FLOP rate and read bandwidth with `threads` threads."""

    def __init__(self, library, threads):
        self.threads = threads
        self.library = ctypes.CDLL(str(library))
        for name in TYPES:
            peak = getattr(self.library, f"peak_{name}")
            peak.restype, peak.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]
        self.library.read_bandwidth.restype = ctypes.c_double
        self.library.read_bandwidth.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_void_p, ctypes.c_int64]
        # Larger than the last-level cache; written once, so that all pages are mapped.
        self.memory = aligned_empty((256 << 20,), "uint8")
        self.memory[...] = 1

    def peak(self, type, seconds=0.02):
        """FLOP/s of the fastest multiply-add instruction of this type; f16 is computed in f32."""
        name = type if type in TYPES else "f32"
        return getattr(self.library, f"peak_{name}")(self.threads, seconds) or self.peak("f32", seconds)

    def bandwidth(self, seconds=0.02):
        """Bytes per second of a sequential read."""
        return self.bandwidth_of(self.memory.ctypes.data, self.memory.size, seconds)

    def bandwidth_of(self, address, size, seconds):
        """Bytes per second of a sequential read of memory at an address that is a multiple of 64."""
        return self.library.read_bandwidth(self.threads, seconds, address, size)
