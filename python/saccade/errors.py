"""Exceptions and warnings of `saccade`, in addition to the built-in ones."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any, NamedTuple


class Diagnostic(NamedTuple):
    """A diagnostic of the compiler."""

    severity: str
    """"error", "warning" or "remark"."""
    file: str | None
    """The program's file, "<program>" for text; None if the diagnostic has no location."""
    line: int | None
    """1-based."""
    column: int | None
    """1-based."""
    message: str
    """The text of the first line, without location and severity."""
    text: str
    """The full text as the tools print it, with the source line, a caret and notes."""

    @classmethod
    def parse(cls, severity: str, text: str) -> Diagnostic:
        """Parses the printed form "file:line:column: severity: message"."""
        text = text.rstrip()
        first = text.split("\n", 1)[0]
        found = re.fullmatch(rf"(?:(.*?):(\d+):(\d+): |(.*?): )??{severity}: (.*)", first)
        if not found:
            return cls(severity, None, None, None, first, text)
        file, line, column, other, message = found.groups()
        return cls(severity, file or other, int(line) if line else None, int(column) if column else None, message, text)


class CompileError(ValueError):
    """The compiler rejected a program. The message contains all diagnostics; `diagnostics` lists them."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()):
        super().__init__(message)
        self.diagnostics = diagnostics
        """Errors and warnings, in order."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.diagnostics)


class NotServed(RuntimeError):
    """A call that Saccade does not compute where `require=True` asked for it. The message has the place and the
    reason."""


class Warning(UserWarning):
    """Every warning that `saccade` issues: those of the compiler about an accepted program, functions that are compiled
    again and again, and calls that another library computes instead."""


# Packages whose functions call Saccade for the user, and those that run its modules when they are imported.
_CALLERS = frozenset({"saccade", "torch", "transformers", "jax", "functools", "contextlib", "importlib",
                      "_frozen_importlib", "_frozen_importlib_external"})


def warn(message: str) -> None:
    """Issues a `saccade.Warning` at the user's line: the innermost frame outside of Saccade and of the libraries that
    call it."""
    frame = innermost = sys._getframe(1)
    while (frame.f_globals.get("__name__") or "").partition(".")[0] in _CALLERS and frame.f_back is not None:
        frame = frame.f_back
    if frame.f_back is None and (frame.f_globals.get("__name__") or "").partition(".")[0] in _CALLERS:
        frame = innermost
    warnings.warn_explicit(message, Warning, frame.f_code.co_filename, frame.f_lineno,
                           registry=frame.f_globals.setdefault("__warningregistry__", {}))
