"""Memory of one call beyond its inputs and output, in a fresh process."""

import pathlib

from . import cases, problems
from .artifact import Program

MEMORY_CASES = [cases.parse("1x1x16384x64 full"), cases.parse("1x1x16384x64 causal")]


def status(key):
    """A value of /proc/self/status, in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


class MemoryWorker:
    """Measures the growth of peak resident memory in one call. A process can be used for one measurement only."""

    def measure(self, library, case):
        inputs, output = problems.make_inputs(case), problems.make_output(case)
        call = Program(library, case.kind).bind(inputs, output)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # resets VmHWM to the resident size
        before = status("VmHWM")
        call()
        return status("VmHWM") - before
