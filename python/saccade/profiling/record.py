"""`saccade.profile` and what it records."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from saccade import _files, _places, _served
from saccade.profiling import counters, machine, memory, plot, work, writing
from saccade.profiling import tasks as task_times

KEPT_EVENTS = 100_000
"""The last calls and compilations that a trace has."""
KEPT_LATENCIES = 4096
"""The latencies of a row that percentiles are computed from: a random sample if there are more."""


class Event(NamedTuple):
    """A call or a compilation."""

    kind: str
    """"attention", "program" or "compilation"."""
    name: str
    start: int
    """In nanoseconds of `time.perf_counter_ns`, as `end`."""
    end: int
    thread: int
    details: dict[str, Any]


class Row:
    """Equal calls from one place."""

    def __init__(self, function: str, module: str, place: str, operands: str, dtype: str):
        self.function, self.module, self.place, self.operands, self.dtype = function, module, place, operands, dtype
        self.calls = 0
        self.seconds = 0.0
        """Of all calls, without compilations."""
        self.work: work.Work | None = None
        """Of the last call."""
        self.tasks: list[task_times.Task] = []
        """What its kernels spent in all calls, the longest first; empty for a GPU."""
        self._latencies: list[float] = []
        self._random = random.Random(0)

    def add(self, seconds: float, done: work.Work | None, launched: Sequence[task_times.Task] = ()) -> None:
        self.calls += 1
        if launched:
            self.tasks = task_times.accumulated([*self.tasks, *launched])
        self.seconds += seconds
        self.work = done
        if len(self._latencies) < KEPT_LATENCIES:
            self._latencies.append(seconds)
        elif (at := self._random.randrange(self.calls)) < KEPT_LATENCIES:
            self._latencies[at] = seconds

    def percentile(self, percent: float) -> float:
        """The latency in seconds that `percent` percent of the calls do not exceed (nearest rank)."""
        ordered = sorted(self._latencies)
        rank = -(-len(ordered) * percent // 100)
        return ordered[max(0, int(rank) - 1)]

    @property
    def tokens_per_second(self) -> float | None:
        """Queries over the median latency."""
        return None if self.work is None else self.work.tokens / self.percentile(50)

    @property
    def flops_per_second(self) -> float | None:
        """The FLOP of visible pairs over the median latency."""
        if self.work is None:
            return None
        return self.work.flops / self.percentile(50)

    @property
    def intensity(self) -> float | None:
        """FLOP per byte."""
        if self.work is None or not self.work.bytes:
            return None
        return self.work.flops / self.work.bytes


class Profile(_served.Observer):
    """The calls in a `saccade.profile()` block. It can be read while the block is open."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, ...], Row] = {}
        self._events: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._launches: deque[tuple[task_times.Launch, int]] = deque(maxlen=KEPT_EVENTS)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._start = self._end = 0
        self.memory: int | None = None
        """The resident memory of the process in bytes when the block began."""
        self.peak_memory: int | None = None
        """By how much its peak exceeded it until the end of the block: arrays, programs and workspaces of everything
        that ran, also of other libraries. None before the end, and where the system does not state it."""
        self.counts: dict[str, int] = {}
        """Cycles, instructions and misses of the last cache of the process in the block."""
        self.counts_refusal: str | None = None
        """Why there are no counts."""
        self.machines: dict[str, machine.Machine] = {}
        """The measured rates of the machine by element type, with `roofline=True`."""

    @property
    def rows(self) -> list[Row]:
        """The calls, in the order of their first occurrence."""
        with self._lock:
            return list(self._rows.values())

    @property
    def events(self) -> list[Event]:
        """The last calls and compilations."""
        with self._lock:
            return list(self._events)

    @property
    def tasks(self) -> list[task_times.Task]:
        """The tasks of all calls on the CPU, the longest first."""
        return task_times.accumulated([task for row in self.rows for task in row.tasks])

    @property
    def launches(self) -> list[tuple[task_times.Launch, int]]:
        """The last launches of tasks with their threads: of each call the first 1,000."""
        with self._lock:
            return list(self._launches)

    @property
    def seconds(self) -> float:
        """How long the block was open, or is."""
        return ((self._end or time.perf_counter_ns()) - self._start) * 1e-9

    def watch(self, call: _served.Observed) -> Any:
        """Times a call of attention."""
        return self._timed("attention", call)

    def watch_program(self, call: _served.Observed) -> Any:
        """Times a call of a compiled program."""
        return self._timed("program", call)

    def _timed(self, kind: str, call: _served.Observed) -> Any:
        operands = _served.operands_text(call.operands) if kind == "attention" else ""
        key = call.function, *_places.of_call(call.module), operands
        dtype = str(getattr(call.operands[0], "dtype", "")).removeprefix("torch.") if call.operands else ""
        with self._lock:
            row = self._rows.get(key) or Row(*key, dtype)
        done = self._work(call, row) if kind == "attention" else None
        wait = _waiting(call.operands)
        self._local.compiling = 0
        with task_times.timed() as times:
            wait()
            start = time.perf_counter_ns()
            result = call.compute()
            wait()
            end = time.perf_counter_ns()
        compiling, thread = self._local.compiling, threading.get_ident()
        with self._lock:
            self._rows.setdefault(key, row).add((end - start - compiling) * 1e-9, done, times.tasks)
            self._launches.extend((launch, thread) for launch in times.launches)
            details = {"module": row.module, "place": row.place, "operands": operands,
                       **(done._asdict() if done else {})}  # fmt: skip
            self._events.append(Event(kind, call.function, start, end, thread, details))
        return result

    def _work(self, call: _served.Observed, row: Row) -> work.Work | None:
        """The work of a call, whose own compilations are not noted."""
        self._local.is_counting = True
        try:
            return work.work_of(call, row.work)
        finally:
            self._local.is_counting = False

    def compiled(self, names: Sequence[str], origin: str, times: tuple[int, int], phases: dict[str, Any]) -> None:
        """Notes a compilation, whose time is no latency of the call that it is part of."""
        if getattr(self._local, "is_counting", False):
            return
        start, end = times
        self._local.compiling = getattr(self._local, "compiling", 0) + end - start
        details = {"origin": origin, **phases}
        event = Event("compilation", ", ".join(names), start, end, threading.get_ident(), details)
        with self._lock:
            self._events.append(event)

    def trace(self, path: str | os.PathLike[str]) -> None:
        """Writes the calls and compilations in the format of Chrome's tracing, which Perfetto reads."""
        _files.write(path, json.dumps(writing.trace_of(self)))

    def json(self, path: str | os.PathLike[str]) -> None:
        """Writes all numbers as JSON."""
        _files.write(path, json.dumps(writing.numbers_of(self)))

    def roofline(self, path: str | os.PathLike[str]) -> None:
        """Writes a plot of the calls under what this machine permits, as SVG; after `profile(roofline=True)`."""
        _files.write(path, plot.svg_of(self))

    def __str__(self) -> str:
        return writing.table_of(self)

    def __repr__(self) -> str:
        return f"<saccade.profile: {sum(row.calls for row in self.rows)} calls>"

    @contextlib.contextmanager
    def _opened(self, roofline: bool) -> Iterator[None]:
        counted = counters.Counters()
        memory.reset_peak()
        self.memory = memory.status("VmRSS")
        self._start = time.perf_counter_ns()
        try:
            with _served.observed(self):
                yield
        finally:
            self._end = time.perf_counter_ns()
            peak = memory.status("VmHWM")
            self.peak_memory = None if peak is None or self.memory is None else max(0, peak - self.memory)
            self.counts, self.counts_refusal = counted.read(), counted.refusal
            counted.close()
        if roofline:
            self.machines = {row.dtype: machine.measure(row.dtype) for row in self.rows if row.work is not None}


