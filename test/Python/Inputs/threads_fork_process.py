"""Forks a child that loads its first copy of the runtime itself: it leaves alone the pool of PyTorch, which may have lost
its threads. A small library stands in for PyTorch. Argument: the root of the build tree.
"""

import ctypes
import pathlib
import sys

from probe import Probe, in_child

build = pathlib.Path(sys.argv[1])
torch = ctypes.CDLL(build / "test" / "Unit" / "Runtime" / "Inputs" / "stable" / "libtorch_cpu.so")


def child():
    assert len(Probe(build).run()) == 2 and torch.fake_calls() == 0


in_child(child)
Probe(build).run()
assert torch.fake_calls() == 1
