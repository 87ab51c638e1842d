"""Reports of what Saccade computed in place of another library, and why not the rest: `saccade.served`.

A call costs the test of `is_on` when there is no report. Otherwise the outermost function of a call observes it.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from saccade import _places, _scopes, errors
from saccade._observers import Arguments as Arguments
from saccade._observers import Observed as Observed
from saccade._observers import Observer as Observer

VARIABLE = "SACCADE_SERVED"

is_on = False
"""Whether there is a report or an observer in any thread."""


@dataclass(frozen=True)
class Call:
    """Equal calls of attention from one place."""

    function: str
    """What was called, such as "scaled_dot_product_attention"."""
    module: str
    """The qualified name of the innermost nn.Module within the outermost one, or the class name of the outermost
    one; empty without modules."""
    place: str
    """"file:line" of the innermost frame outside of Saccade and PyTorch; empty if it is unknown."""
    operands: str
    """Element type, device, and the shapes of query, key and value, as in "f32 cpu q[2,8,100,64] k[2,8,100,64]
    v[2,8,100,64]"; symbols of dynamic extents in compiled graphs."""
    reason: str | None
    """Why Saccade did not compute the calls; None if it did."""

    @property
    def is_served(self) -> bool:
        """Whether Saccade computed the calls."""
        return self.reason is None


class Report(_scopes.Scope):
    """The calls of attention inside of a `saccade.served()` block. It can be read while the block is open."""

    def __init__(self, require: bool = False):
        self._require = require
        self._counts: Counter[Call] = Counter()
        self._lock = threading.Lock()

    @property
    def calls(self) -> dict[Call, int]:
        """The number of calls of each kind, in the order of their first occurrence."""
        with self._lock:
            return dict(self._counts)

    @property
    def served(self) -> int:
        """The number of calls that Saccade computed."""
        return sum(count for call, count in self.calls.items() if call.is_served)

    @property
    def not_served(self) -> int:
        """The number of calls that it did not compute."""
        return sum(count for call, count in self.calls.items() if not call.is_served)

    @property
    def total(self) -> int:
        """The number of calls."""
        return sum(self.calls.values())

    @property
    def reasons(self) -> dict[str, int]:
        """The number of calls that were not served, by reason."""
        found: Counter[str] = Counter()
        for call, count in self.calls.items():
            if call.reason is not None:
                found[call.reason] += count
        return dict(found)

    def add(self, call: Call, count: int = 1) -> None:
        """Counts calls. Raises NotServed if the report requires that all are served, and these are not."""
        with self._lock:
            self._counts[call] += count
        if self._require and not call.is_served:
            raise errors.NotServed(describe(call))

    def __str__(self) -> str:
        calls = self.calls
        lines = [f"attention: {self.served} of {self.total} calls served by Saccade"]
        for title, is_served in (("served", True), ("not served", False)):
            chosen = {call: count for call, count in calls.items() if call.is_served == is_served}
            if chosen:
                lines.append(f"{title}:")
            for call, count in chosen.items():
                where = f" in {call.module}" if call.module else ""
                where += f" ({call.place})" if call.place else ""
                lines.append(f"  {count} x {call.function}{where}: {call.operands}")
                if call.reason is not None:
                    lines.append(f"      {call.reason}")
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<saccade.served: {self.served} of {self.total} calls>"


def describe(call: Call) -> str:
    """The message of an exception for a call that was not served."""
    where = " in ".join(part for part in (call.place, call.module) if part)
    return f"{call.function}{' at ' + where if where else ''} is not served by Saccade: {call.reason}"


@contextlib.contextmanager
def served(*, require: bool = False, explain: bool = False) -> Iterator[Report]:
    """Reports the calls of attention in this block, in this thread and in threads that are started inside of it: those
    of the drop-in functions for PyTorch, of `saccade.attention`, of the Transformers interface, and of graphs that
    `torch.compile(backend="saccade")` has compiled.

    Args:
        require: a call that Saccade does not compute is a `saccade.NotServed`, raised after another library has
            computed it.
        explain: prints the report to standard error at the end of the block, also after an exception.

    Yields:
        A `Report`: `calls`, `served`, `not_served`, `total`, `reasons`, and a table as its `str()`.

    Example:
        >>> with saccade.torch.enabled(), saccade.served() as report:
        ...     model(x)
        >>> print(report)
    """
    report = Report(require)
    try:
        with _opened(report), contextlib.ExitStack() as stack:
            for companion in companions:
                stack.enter_context(companion())
            yield report
    finally:
        if explain:
            print(report, file=sys.stderr)


# --- reports that are open --------------------------------------------------------------------------------------------

_lock = threading.RLock()
_open: list[Report] = []
_observers: list[Observer] = []
_everywhere: list[Report] = []  # of all threads
companions: list[Callable[[], contextlib.AbstractContextManager[Any]]] = []
"""What the thread of a `served()` block runs in, in addition."""
_watchers: dict[Callable[[], Callable[[], None]], Callable[[], None] | None] = {}


@contextlib.contextmanager
def _opened(report: Report) -> Iterator[None]:
    with _scopes.opened(report):
        _add(report)
        try:
            yield
        finally:
            _remove(report)


def _add(report: Report) -> None:
    global is_on
    with _lock:
        _open.append(report)
        is_on = True
        for watcher, close in _watchers.items():
            if close is None:
                _watchers[watcher] = watcher()


def _remove(report: Report) -> None:
    global is_on
    with _lock:
        _open.remove(report)
        is_on = bool(_open or _observers)
        for watcher, close in _watchers.items():
            if close is not None and not _open:
                _watchers[watcher] = None
                close()


