"""Programs made from imported graphs: the parts shared by the readers of all formats.

A program is one function @main in generic form, with weights as additional arguments. docs/guides/import.md describes
the requirements of a reader.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import math
import os
import re
import struct
import tempfile
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from saccade import _weights_file
from saccade._text import quote

ELEMENTS = {"f32": ("<f4", 4), "i8": ("|i1", 1), "i16": ("<i2", 2), "i32": ("<i4", 4), "i64": ("<i8", 8),
            "i1": ("|b1", 1), "f16": ("<f2", 2), "f64": ("<f8", 8), "bf16": ("<u2", 2)}
"""MLIR element types: NumPy's type string (bf16 as its bits) and the size in bytes."""

SMALL = 64
"""Tensors of at most this many elements are constants of the program, larger ones are arguments."""


class Weight(Protocol):
    """A weight that can be written to a file."""

    @property
    def stored(self) -> Tensor:
        """The weight with its elements."""

    def npy(self) -> bytes:
        """The weight in NumPy's .npy format; bf16 as the uint16 bits."""


@dataclasses.dataclass
class Tensor:
    """A tensor of a model: row-major little-endian elements, one byte per bool."""

    element: str
    shape: tuple[int, ...]
    data: bytes

    @property
    def type(self) -> str:
        """The MLIR type."""
        return tensor_type(self.element, self.shape)

    @property
    def count(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def stored(self) -> Tensor:
        """Itself, as a `Weight`."""
        return self

    def dense(self) -> str:
        """The elements as a `dense` attribute, without rounding."""
        return f"dense<{_nested(self._elements(), self.shape)}> : {self.type}"

    def npy(self) -> bytes:
        """The tensor in NumPy's .npy format; bf16 as the uint16 bits."""
        header = repr({"descr": ELEMENTS[self.element][0], "fortran_order": False, "shape": self.shape})
        header += " " * (-(len(header) + 11) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + self.data

    def _elements(self) -> list[str]:
        size = ELEMENTS[self.element][1]
        if self.element == "i1":
            return ["true" if byte else "false" for byte in self.data]
        if self.element.startswith("i"):
            code = {1: "b", 2: "h", 4: "i", 8: "q"}[size]
            return [str(number) for (number,) in struct.iter_unpack("<" + code, self.data)]
        # Bit patterns represent all values exactly, including NaN.
        bits = struct.iter_unpack("<" + {2: "H", 4: "I", 8: "Q"}[size], self.data)
        return [f"0x{number:0{2 * size}X}" for (number,) in bits]


@dataclasses.dataclass(frozen=True)
class Value:
    """An input, weight or output of a model."""

    name: str
    """The name in the model."""
    argument: str
    """The name in the program."""
    element: str
    """The MLIR element type; empty if the model does not declare it."""
    shape: tuple[int | None, ...] | None
    """None for a dynamic extent, or for an unknown rank."""


@dataclasses.dataclass
class Program:
    """One function @main that takes the inputs of the model, then its weights."""

    text: str
    inputs: list[Value]
    weights: Sequence[tuple[Value, Any]]
    """Each weight with its elements, which have `npy`."""
    outputs: list[Value]

    def write(self, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> list[str]:
        """Writes the program to `path` and each weight to `<path without .mlir>.<argument>.npy`, or all weights to one
        safetensors file `weights`, under the model's names. Each file is replaced atomically. Returns the names of all
        files, the program's last."""
        path = os.fspath(path)
        stem = re.sub(r"\.mlir$", "", path)
        files: list[tuple[str, Callable[[], Iterable[bytes]]]] = []
        if weights is None:
            files += ((f"{stem}.{value.argument}.npy", functools.partial(_npy, weight))
                      for value, weight in self.weights)
        else:
            files.append((os.fspath(weights), functools.partial(_weights_file.pieces, self.weights)))
        files.append((path, lambda: [self.text.encode()]))
        # All files are written to temporary names first, so an error leaves no partial result.
        written: list[tuple[str, str]] = []
        try:
            for name, make in files:
                written.append((_write_beside(name, make()), name))
        except BaseException:
            for temporary, _ in written:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise
        for temporary, name in written:
            os.replace(temporary, name)
        return [name for name, _ in files]


def _npy(tensor: Weight) -> list[bytes]:
    return [tensor.npy()]


class Writer:
    """Collects the lines of a function body. A value is a pair of SSA name and type."""

    def __init__(self, file: str):
        """`file` is the model's name in locations."""
        self.file = file
        self.lines: list[str] = []
        self.count = 0

    def name(self, prefix: str = "") -> str:
        """A new SSA name."""
        name = f"%{prefix}{self.count}"
        self.count += 1
        return name

    def emit(self, op: str, operands: Sequence[tuple[str, str]], types: Sequence[str], rest: str = "", node: str = "",
             place: tuple[str, int] | None = None) -> str:
        """Writes an op and returns the name of its results.

        Args:
            op: the op's name.
            operands: names and types of the operands.
            types: the result types.
            rest: regions and attributes as text.
            node: the node's name for diagnostics.
            place: its file and line; defaults to the position in the model.
        """
        name = self.name()
        results = (name + (f":{len(types)}" if len(types) > 1 else "") + " = ") if types else ""
        file, line = place or (self.file, self.count)
        self.lines.append(
            f"{results}\"{op}\"({', '.join(value for value, _ in operands)}){rest} : "
            f"({', '.join(type for _, type in operands)}) -> ({', '.join(types)}) "
            f"loc({quote(node or op)}({quote(file)}:{line}:0))")
        return name

    def constant(self, tensor: Tensor) -> tuple[str, str]:
        """Writes a constant."""
        name = self.name()
        self.lines.append(f"{name} = arith.constant {tensor.dense()}")
        return name, tensor.type

    def function(self, arguments: Sequence[str], returned: Sequence[tuple[str, str]], attributes: str = "") -> str:
        """The module text with the collected lines as the function @main."""
        types = ", ".join(type for _, type in returned)
        place = f"{quote('main')}({quote(self.file)}:0:0)"
        return "\n".join([f"module attributes {{{attributes}}} {{" if attributes else "module {",
                          f"func.func @main({', '.join(arguments)}) -> ({types}) {{",
                          *(f"  {line}" for line in self.lines),
                          f"  return {', '.join(value for value, _ in returned)} : {types} loc({place})",
                          f"}} loc({place})", "}", ""])


def tensor_type(element: str, shape: Sequence[int | None]) -> str:
    """The MLIR type; None is a dynamic extent."""
    extents = "".join(f"{'?' if extent is None else extent}x" for extent in shape)
    return f"tensor<{extents}{element}>"


def _write_beside(path: str, pieces: Iterable[bytes]) -> str:
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            for piece in pieces:
                file.write(piece)
        os.chmod(temporary, 0o644)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary


def _nested(elements: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return elements[0]
    if not elements:
        return ""
    rows = shape[0]
    step = len(elements) // rows
    return "[" + ", ".join(_nested(elements[i * step:(i + 1) * step], shape[1:]) for i in range(rows)) + "]"
