"""Checks what counts as PyTorch's pool: the stable C interface or the OpenMP library of libtorch_cpu, as soon as it is
loaded, and not in a process that may have lost its threads in a fork. A small library stands in for PyTorch.
Arguments: the root of the build tree, "stable" or "older".
"""

import ctypes
import os
import sys

from probe import Probe, in_child, threads_of_process

build, kind = sys.argv[1:]
early = Probe(build)
fake = early.inputs / kind / "libtorch_cpu.so"


def fresh_child():
    # Here PyTorch comes after the fork and after the runtime looked for it.
    assert len(early.run()) == 2
    torch = ctypes.CDLL(fake)
    early.run()
    assert torch.fake_calls() == 1


early.set_threads(2)
in_child(fresh_child)

early.set_threads(0)
torch = ctypes.CDLL(fake)
before = threads_of_process()
assert early.threads() == 2 and len(early.run()) == 2 and torch.fake_calls() == 1
assert threads_of_process() == before, "own threads beside PyTorch's"
early.set_threads(5)
assert early.threads() == 2, "PyTorch's own number rules"
early.run()
assert torch.fake_calls() == 2
early.run(count=1)
early.set_threads(1)
assert early.run() == {os.getpid()} and torch.fake_calls() == 2, "one item or one thread needs no pool"
early.set_threads(0)


def child():
    assert len(early.run()) == 2 and torch.fake_calls() == 2, "PyTorch's pool was used after a fork"


in_child(child)