@contextlib.contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """The observer sees the calls of this block."""
    global is_on
    with _scopes.opened(observer):
        with _lock:
            _observers.append(observer)
            is_on = True
        try:
            yield
        finally:
            with _lock:
                _observers.remove(observer)
                is_on = bool(_open or _observers)


def add_watcher(watcher: Callable[[], Callable[[], None]]) -> None:
    """A function that is called when reports begin, and returns one that is called when all have ended."""
    with _lock:
        _watchers.setdefault(watcher, watcher() if _open else None)


def report_everywhere() -> Report:
    """The report of all threads until the end of the process, which is then printed to standard error."""
    with _lock:
        if not _everywhere:
            _everywhere.append(Report())
            _add(_everywhere[0])
            atexit.register(lambda: print(_everywhere[0], file=sys.stderr))
        return _everywhere[0]


def reports() -> list[Report]:
    """The reports of this thread."""
    return [*_everywhere, *_scopes.find(Report)] if is_on else []


# --- observed calls ---------------------------------------------------------------------------------------------------


class _State(threading.local):
    is_inside = False
    """Whether a call is observed, so that the functions that it calls are not."""
    reason: str | None = None
    """Why another library computes the observed call."""
    is_counted = True


_state = _State()


class _NoProfiler:
    _is_profiler_enabled = False


profiler: Any = sys.modules.get("torch.autograd.profiler", _NoProfiler)
"""torch.autograd.profiler, once torch is imported: while a profiler of PyTorch is active, calls are spans in it."""


def finds_profiler() -> bool:
    """Whether torch was imported since the last call, and its profiler is active."""
    global profiler
    if profiler is not _NoProfiler or "torch.autograd.profiler" not in sys.modules:
        return False
    profiler = sys.modules["torch.autograd.profiler"]
    return bool(profiler._is_profiler_enabled)


def is_new_call() -> bool:
    """Whether no call is observed in this thread yet."""
    return not _state.is_inside


def is_observed() -> bool:
    """Whether an observer sees the next call of this thread."""
    return bool(_observers and not _state.is_inside and _scopes.find(Observer))


def observe(function: str, compute: Callable[[], Any], operands: Sequence[Any], module: Any = None, *,
            arguments: Arguments, is_counted: bool = True) -> Any:
    """The result of `compute`, which is a call of `function` with these arguments. Observers of this thread see it, and
    it counts in reports if `is_counted`."""
    if _state.is_inside:
        return compute()
    found = reports() if is_counted else []
    outcome: list[Any] = []

    def computed() -> Any:
        result = compute()
        outcome[:] = _state.reason, _state.is_counted
        return result

    outer: Callable[[], Any] = computed
    if profiler._is_profiler_enabled:
        name = function if function.startswith("saccade") else f"saccade.{function}"
        outer = functools.partial(_span, name, operands_text(operands), outer)
    for observer in _scopes.find(Observer) if _observers else ():
        outer = functools.partial(observer.watch, Observed(function, outer, operands, module, arguments))
    _state.is_inside, _state.reason, _state.is_counted = True, None, True
    try:
        result = outer()
    finally:
        _state.is_inside, _state.reason = False, None
    reason, is_call = outcome
    if found and is_call:
        note(function, operands, reason, module, found)
    return result


def observe_program(function: str, compute: Callable[[], Any], operands: Sequence[Any]) -> Any:
    """The result of `compute`, which is a call of a compiled program; observers of this thread see it."""
    if profiler._is_profiler_enabled:
        compute = functools.partial(_span, f"saccade.{function}", "", compute)
    for observer in _scopes.find(Observer):
        compute = functools.partial(observer.watch_program, Observed(function, compute, operands, None, ((), {})))
    _state.is_inside = True
    try:
        return compute()
    finally:
        _state.is_inside = False


def _span(name: str, arguments: str, compute: Callable[[], Any]) -> Any:
    """The result of `compute` in a span of PyTorch's profiler."""
    with profiler.record_function(name, arguments):
        return compute()


def note_compiled(names: Sequence[str], origin: str, times: tuple[int, int], phases: dict[str, Any]) -> None:
    """Notes a compilation in the observers of this thread."""
    for observer in _scopes.find(Observer):
        observer.compiled(names, origin, times, phases)


def refused(reason: str | None) -> None:
    """Another library computes the observed call for this reason; None: there is nothing to compute."""
    _state.reason, _state.is_counted = reason, reason is not None


def note(function: str, operands: Sequence[Any], reason: str | None = None, module: Any = None,
         found: list[Report] | None = None) -> None:
    """Counts a call of this place."""
    name, place = _places.of_call(module)
    add(Call(function, name, place, operands_text(operands), reason), found)


def add(call: Call, found: list[Report] | None = None) -> None:
    """Counts a call in the reports of this thread, which are `found` if they are known."""
    for report in reports() if found is None else found:
        report.add(call)


_SHORT = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16"}


def operands_text(operands: Sequence[Any]) -> str:
    """Element type, device and shapes of query, key and value."""
    if not operands:
        return ""
    dtype = str(getattr(operands[0], "dtype", "")).removeprefix("torch.")
    device = getattr(getattr(operands[0], "device", None), "type", "cpu")
    shapes = [f"{name}[{','.join(map(str, getattr(x, 'shape', ())))}]" for name, x in zip("qkv", operands)]
    return " ".join([_SHORT.get(dtype, dtype), device, *shapes])


def _read_variable() -> None:
    value = os.environ.get(VARIABLE, "")
    if value in ("", "0"):
        return
    if value != "1":
        errors.warn(f"the environment variable {VARIABLE} is {value!r}, expected 0 or 1")
        return
    report_everywhere()


_read_variable()
