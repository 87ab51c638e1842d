"""Processes that compute on command. Two runtimes in one process would fight: both have pools that spin."""

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

# A turn is long enough that one interruption does not decide it, and short enough that many rounds fit.
TURN_SECONDS, MAX_CALLS = 0.06, 5
LONG_SECONDS = 1.0  # calls that take longer need no further warming up

# A peer that allocates its output must not pay for the system's page faults at every call.
STEADY_ALLOCATOR = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40)}


class WorkerFailed(RuntimeError):
    """A worker raised an error or died; the message says which and how, `reason` in one line."""

    def __init__(self, message, reason):
        super().__init__(message)
        self.reason = reason


class Worker:
    """Base of those who compute: `bind` gives a call without arguments for a case, and a function for the output."""

    name: str
    package: str | None = None  # whose version the report tells

    @staticmethod
    def supports(case):
        return True

    def prepare(self, case):
        """Makes inputs and warms up; (the seconds of one call, seconds of what is outside the timing by its name)."""
        self.case, self.inputs, self.notes = case, problems.make_inputs(case), {}
        self.call, self.output = self.bind(case, self.inputs)
        seconds = self.timed()
        if seconds < LONG_SECONDS:
            seconds = min(self.timed() for _ in range(2))
        return seconds, self.notes

    @contextlib.contextmanager
    def outside_timing(self, name):
        """Notes the seconds of what a contender does once for a case."""
        start = time.perf_counter()
        yield
        self.notes[name] = time.perf_counter() - start

    def timed(self):
        start = time.perf_counter()
        self.call()
        return time.perf_counter() - start

    def turn(self, expected):
        """(seconds of a call, processors in use meanwhile). `expected` seconds say how many calls fit."""
        if expected < TURN_SECONDS:
            self.call()  # the pool has gone to sleep since the last turn
        calls = max(1, min(MAX_CALLS, int(TURN_SECONDS / expected)))
        start, used = time.perf_counter(), time.process_time()
        seconds = statistics.median(self.timed() for _ in range(calls))
        return seconds, (time.process_time() - used) / (time.perf_counter() - start)

    def rows(self, rows):
        """The output's rows as float64."""
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


class MachineWorker:
    """The limits, measured in the same rounds."""

    def __init__(self, library, threads):
        self.machine = Machine(library, threads)

    def turn(self, type):
        return self.machine.peak(type), self.machine.bandwidth()


def limit_processors(count):
    """Lets this process run on `count` of its processors: every runtime takes its number of threads from there."""
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


def in_one_line(error, most=200):
    """Beginning and end of what an error says."""
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= most else f"{text[:most // 2]} ... {text[-most // 2:]}"


class Remote:
    """A worker in a process of its own; its methods are called by name and answer before anything else happens."""

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
    """For the processes that are started meanwhile."""
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
