"""Two libraries, the compiler's JIT and PyTorch in one process have one pool of threads: its size is that of the
first that was called, and the others add no thread. Arguments: two libraries, and who is called first.
"""

import sys

import numpy as np
from probe import threads_of_process
from programs import attention

import saccade

first, second, order = saccade.load(sys.argv[1]).attend, saccade.load(sys.argv[2]).attend, sys.argv[3]
assert first._library.address("saccade_entry_call") != second._library.address("saccade_entry_call")
random = np.random.default_rng(1)
q, k, v = (random.standard_normal((4, 8, 128, depth), np.float32) for depth in (16, 16, 8))
x = random.standard_normal((4, 8, 128, 16), np.float32)


def run_first():
    return first(q, k, v, 0.25, 128)


def run_second():
    return second(q, k, v, 0.25, 128)


compiled = saccade.compile(attention()).attend


def run_compiled():
    return compiled(x, x, x)


def new_threads(*calls):
    """The number of threads that calls add, each run several times."""
    before = threads_of_process()
    for call in calls * 3:
        call()
    return len(threads_of_process() - before)


if order == "torch first":
    import torch

    torch.set_num_threads(3)
    matrix = torch.randn(512, 512)
    assert new_threads(lambda: matrix @ matrix, lambda: torch.exp(matrix)) == 2
    assert new_threads(run_first, run_second, run_compiled) == 0
    assert new_threads(lambda: matrix @ matrix, run_first, run_compiled, run_second) == 0
else:
    saccade.set_num_threads(3)
    calls = [run_first, run_second, run_compiled]
    if order == "jit first":
        calls.reverse()
    assert new_threads(calls[0]) == 2, "a pool of three threads, one of which is the caller"
    assert new_threads(*calls) == 0, "one pool"
    import torch

    torch.set_num_threads(3)
    matrix = torch.randn(512, 512)
    # PyTorch brings its threads; from now on all run on those.
    assert new_threads(lambda: matrix @ matrix, lambda: torch.exp(matrix)) == 2
    assert new_threads(*calls, lambda: matrix @ matrix, *calls) == 0
a, b = run_first(), run_second()
assert [x.tobytes() for x in a] == [x.tobytes() for x in b]
