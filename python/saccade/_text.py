"""SSA names, scopes and literals of MLIR's textual format, for the readers that write programs."""

from __future__ import annotations

import re
import struct


class Scope:
    """The values of a graph or function by name: SSA name and type."""

    def __init__(self, parent: Scope | None = None):
        self.values: dict[str, tuple[str, str]] = {}
        self.parent = parent

    def find(self, name: str) -> tuple[str, str] | None:
        """The value and its type, from this scope or an enclosing one; None if there is none."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.values:
                return scope.values[name]
            scope = scope.parent
        return None


def identifier(name: str) -> str:
    """A valid identifier of MLIR: `name` with underscores in place of all but letters, digits and underscores."""
    name = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{name}" if not re.match(r"[A-Za-z_]", name) or name.startswith("arg") else name


class Names:
    """Unique identifiers that are valid in MLIR."""

    def __init__(self) -> None:
        self.used: set[str] = set()

    def unique(self, name: str) -> str:
        """`identifier(name)`, with a number if that has been returned before."""
        name = identifier(name)
        candidate, i = name, 0
        while candidate in self.used:
            i += 1
            candidate = f"{name}_{i}"
        self.used.add(candidate)
        return candidate


def declare(argument: str, type: str, extents: list[str], updated_by: int | None = None) -> str:
    """A function argument; `extents` are symbolic names of its extents, empty for unnamed ones. `updated_by`: the
    result that updates it in place."""
    attributes = [f"attn.dim_names = [{', '.join(map(quote, extents))}]"] if any(extents) else []
    attributes += [f"attn.updated_by = {updated_by}"] if updated_by is not None else []
    return f"%{argument}: {type}" + (f" {{{', '.join(attributes)}}}" if attributes else "")


def float_attribute(value: float) -> str:
    """A single-precision float attribute, written as its bits."""
    return f"0x{struct.unpack('<I', struct.pack('<f', value))[0]:08X} : f32"


def quote(text: str | bytes) -> str:
    """A string literal; bytes other than printable ASCII are escaped in hexadecimal."""
    data = text.encode() if isinstance(text, str) else text
    plain = set(range(32, 127)) - set(b'"\\')
    return '"' + "".join(chr(byte) if byte in plain else f"\\{byte:02X}" for byte in data) + '"'
