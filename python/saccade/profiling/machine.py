"""What this machine can do: arithmetic and reads of memory, measured."""

from __future__ import annotations

import functools
import importlib
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

SIDE = 512
READ_BYTES = 256 << 20
_SECONDS = 0.2


class Machine(NamedTuple):
    """Measured rates, which bound the speed of a kernel (roofline, Williams et al. 2009)."""

    dtype: str
    peak: float
    """FLOP/s of a matmul of 512 × 512 × 512 elements of this type, the best of the calls in 0.2 s: by PyTorch if it is
    imported, else by NumPy."""
    read_rate: float
    """Bytes per second of a sum over 256 MiB, the best of the calls in 0.2 s."""
    threads: int

    def roof(self, intensity: float) -> float:
        """The most FLOP/s for an arithmetic intensity in FLOP per byte."""
        return min(self.peak, intensity * self.read_rate)


def measure(dtype: str = "float32") -> Machine:
    """The rates of this machine for an element type, with the threads that calls use now. Measured once."""
    from saccade._library import num_threads

    threads = sys.modules["torch"].get_num_threads() if "torch" in sys.modules else num_threads()
    return _measure(dtype, threads)


@functools.lru_cache(maxsize=16)
def _measure(dtype: str, threads: int) -> Machine:
    library: Any = sys.modules.get("torch") or importlib.import_module("numpy")
    element = getattr(library, dtype)
    a, b = library.ones((SIDE, SIDE), dtype=element), library.ones((SIDE, SIDE), dtype=element)
    memory = library.ones((READ_BYTES // 4,), dtype=library.float32)
    peak = 2 * SIDE**3 / _best(lambda: a @ b)
    return Machine(dtype, peak, READ_BYTES / _best(memory.sum), threads)


def _best(call: Callable[[], Any]) -> float:
    """The seconds of the fastest of the calls in a fifth of a second, after one that does not count."""
    call()
    best, end = float("inf"), time.perf_counter() + _SECONDS
    while True:
        start = time.perf_counter()
        call()
        now = time.perf_counter()
        best = min(best, now - start)
        if now > end:
            return best
