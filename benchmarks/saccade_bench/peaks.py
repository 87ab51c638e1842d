"""The machine's own limits, as a small C program made for this processor measures them."""

import ctypes
import pathlib

from .artifact import run, toolchain
from .problems import aligned_empty

TYPES = ("f32", "f64", "bf16")
# What the limits of an CPU target are measured with; the others take all that this processor has.
LEVELS = {"portable": "x86-64-v3", "v3": "x86-64-v3", "v4": "x86-64-v4"}


def compile_peaks(build, folder, target="host"):
    """The shared library of peaks.c, for the processor at hand or for an CPU target of it."""
    folder.mkdir(parents=True, exist_ok=True)
    level = LEVELS.get(target, "native")
    library = folder / f"peaks-{level}.so"
    compiler, *flags = toolchain(build)
    source = pathlib.Path(__file__).with_name("peaks.c")
    run([compiler, *flags, "-x", "c", "-O3", f"-march={level}", "-mprefer-vector-width=512", "-shared", "-fPIC",
         "-pthread", source, "-o", library])
    return library


class Machine:
    """What the processor and the memory give to `threads` threads."""

    def __init__(self, library, threads):
        self.threads = threads
        self.library = ctypes.CDLL(str(library))
        for name in TYPES:
            peak = getattr(self.library, f"peak_{name}")
            peak.restype, peak.argtypes = ctypes.c_double, [ctypes.c_int, ctypes.c_double]
        self.library.read_bandwidth.restype = ctypes.c_double
        self.library.read_bandwidth.argtypes = [ctypes.c_int, ctypes.c_double, ctypes.c_void_p, ctypes.c_int64]
        # Several times the last-level cache of one processor; written, so that every page is there.
        self.memory = aligned_empty((256 << 20,), "uint8")
        self.memory[...] = 1

    def peak(self, type, seconds=0.02):
        """Flops a second in products of this type, as the best instruction gives them. f16 is computed in f32."""
        name = type if type in TYPES else "f32"
        return getattr(self.library, f"peak_{name}")(self.threads, seconds) or self.peak("f32", seconds)

    def bandwidth(self, seconds=0.02):
        """Bytes a second of a plain read."""
        return self.library.read_bandwidth(self.threads, seconds, self.memory.ctypes.data, self.memory.size)
