"""Worker processes of the contenders. Separate processes keep the spinning thread pools of the runtimes apart."""

import contextlib
import multiprocessing
import os
import statistics
import time
import traceback

import numpy as np

from . import problems
from .artifact import Program
from .peaks import Machine

# A timed run is long enough to be robust against one interruption, and short enough for many rounds.
RUN_SECONDS, MAX_CALLS = 0.06, 5
LONG_SECONDS = 1.0  # longer calls are warmed up once

# Peers that allocate their output should not pay for page faults in every call.
STEADY_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


class WorkerFailed(RuntimeError):
    """A worker raised an exception or died. The message has the traceback, `reason` one line."""

    def __init__(self, message, reason):
        super().__init__(message)
        self.reason = reason


class Timed:
    """Base of what is timed: `call` takes no arguments."""

    def timed(self):
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def fastest(self, calls):
        """Seconds of the fastest of some calls; the first one wakes the thread pool."""
        return min(self.timed() for _ in range(calls))


class Worker(Timed):
    """Base of the contenders: `bind` returns a call without arguments for a case, and a function that gives the output."""

    name: str
    package: str | None = None  # the report has its version

    @staticmethod
    def supports(case):
        return True

    def prepare(self, case):
        """Makes inputs, binds and warms up; (seconds of one call, {name: seconds} of untimed work)."""
        self.case, self.inputs, self.notes = case, problems.make_inputs(case), {}
        self.call, self.output = self.bind(case, self.inputs)
        seconds = self.timed()
        if seconds < LONG_SECONDS:
            seconds = self.fastest(2)
        return seconds, self.notes

    @contextlib.contextmanager
    def outside_timing(self, name):
        """Records the seconds of one-time work for a case, which is not timed."""
        start = time.perf_counter()
        yield
        self.notes[name] = time.perf_counter() - start

    def timed_run(self, expected):
        """(median seconds of a call, processors in use). `expected` seconds of a call determine the number of calls."""
        if expected < RUN_SECONDS:
            self.call()  # wakes the thread pool
        calls = max(1, min(MAX_CALLS, int(RUN_SECONDS / expected)))
        start, used = time.perf_counter(), time.process_time()
        seconds = statistics.median(self.timed() for _ in range(calls))
        return seconds, (time.process_time() - used) / (time.perf_counter() - start)

    def rows(self, rows):
        """These rows of the output as float64."""
        output = self.case.by_row(self.output())
        return np.array([problems.to_float64(output[row]) for row in rows])

    def release(self):
        self.call = self.output = self.inputs = None


class SaccadeWorker(Worker):
    """Calls the artifact of a case's kind."""

    name = "saccade"

    def __init__(self, libraries):
        self.programs = {kind: Program(library, kind) for kind, library in libraries.items()}

    def bind(self, case, inputs):
        output = problems.make_output(case)
        return self.programs[case.kind].bind(inputs, output), lambda: output


class PeakWorker:
    """Measures the FLOP peak and the read bandwidth in the same rounds."""

    def __init__(self, library, threads):
        self.machine = Machine(library, threads)

    def timed_run(self, type):
        return self.machine.peak(type), self.machine.bandwidth()


def limit_processors(count):
    """Restricts this process to `count` processors, from which runtimes derive their number of threads."""
    mine = sorted(os.sched_getaffinity(0))
    if count < len(mine):
        os.sched_setaffinity(0, mine[:count])


def serve(connection, factory, threads, arguments):
    limit_processors(threads)
    worker = None
    while True:
        try:
            method, values = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        try:
            if worker is None:
                worker = factory(*arguments)
            connection.send((True, getattr(worker, method)(*values) if method else None))
        except KeyboardInterrupt:
            return
        except BaseException as error:  # the coordinator reports it
            connection.send((False, (traceback.format_exc(), in_one_line(error))))


def in_one_line(error, limit=200):
    """The message of an error in one line, with its middle cut if it is too long."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= limit else f"{text[:limit // 2]} ... {text[-limit // 2:]}"


class WorkerProcess:
    """A worker in its own process. `call` runs a method by name and waits for its result."""

    def __init__(self, name, factory, threads, *arguments, variables=STEADY_ALLOCATOR):
        self.name = name
        context = multiprocessing.get_context("spawn")
        self.connection, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, factory, threads, arguments), daemon=True)
        with environment(variables):
            self.process.start()
        other.close()
        self.call(None)

    def call(self, method, *values):
        try:
            self.connection.send((method, values))
            done, result = self.connection.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self.process.join(5)
            reason = f"the process died with exit code {self.process.exitcode}"
            raise WorkerFailed(f"{self.name}: {reason}", reason) from None
        if not done:
            raise WorkerFailed(f"{self.name}: {result[0]}", result[1])
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
    """Sets environment variables for processes started in this context."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
