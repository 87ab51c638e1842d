"""Runs our tasks on PyTorch's threads: no second pool, right results from several Python threads, after a fork, inside
its parallel regions and with one thread. Argument: the root of the build tree.
"""

import ctypes
import os
import pathlib
import sys
import threading
import time

from probe import Probe, in_child, threads_of_process

probe = Probe(sys.argv[1])
probe.set_threads(2)
own = probe.run()  # before PyTorch is there
probe.set_threads(0)

import torch

torch.set_num_threads(2)
matrix = torch.randn(512, 512)
expected = matrix @ matrix
torch.exp(torch.randn(1 << 20))
main = threading.get_native_id()

# The threads of PyTorch do it, and no other ones appear.
before = threads_of_process()
used = set().union(*(probe.run() for _ in range(5)))
assert len(used) == 2 and main in used and used & own <= {main}, (used, own)
assert threads_of_process() == before
assert probe.threads() == 2
torch.testing.assert_close(matrix @ matrix, expected)

# Two Python threads at once.
failures = []


def alternate():
    try:
        for _ in range(100):
            probe.run(10, 20)
            torch.testing.assert_close(matrix @ matrix, expected)
    except BaseException as error:
        failures.append(error)


threads = [threading.Thread(target=alternate) for _ in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
    # What runs after Python's end of a thread, such as MKL's clean-up under a lock, must not meet the fork below.
    while os.path.exists(f"/proc/self/task/{thread.native_id}"):
        time.sleep(0.001)
assert not failures, failures

# Inside a parallel region each call stays on the thread that makes it.
library = ctypes.CDLL(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
if hasattr(library, "torch_parallel_for"):
    records = (ctypes.c_int32 * 8 * 2)()
    zero, one, two = map(ctypes.c_int64, range(3))
    assert library.torch_parallel_for(zero, two, one, probe.library.probe_region, records) == 0
    rows = [list(record) for record in records]
    assert all(len(set(row[:4])) == 1 and row[4:] == [1] * 4 for row in rows), rows
    assert len({row[0] for row in rows}) == 2, "this was no parallel region"


# After a fork PyTorch's own pool would hang, ours does not; PyTorch works with one thread, and so do we.
def child():
    assert torch.get_num_threads() == 2
    assert len(probe.run()) == 2
    torch.set_num_threads(1)
    torch.testing.assert_close(matrix @ matrix, expected)
    assert probe.run() == {os.getpid()}


in_child(child)
assert probe.run() <= used, "the parent goes on as before"

torch.set_num_threads(1)
assert probe.threads() == 1 and probe.run() == {main}
probe.set_threads(2)
assert probe.threads() == 1 and probe.run() == {main}, "PyTorch's number is never exceeded"
torch.set_num_threads(2)
probe.set_threads(1)
assert probe.threads() == 1 and probe.run() == {main}, "an explicit wish for fewer counts"
