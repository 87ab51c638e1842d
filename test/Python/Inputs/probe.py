"""The shared library that carries a copy of the runtime (test/Unit/Runtime/Inputs/Probe.cpp), from Python."""

import ctypes
import os
import pathlib
import shutil
import signal
import tempfile
import time


class Probe:
    """A copy of the runtime of its own, for each object is another library to the dynamic linker."""

    def __init__(self, build):
        self.inputs = pathlib.Path(build) / "test" / "Unit" / "Runtime" / "Inputs"
        with tempfile.TemporaryDirectory() as folder:
            self.library = ctypes.CDLL(shutil.copy(self.inputs / "probe.so", folder), mode=os.RTLD_LOCAL)
        for name in ("saccade_set_threads", "saccade_threads"):
            setattr(self, name.removeprefix("saccade_"), getattr(self.library, name))

    def run(self, count=40, microseconds=300):
        """The threads that ran `count` items of so many microseconds each; every item must have run exactly once."""
        threads, runs = (ctypes.c_int32 * count)(), (ctypes.c_int32 * count)()
        status = self.library.probe_run(ctypes.c_int64(count), ctypes.c_int64(microseconds), threads, runs)
        assert status == 0 and list(runs) == [1] * count, (status, list(runs))
        return set(threads)

    def hook(self):
        """Whom this copy takes for the runtime of the process; None before the first call."""
        return ctypes.c_void_p.in_dll(self.library, "saccade_runtime_v1").value


def threads_of_process():
    """All threads, once those that were joined a moment ago are gone from the list too."""
    time.sleep(0.05)
    return {int(name) for name in os.listdir("/proc/self/task")}


def in_child(body, seconds=30):
    """Runs `body` in the child of a fork, which must neither fail nor hang."""
    child = os.fork()
    if child == 0:
        signal.alarm(seconds)
        try:
            body()
        except BaseException as error:
            print("in the child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child of a fork ended with {os.waitstatus_to_exitcode(status)} (-14: it hung)"
