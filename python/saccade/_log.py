"""The logger "saccade": compilations, cache hits, and what takes long.

Steps of a second or more are logged at INFO, others at DEBUG. The environment variable SACCADE_LOG, "debug" or "info",
shows them on stderr in programs that do not set up logging. A program that has not imported `logging` has not set it up
either, so this module does not import it.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from saccade import errors

if TYPE_CHECKING:
    import logging

VARIABLE = "SACCADE_LOG"
LONG = 1.0
"""Seconds from which on a step is logged at INFO."""
PROGRESS = 10.0
"""Seconds after which, again and again, a step is reported while it runs."""

_DEBUG, _INFO = 10, 20  # as in logging


class Step:
    """A step that is being timed."""

    def __init__(self, done: str):
        self.done = done
        """What the log says when it is over: what the block does, or what came of it."""


def _logger(level: int) -> logging.Logger | None:
    """The logger if it takes messages of a level."""
    if (module := sys.modules.get("logging")) is None:
        return None
    logger: logging.Logger = module.getLogger("saccade")
    return logger if logger.isEnabledFor(level) else None


def is_debug() -> bool:
    """Whether every step is logged."""
    return _logger(_DEBUG) is not None


@contextlib.contextmanager
def step(running: str) -> Iterator[Step]:
    """Times a block that does `running`, such as "compiling attention", and logs it when it is over, unless it raises.
    A block that takes long is reported while it runs, from a thread of its own."""
    result = Step(running)
    logger = _logger(_INFO)
    if logger is None:
        yield result
        return
    start, over = time.perf_counter(), threading.Event()

    def report() -> None:
        while not over.wait(PROGRESS):
            logger.info("still %s after %.0f s", running, time.perf_counter() - start)

    reporter = threading.Thread(target=report, name="saccade-log", daemon=True)
    reporter.start()
    try:
        yield result
    finally:
        over.set()
        reporter.join()  # so that no report follows the end
    seconds = time.perf_counter() - start
    logger.log(_INFO if seconds >= LONG else _DEBUG, "%s: %.3f s", result.done, seconds)


def _read_variable() -> None:
    value = os.environ.get(VARIABLE, "").lower()
    if value in ("", "0"):
        return
    if value not in ("debug", "info"):
        errors.warn(f"the environment variable {VARIABLE} is {value!r}, expected 'debug' or 'info'")
        return
    import logging

    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    logger = logging.getLogger("saccade")
    logger.addHandler(handler)
    logger.setLevel(value.upper())


_read_variable()
