"""The resident memory of this process, and its peak, as Linux states them."""

from __future__ import annotations


def status(key: str) -> int | None:
    """A number of /proc/self/status in bytes, "VmRSS" (resident now) or "VmHWM" (its peak); None elsewhere."""
    try:
        with open("/proc/self/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(key + ":"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    return None


def reset_peak() -> bool:
    """Sets the peak to the memory that is resident now. Returns whether the system lets it."""
    try:
        with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
            file.write("5")
    except OSError:
        return False
    return True
