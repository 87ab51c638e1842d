"""Processes that compute on command. Two runtimes in one process would fight: both have pools that spin."""

import contextlib
import multiprocessing
import os
import statistics
import time
import traceback

import numpy as np

from . import cases
from .artifact import Program
from .peaks import Machine

# A turn is long enough that one interruption does not decide it, and short enough that many rounds fit.
TURN_SECONDS, MOST_CALLS = 0.06, 5


# A peer that allocates its output must not pay for the system's page faults at every call.
STEADY_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


class WorkerFailed(RuntimeError):
    """A worker raised an error or died; the message says which and how."""


class Attention:
    """Base of the workers that compute attention: `bind` gives a call without arguments for a case."""

    def prepare(self, case):
        """Makes inputs and warms up; the seconds of one call."""
        self.case, self.inputs = case, cases.make_inputs(case)
        self.call, self.output = self.bind(case, self.inputs)
        return min(self.timed() for _ in range(3))

    def timed(self):
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def turn(self, expected):
        """(seconds of a call, processors in use meanwhile). `expected` seconds say how many calls fit."""
        if expected < TURN_SECONDS:
            self.call()  # the pool has gone to sleep since the last turn
        calls = max(1, min(MOST_CALLS, int(TURN_SECONDS / expected)))
        start, used = time.perf_counter(), time.process_time()
        seconds = statistics.median(self.timed() for _ in range(calls))
        return seconds, (time.process_time() - used) / (time.perf_counter() - start)

    def rows(self, rows):
        """The output's rows (b, h, query) as float64."""
        output = self.output()
        return np.array([cases.to_float64(output[row]) for row in rows])

    def release(self):
        self.call = self.output = self.inputs = None


class SaccadeWorker(Attention):
    """Calls the artifact of a case's kind."""

    def __init__(self, libraries, threads):
        self.programs = {kind: Program(library, threads, kind) for kind, library in libraries.items()}

    def bind(self, case, inputs):
        output = cases.aligned_empty(case.output_shape(), cases.NUMPY_TYPES[case.type])
        output[...] = 0
        return self.programs[case.kind].bind(inputs, output), lambda: output


class TorchWorker(Attention):
    """PyTorch's scaled_dot_product_attention in its best form: compact inputs, inference mode, no explicit mask."""

    def __init__(self, threads):
        import torch

        torch.set_num_threads(threads)
        self.torch = torch

    def bind(self, case, inputs):
        torch = self.torch
        tensor = lambda a: torch.from_numpy(a.view(np.int16)).view(torch.bfloat16) if case.type == "bf16" else torch.from_numpy(a)
        query, key, value = map(tensor, inputs)
        options = {"is_causal": case.mask == "causal"}
        if case.key_heads != case.heads:
            options["enable_gqa"] = True
        result = None

        def call():
            nonlocal result
            with torch.inference_mode():
                result = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)

        return call, lambda: result.double().numpy()


class MachineWorker:
    """The limits, measured in the same rounds."""

    def __init__(self, library, threads):
        self.machine = Machine(library, threads)

    def turn(self, type):
        return self.machine.peak(type), self.machine.bandwidth()


def serve(connection, factory, arguments):
    worker = None
    while True:
        try:
            method, values = connection.recv()
        except EOFError:
            return
        try:
            if worker is None:
                worker = factory(*arguments)
            connection.send((True, getattr(worker, method)(*values) if method else None))
        except Exception:  # the coordinator reports it
            connection.send((False, traceback.format_exc()))


class Remote:
    """A worker in a process of its own; its methods are called by name and answer before anything else happens."""

    def __init__(self, name, factory, *arguments):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, factory, arguments), daemon=True)
        self.process.start()
        other.close()
        self.call(None)

    def call(self, method, *values):
        try:
            self.connection.send((method, values))
            done, result = self.connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join(5)
            raise WorkerFailed(f"the process of {self.name} died with exit code {self.process.exitcode}") from None
        if not done:
            raise WorkerFailed(f"{self.name}: {result}")
        return result

    def close(self):
        self.connection.close()
        self.process.join(5)
        if self.process.is_alive():
            self.process.kill()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


@contextlib.contextmanager
def environment(variables):
    """For the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(variables)
    yield
    os.environ.clear()
    os.environ.update(before)
