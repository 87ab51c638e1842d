"""Memory of one call beyond its inputs and output, in a fresh process."""

import pathlib

from . import cases, problems
from .artifact import Program

MEMORY_CASES = [cases.parse("1x1x16384x64 full"), cases.parse("1x1x16384x64 causal")]


def status(key):
    """A line of this process's status, in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


class MemoryWorker:
    """Calls a program once and looks at the peak of resident memory. To be used for one measurement only."""

    def measure(self, library, case):
        inputs, output = problems.make_inputs(case), problems.make_output(case)
        call = Program(library, case.kind).bind(inputs, output)
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak falls back to what is resident now
        before = status("VmHWM")
        call()
        return status("VmHWM") - before
