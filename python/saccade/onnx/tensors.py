"""ONNX's tensors as bytes and as text, without computing anything with them."""

from __future__ import annotations

import array
import dataclasses
import math
import os
import struct
import sys
from typing import Any

from saccade.onnx.errors import ModelError

TYPES = {1: ("f32", "<f4", 4), 3: ("i8", "|i1", 1), 5: ("i16", "<i2", 2), 6: ("i32", "<i4", 4), 7: ("i64", "<i8", 8),
         9: ("i1", "|b1", 1), 10: ("f16", "<f2", 2), 11: ("f64", "<f8", 8), 16: ("bf16", "<u2", 2)}
"""TensorProto.DataType: its name in MLIR, NumPy's name (bf16 as its bits) and how many bytes an element takes."""

SMALL = 64
"""Tensors of at most this many elements are constants of the program, others its arguments."""


@dataclasses.dataclass
class Tensor:
    """A tensor of a model: the elements row by row, little-endian, a bool in a byte."""

    data_type: int
    shape: tuple[int, ...]
    data: bytes

    @property
    def type(self) -> str:
        return tensor_type(self.data_type, self.shape)

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    def dense(self) -> str:
        """The elements as an attribute of MLIR, exactly."""
        return f"dense<{_nested(self._elements(), self.shape)}> : {self.type}"

    def npy(self) -> bytes:
        """The tensor as a file of NumPy's format; bf16 as uint16, its bits."""
        header = repr({"descr": TYPES[self.data_type][1], "fortran_order": False, "shape": self.shape})
        header += " " * (-(len(header) + 11) % 64) + "\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + self.data

    def _elements(self) -> list[str]:
        name, _, size = TYPES[self.data_type]
        if name == "i1":
            return ["true" if byte else "false" for byte in self.data]
        if name.startswith("i"):
            code = {1: "b", 2: "h", 4: "i", 8: "q"}[size]
            return [str(number) for (number,) in struct.iter_unpack("<" + code, self.data)]
        # The bits of a number: they say NaN and 0.1 alike.
        bits = struct.iter_unpack("<" + {2: "H", 4: "I", 8: "Q"}[size], self.data)
        return [f"0x{number:0{2 * size}X}" for (number,) in bits]


def tensor_type(data_type: int, shape: tuple[int | None, ...]) -> str:
    """The type in MLIR; None is an extent that only the run time knows."""
    extents = "".join(f"{'?' if extent is None else extent}x" for extent in shape)
    return f"tensor<{extents}{TYPES[data_type][0]}>"


def read_tensor(proto: Any, folder: str | None, where: str) -> Tensor:
    """A TensorProto, its bytes from the file that it names where it does. `where` names it in errors."""
    if proto.data_type not in TYPES:
        raise ModelError(f"{where}: the type {type_name(proto.data_type)} is not supported")
    shape = tuple(proto.dims)
    if any(extent < 0 for extent in shape):
        raise ModelError(f"{where}: its shape is {list(shape)}")
    if proto.HasField("segment"):
        raise ModelError(f"{where}: tensors in segments are not supported")
    size = math.prod(shape) * TYPES[proto.data_type][2]
    if proto.data_location == 1:
        data = _external(proto, folder, size, where)
    elif proto.HasField("raw_data"):
        data = proto.raw_data
    else:
        data = _typed(proto, where)
    if len(data) != size:
        raise ModelError(f"{where}: found {len(data)} bytes, wanted {size} for the shape {list(shape)}")
    return Tensor(proto.data_type, shape, data)


def type_name(data_type: int) -> str:
    """ONNX's name of a type, in lower case."""
    from onnx import TensorProto

    try:
        return TensorProto.DataType.Name(data_type).lower()
    except ValueError:
        return str(data_type)


def _typed(proto: Any, where: str) -> bytes:
    """The elements from the field of their own type; types of 16 bits and fewer lie in 32, floating point as its
    bits."""
    name, _, size = TYPES[proto.data_type]
    if name == "f32":
        values = array.array("f", proto.float_data)
    elif name == "f64":
        values = array.array("d", proto.double_data)
    elif name == "i64":
        values = array.array("q", proto.int64_data)
    else:
        code = {"i32": "i", "i16": "h", "i8": "b", "i1": "B", "f16": "H", "bf16": "H"}[name]
        try:
            values = array.array(code, proto.int32_data)
        except OverflowError:
            raise ModelError(f"{where}: an element is no {name}") from None
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def _external(proto: Any, folder: str | None, size: int, where: str) -> bytes:
    entries = {entry.key: entry.value for entry in proto.external_data}
    location = entries.get("location", "")
    try:
        offset, length = int(entries.get("offset", 0)), int(entries.get("length", size))
    except ValueError:
        raise ModelError(f"{where}: its place in '{location}' is no number") from None
    if folder is None:
        raise ModelError(f"{where}: its elements are in the file '{location}', and the model comes without a folder")
    if not location or "\0" in location:
        raise ModelError(f"{where}: it names no file")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root:
        raise ModelError(f"{where}: the file '{location}' is not beside the model")
    if length != size or offset < 0:
        raise ModelError(f"{where}: found {length} bytes at {offset} in '{location}', wanted {size}")
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise ModelError(f"{where}: cannot read '{location}': {error.strerror}") from None


def _nested(elements: list[str], shape: tuple[int, ...]) -> str:
    if not shape:
        return elements[0]
    if not elements:
        return ""
    rows = shape[0]
    step = len(elements) // rows
    return "[" + ", ".join(_nested(elements[i * step:(i + 1) * step], shape[1:]) for i in range(rows)) + "]"
