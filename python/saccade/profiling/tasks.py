"""Times of the tasks of a call: the parallel loops of compiled programs for the CPU."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator
from typing import NamedTuple

from saccade._library import library


class Task(NamedTuple):
    """All launches of a task, which is named after its function and ops: "f.matmul_bias_gelu"."""

    name: str
    launches: int
    items: int
    """Work items, which threads share."""
    seconds: float
    """From the start of each launch until all of its items are done."""


class Launch(NamedTuple):
    """One launch of a task."""

    name: str
    start: int
    """In nanoseconds of `time.perf_counter_ns`, as `end`."""
    end: int


class TaskTimes:
    """What `timed` has measured."""

    def __init__(self) -> None:
        self.tasks: list[Task] = []
        self.launches: list[Launch] = []
        """The first ones."""


@contextlib.contextmanager
def timed() -> Iterator[TaskTimes]:
    """Times the tasks of calls in this block and this thread; the result is complete after the block."""
    times, text = TaskTimes(), ctypes.c_void_p()
    library().saccade_task_times_begin()
    try:
        yield times
    finally:
        library().saccade_task_times_end(ctypes.byref(text))
        try:
            record = json.loads(ctypes.string_at(text.value or 0))
        finally:
            library().saccade_text_free(text)
        times.tasks = [Task(**task) for task in record["tasks"]]
        times.launches = [Launch(times.tasks[task].name, *span) for task, *span in record["launches"]]


def accumulated(tasks: list[Task]) -> list[Task]:
    """One task for each name, the longest first."""
    sums: dict[str, Task] = {}
    for task in tasks:
        before = sums.get(task.name, Task(task.name, 0, 0, 0.0))
        sums[task.name] = Task(task.name, before.launches + task.launches, before.items + task.items,
                               before.seconds + task.seconds)  # fmt: skip
    return sorted(sums.values(), key=lambda task: -task.seconds)
