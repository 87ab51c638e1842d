"""Blocks that cover the thread that opens them and every thread that is started inside of them.

A thread takes the open blocks of the thread that starts it, at `threading.Thread.start`. A block ends for all of them
when the thread that opened it leaves it, also for threads that still run. Threads that were started before, threads of
C++, and those of `_thread.start_new_thread` are not covered.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, TypeVar


class Scope:
    """A block."""

    is_open = False

    def inside(self) -> AbstractContextManager[Any]:
        """What a thread that is started inside of the block runs in, in addition."""
        return contextlib.nullcontext()


class _State(threading.local):
    scopes: tuple[Scope, ...] = ()
    """The blocks of this thread, those that ended in another thread included."""


_Kind = TypeVar("_Kind", bound=Scope)
_state = _State()
_lock = threading.Lock()
_users = 0
_original: Any = None
_replaced: Any = None


def find(kind: type[_Kind]) -> list[_Kind]:
    """The open blocks of a kind that cover this thread, the outermost first."""
    return [scope for scope in _state.scopes if scope.is_open and isinstance(scope, kind)]


@contextlib.contextmanager
def opened(scope: Scope) -> Iterator[None]:
    """Opens a block in this thread."""
    _hook()
    scope.is_open = True
    _state.scopes = (*find(Scope), scope)
    try:
        yield
    finally:
        scope.is_open = False
        _state.scopes = tuple(find(Scope))
        _unhook()


def _start(thread: threading.Thread) -> None:
    """`threading.Thread.start` while a block is open."""
    scopes = tuple(find(Scope))
    if scopes:
        run, own = thread.run, thread.__dict__.get("run")

        def run_inside() -> None:
            del thread.run  # a cycle
            if own is not None:
                thread.run = own  # type: ignore[method-assign]
            _state.scopes = scopes
            with contextlib.ExitStack() as stack:
                for scope in scopes:
                    stack.enter_context(scope.inside())
                run()

        thread.run = run_inside  # type: ignore[method-assign]
    _original(thread)


def _hook() -> None:
    global _users, _original, _replaced
    with _lock:
        _users += 1
        if _replaced is None:
            _original, _replaced = threading.Thread.start, _start
            threading.Thread.start = _start  # type: ignore[method-assign, assignment]


def _unhook() -> None:
    global _users, _replaced
    with _lock:
        _users -= 1
        # A function that another library has put in place since calls this one, which then stays.
        if not _users and threading.Thread.start is _replaced:
            threading.Thread.start = _original  # type: ignore[method-assign]
            _replaced = None