def _waiting(operands: Sequence[Any]) -> Any:
    """A function that waits for the GPU of the first operand; for a CPU it returns at once."""
    device = getattr(operands[0], "device", None) if operands else None
    if getattr(device, "type", "") != "cuda":
        return _nothing
    return functools.partial(sys.modules["torch"].cuda.synchronize, device)


def _nothing() -> None:
    pass


class _Block(contextlib.ContextDecorator):
    """A block of `profile`, also around the calls of a function."""

    def __init__(self, **options: bool):
        self._options = options
        self._block = _profiled(**options)

    def __enter__(self) -> Profile:
        return self._block.__enter__()

    def __exit__(self, *exception: Any) -> bool | None:
        return self._block.__exit__(*exception)

    def _recreate_cm(self) -> _Block:
        return _Block(**self._options)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name!r} is an attribute of what the block yields, use it in a with block: "
                             f"with saccade.profile() as record: ..., then record.{name}")


@contextlib.contextmanager
def _profiled(roofline: bool, explain: bool) -> Iterator[Profile]:
    record = Profile()
    try:
        with record._opened(roofline):
            yield record
    finally:
        if explain:
            print(record, file=sys.stderr)


def profile(*, roofline: bool = False, explain: bool = False) -> _Block:
    """Times every call of attention in this block, in this thread and in threads that are started inside of it: those
    of `saccade.attention`, of the drop-in functions for PyTorch and of the Transformers interface. Calls of compiled
    programs and compilations are timed, too. A call on a GPU waits for the GPU.

    Args:
        roofline: measures this machine's rates at the end of the block, some 0.5 s for each element type, and adds to
            each row what fraction of the possible speed it has.
        explain: prints the table to standard error at the end of the block, also after an exception.

    Yields:
        A `Profile`: `rows`, `tasks`, `events`, `memory`, `peak_memory`, `counts`, `trace(path)`, `json(path)`, and a
        table as its `str()`.

    Example:
        >>> with saccade.profile(roofline=True) as record:
        ...     model(x)
        >>> print(record)
        >>> record.trace("trace.json")
    """
    return _Block(roofline=roofline, explain=explain)
