"""Reads GGUF files: the metadata, and where each tensor is.

The format is that of docs/gguf.md of the ggml project, versions 2 and 3, in little-endian byte order. A file is mapped,
not read. Every count in it is compared with the bytes that are left before memory is allocated for what it counts, so a
damaged file is refused and never takes more memory than its size justifies.
"""

from __future__ import annotations

import math
import mmap
import os
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from saccade.gguf.elements import ELEMENTS, Element
from saccade.gguf.errors import FileError

MAGIC = b"GGUF"
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_DEPTH = 4  # nesting of arrays
_RANK = 4
_ALIGNMENT = 32


class Array(NamedTuple):
    """An array of the metadata, whose elements stay in the file."""

    kind: int
    """The type of an element."""
    length: int
    offset: int
    """The offset of the first element."""


class Stored(NamedTuple):
    """A tensor of a file."""

    name: str
    shape: tuple[int, ...]
    """The extents, that of a row last."""
    element: Element
    offset: int
    """The offset of its bytes in the file."""
    size: int
    """Its bytes."""


class Container:
    """A mapped file: its `metadata` and `tensors` by name."""

    def __init__(self, path: str | os.PathLike[str]):
        """Maps a file and reads what describes it.

        Raises:
            OSError: the file cannot be read.
            FileError: it is no GGUF file, of another version, truncated or damaged.
        """
        self.path = os.fspath(path)
        with open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if file.read(len(MAGIC)) != MAGIC:
                raise FileError(f"{self.path}: offset 0: this is no GGUF file: it does not begin with 'GGUF'")
            self._bytes = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ)
        self._at = len(MAGIC)
        self.version = self._version()
        tensors, pairs = self._count("tensors", 8 + 4 + 4 + 8), self._count("metadata keys", 8 + 4 + 1)
        self.metadata: dict[str, Any] = {}
        for _ in range(pairs):
            start, key = self._at, self._string("a metadata key")
            if key in self.metadata:
                raise self._error(f"the metadata key '{key}' is there twice", start)
            self.metadata[key] = self._value(self._scalar("<I", f"the type of '{key}'"), key, 0)
        described = [self._description() for _ in range(tensors)]
        self.tensors: dict[str, Stored] = {}
        for start, tensor in self._placed(described):
            if tensor.name in self.tensors:
                raise self._error(f"the tensor '{tensor.name}' is there twice", start)
            self.tensors[tensor.name] = tensor

    def array(self, tensor: Stored) -> Any:
        """A read-only NumPy array of a tensor, which shares the memory of the file: plain numbers in the shape of the
        tensor (bfloat16 of ml_dtypes), blocks as int8 [..., blocks, bytes of a block]. Raises ImportError without
        ml_dtypes for bfloat16."""
        import numpy

        element, shape = tensor.element, tensor.shape
        if element.is_quantized:
            dtype: Any = numpy.int8
            shape = (*shape[:-1], shape[-1] // element.block, element.size)
        elif element.name == "BF16":
            import ml_dtypes

            dtype = ml_dtypes.bfloat16
        else:
            dtype = {"F32": numpy.float32, "F16": numpy.float16, "F64": numpy.float64}.get(element.name)
            dtype = dtype or getattr(numpy, element.name.replace("I", "int"))
        count = tensor.size // numpy.dtype(dtype).itemsize
        return numpy.frombuffer(self._bytes, dtype, count, tensor.offset).reshape(shape)

    def numbers(self, array: Array) -> tuple[Any, ...] | None:
        """The elements of an array of numbers; None for others."""
        code = _SCALARS.get(array.kind)
        return struct.unpack_from(f"<{array.length}{code[1]}", self._bytes, array.offset) if code else None

    def elements(self) -> Counter[str]:
        """How many tensors have each element type."""
        return Counter(tensor.element.name for tensor in self.tensors.values())

    def _error(self, reason: str, offset: int | None = None) -> FileError:
        return FileError(f"{self.path}: offset {self._at if offset is None else offset}: {reason}")

    def _left(self) -> int:
        return len(self._bytes) - self._at

    def _take(self, size: int, what: str) -> int:
        """The offset of the next `size` bytes, after which reading continues."""
        if size > self._left():
            raise self._error(f"the file ends within {what}: found {self._left()} bytes, expected {size}")
        start = self._at
        self._at += size
        return start

    def _scalar(self, code: str, what: str) -> Any:
        return struct.unpack_from(code, self._bytes, self._take(struct.calcsize(code), what))[0]

    def _version(self) -> int:
        version: int = self._scalar("<I", "the version")
        if version not in (2, 3):
            swapped = version >> 24 in (2, 3) and not version & 0xFFFFFF
            raise self._error("the file is of the other byte order, expected little-endian" if swapped else
                              f"found version {version} of the format, expected 2 or 3", len(MAGIC))
        return version

    def _count(self, what: str, least: int) -> int:
        """A number of things that take at least `least` bytes each."""
        start, count = self._at, self._scalar("<Q", f"the number of {what}")
        if count * least > self._left():
            raise self._error(f"{count} {what} do not fit into the {self._left()} bytes that are left", start)
        return count  # type: ignore[no-any-return]

    def _string(self, what: str) -> str:
        start = self._at
        size = self._scalar("<Q", what)
        at = self._take(size, what)
        try:
            return self._bytes[at : at + size].decode()
        except UnicodeDecodeError:
            raise self._error(f"{what} is not UTF-8", start) from None

    def _value(self, kind: int, key: str, depth: int) -> Any:
        """Reads the value of a key, of which arrays stay in the file."""
        what = f"the value of '{key}'"
        if kind in _SCALARS:
            return self._scalar(_SCALARS[kind], what)
        if kind == _STRING:
            at = self._take(size := self._scalar("<Q", what), what)
            return self._bytes[at : at + size].decode(errors="replace")
        if kind != _ARRAY:
            raise self._error(f"{what} has the unknown type {kind}", self._at - 4)
        if depth == _DEPTH:
            raise self._error(f"{what} has arrays nested more than {_DEPTH} deep")
        inner = self._scalar("<I", what)
        if inner in _SCALARS:
            size = struct.calcsize(_SCALARS[inner])
            count = self._count(f"elements of '{key}'", size)
            return Array(inner, count, self._take(count * size, what))
        if inner not in (_STRING, _ARRAY):
            raise self._error(f"{what} has elements of the unknown type {inner}", self._at - 4)
        count = self._count(f"elements of '{key}'", 8 if inner == _STRING else 12)
        start = self._at
        for _ in range(count):
            if inner == _STRING:
                self._take(self._scalar("<Q", what), what)
            else:
                self._value(inner, key, depth + 1)
        return Array(inner, count, start)

    def _description(self) -> tuple[int, str, tuple[int, ...], int, int]:
        """Where a description of a tensor is; name, extents, number of the element type, and offset in the data."""
        start, name = self._at, self._string("a tensor's name")
        rank = self._scalar("<I", f"the rank of '{name}'")
        if rank > _RANK:
            raise self._error(f"'{name}' has {rank} dimensions, expected at most {_RANK}", self._at - 4)
        extents = [self._scalar("<Q", f"the extents of '{name}'") for _ in range(rank)]
        element = self._scalar("<I", f"the element type of '{name}'")
        return start, name, tuple(reversed(extents)), element, self._scalar("<Q", f"the offset of '{name}'")

    def _placed(self, described: list[tuple[int, str, tuple[int, ...], int, int]]) -> Iterator[tuple[int, Stored]]:
        """The tensors, which are compared with the size of the file."""
        alignment = self.metadata.get("general.alignment", _ALIGNMENT)
        if not isinstance(alignment, int) or alignment < 8 or alignment & (alignment - 1):
            raise self._error(f"general.alignment is {alignment!r:.80}, expected a power of two from 8 on")
        unknown = Counter(number for _, _, _, number, _ in described if number not in ELEMENTS)
        if unknown:
            number, count = unknown.most_common(1)[0]
            start, name = next((start, name) for start, name, _, each, _ in described if each == number)
            raise self._error(f"{count} of {len(described)} tensors have the unknown element type {number}, the first "
                              f"is '{name}'", start)
        data = -(-self._at // alignment) * alignment
        for start, name, shape, number, offset in described:
            element = ELEMENTS[number]
            row = shape[-1] if shape else 1
            if row % element.block:
                raise self._error(f"'{name}' has rows of {row} elements, expected a multiple of {element.block} for "
                                  f"{element.name}", start)
            size = math.prod(shape) // element.block * element.size
            if offset % alignment:
                raise self._error(f"'{name}' is at {offset} in the data, expected a multiple of {alignment}", start)
            if data + offset + size > len(self._bytes):
                raise self._error(f"the file ends within '{name}': {size} bytes from {data + offset} on are expected, "
                                  f"and the file has {len(self._bytes)}", start)
            yield start, Stored(name, shape, element, data + offset, size)
