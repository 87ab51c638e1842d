"""What `saccade` raises and warns beyond Python's own exceptions."""

from __future__ import annotations

import re
from typing import NamedTuple


class Diagnostic(NamedTuple):
    """One thing that the compiler said of a program."""

    severity: str
    """"error", "warning" or "remark"."""
    file: str | None
    """The program's file, "<program>" for text; None where the diagnostic has no place."""
    line: int | None
    """Counted from 1."""
    column: int | None
    """Counted from 1."""
    message: str
    """What was found and what was expected, in one line."""
    text: str
    """All of it as the tools print it, with the line of the program, a caret and notes."""

    @classmethod
    def parse(cls, severity: str, text: str) -> Diagnostic:
        """Takes the printed form apart: "file:line:column: severity: message"."""
        text = text.rstrip()
        first = text.split("\n", 1)[0]
        found = re.fullmatch(rf"(?:(.*?):(\d+):(\d+): )?(?:(.*?): )?{severity}: (.*)", first)
        if not found:
            return cls(severity, None, None, None, first, text)
        file, line, column, other, message = found.groups()
        return cls(severity, file or other, int(line) if line else None, int(column) if column else None, message, text)


class CompileError(ValueError):
    """The compiler refused a program. The message is its diagnostics; `diagnostics` has them one by one."""

    def __init__(self, message: str, diagnostics: tuple[Diagnostic, ...] = ()):
        super().__init__(message)
        self.diagnostics = diagnostics
        """What was said, errors and warnings, in order."""

    def __reduce__(self):
        return type(self), (*self.args, self.diagnostics)


class Warning(UserWarning):
    """A warning or a remark of the compiler on a program that it accepts."""
