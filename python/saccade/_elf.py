"""The note of a compiled shared library, read from the file before anything of it is mapped or executed.

The compiler writes it (lib/Target/LibraryNote.cpp): versions, size and SHA-256 of the file, targets, functions.
"""

from __future__ import annotations

import hashlib
import os
import platform
import struct
from typing import NamedTuple

NOTE_VERSION = 1
ENTRY_VERSION = 5  # SACCADE_ENTRY_VERSION of include/saccade/Runtime/Entry.h

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHHHHH")  # Elf64_Ehdr
_SEGMENT = struct.Struct("<IIQQQQQQ")  # Elf64_Phdr
_NOTE = struct.Struct("<III")  # sizes of the name and of the description, type
_FIXED = struct.Struct("<IIQ32s")  # versions of the note and of the tables, size and SHA-256 of the file
_PT_NOTE, _ET_DYN = 4, 3
_MACHINES = {62: "x86-64", 183: "AArch64"}  # e_machine: EM_X86_64, EM_AARCH64
_NAMES = {"x86_64": "x86-64", "aarch64": "AArch64"}  # of platform.machine()


class Note(NamedTuple):
    """What a library says about itself."""

    targets: tuple[str, ...]
    """CPU targets in the order in which a call tries them, then GPU architectures."""
    functions: tuple[str, ...]


def read_note(path: str | os.PathLike[str]) -> Note:
    """Reads the note of a library and checks that the file is what the compiler wrote.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is no shared library of `saccade-compile`, one for another version, incomplete, or changed.
    """
    with open(path, "rb") as file:
        content = file.read()
    name = os.fspath(path)
    try:
        found = _find_note(content)
        if isinstance(found, str):
            raise ValueError(f"{name} is {found}")
        at, size = found
        note, entry, length, digest = _FIXED.unpack_from(content, at)
    except struct.error:  # an offset beyond the end
        raise ValueError(f"{name} is an incomplete ELF file of {len(content)} bytes") from None
    if (note, entry) != (NOTE_VERSION, ENTRY_VERSION):
        raise ValueError(f"{name} was compiled for version {note}.{entry} of the runtime, expected "
                         f"{NOTE_VERSION}.{ENTRY_VERSION}: compile it again")
    if len(content) != length:
        raise ValueError(f"{name} has {len(content)} bytes, expected {length}: it is incomplete or was changed")
    hash_at = at + _FIXED.size - len(digest)
    hashed = hashlib.sha256(content[:hash_at])
    hashed.update(bytes(len(digest)))
    hashed.update(memoryview(content)[hash_at + len(digest) :])
    if hashed.digest() != digest:
        raise ValueError(f"{name} was changed after it was compiled: its SHA-256 differs")
    targets, functions = content[at + _FIXED.size : at + size].decode().split("\0")[:2]
    return Note(tuple(targets.split(",")), tuple(functions.split(",")))


def _find_note(content: bytes) -> tuple[int, int] | str:
    """Offset and size of the description of the note, or what the file is instead and what is expected. Raises
    struct.error for an offset beyond the end of the file."""
    expected = "expected a shared library written by saccade-compile --emit=so"
    if content[:4] != b"\x7fELF":
        return f"no ELF file, {expected}"
    _, bits, order, kind, machine, _, _, segments, _, _, _, size, count, *_ = _HEADER.unpack_from(content)
    here = _NAMES.get(platform.machine(), platform.machine())
    if (bits, order, kind) != (2, 1, _ET_DYN) or machine not in _MACHINES or size != _SEGMENT.size:
        return f"no shared library for {here}, {expected}"
    if _MACHINES[machine] != here:
        return f"a shared library for {_MACHINES[machine]}, expected one for {here}, the architecture of this machine"
    for i in range(count):
        kind, _, start, _, _, length, _, _ = _SEGMENT.unpack_from(content, segments + i * size)
        end = start + length
        while kind == _PT_NOTE and start + _NOTE.size <= end:
            name_size, description_size, note_type = _NOTE.unpack_from(content, start)
            name_at = start + _NOTE.size
            description = name_at + (name_size + 3) // 4 * 4
            if (content[name_at : name_at + name_size], note_type) == (b"Saccade\0", 1):
                return description, description_size
            start = description + (description_size + 3) // 4 * 4
    return f"a shared library of another compiler, {expected}"
