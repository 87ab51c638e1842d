"""Counters of the processor, by perf_event_open of Linux: cycles, instructions, and misses of the last cache."""

from __future__ import annotations

import ctypes
import os
import platform
import struct

_NUMBER = {"x86_64": 298, "aarch64": 241}
EVENTS = {"cycles": 0, "instructions": 1, "cache_misses": 3}  # PERF_COUNT_HW_...
_SIZE = 112  # of perf_event_attr, version 5
_FLAGS = 1 << 1 | 1 << 5 | 1 << 6  # inherit; exclude the kernel and the hypervisor


class Counters:
    """Counts of all threads of this process, and of threads that they start."""

    def __init__(self) -> None:
        self.refusal: str | None = None
        """Why there are no counts."""
        self._files: list[tuple[str, int]] = []
        number = _NUMBER.get(platform.machine())
        if number is None or not os.path.isdir("/proc/self/task"):
            self.refusal = f"perf_event_open is not known on {platform.system()} {platform.machine()}"
            return
        for thread in os.listdir("/proc/self/task"):
            for name, event in EVENTS.items():
                attributes = struct.pack("IIQQQQQ", 0, _SIZE, event, 0, 0, 0, _FLAGS).ljust(_SIZE, b"\0")
                libc = ctypes.CDLL(None, use_errno=True)
                file = libc.syscall(number, attributes, int(thread), -1, -1, 8)  # close on exec
                if file < 0:
                    self.refusal = f"perf_event_open is refused: {os.strerror(ctypes.get_errno())}"
                    self.close()
                    return
                self._files.append((name, file))

    def read(self) -> dict[str, int]:
        """The counts until now; empty if there are none."""
        counts = dict.fromkeys(EVENTS, 0) if self._files else {}
        for name, file in self._files:
            counts[name] += struct.unpack("Q", os.read(file, 8))[0]
        return counts

    def close(self) -> None:
        """Ends the counts."""
        for _, file in self._files:
            os.close(file)
        self._files.clear()
