"""Reads ONNX tensors as bytes, without converting their elements."""

from __future__ import annotations

import array
import math
import os
import sys
from typing import Any

from saccade._graph import ELEMENTS, Tensor
from saccade.onnx.errors import ModelError

TYPES = {1: "f32", 3: "i8", 5: "i16", 6: "i32", 7: "i64", 9: "i1", 10: "f16", 11: "f64", 16: "bf16"}
"""MLIR's names of TensorProto.DataType."""


def read_tensor(proto: Any, folder: str | None, where: str, as_bytes: bool = False) -> Tensor:
    """Reads a TensorProto, including external data. `where` names it in errors. `as_bytes`: elements of uint8 are taken
    as bytes of i8, without a conversion."""
    is_bytes = as_bytes and proto.data_type == 2
    if proto.data_type not in TYPES and not is_bytes:
        raise ModelError(f"{where}: the type {type_name(proto.data_type)} is not supported")
    shape = tuple(proto.dims)
    if any(extent < 0 for extent in shape):
        raise ModelError(f"{where}: its shape is {list(shape)}")
    if proto.HasField("segment"):
        raise ModelError(f"{where}: tensors in segments are not supported")
    element = "i8" if is_bytes else TYPES[proto.data_type]
    size = math.prod(shape) * ELEMENTS[element][1]
    if proto.data_location == 1:
        data = _external(proto, folder, size, where)
    elif proto.HasField("raw_data"):
        data = proto.raw_data
    else:
        data = _typed(proto, "u8" if is_bytes else element, where)
    if len(data) != size:
        raise ModelError(f"{where}: found {len(data)} bytes, expected {size} for the shape {list(shape)}")
    return Tensor(element, shape, data)


def type_name(data_type: int) -> str:
    """ONNX's name of a type, in lower case."""
    from onnx import TensorProto

    try:
        return str(TensorProto.DataType.Name(data_type)).lower()
    except ValueError:
        return str(data_type)


def _typed(proto: Any, name: str, where: str) -> bytes:
    """The elements of type `name` from the typed field; types of at most 16 bits are stored in 32-bit integers, floats
    as their bits.
    """
    if name == "f32":
        values = array.array("f", proto.float_data)
    elif name == "f64":
        values = array.array("d", proto.double_data)
    elif name == "i64":
        values = array.array("q", proto.int64_data)
    else:
        code = {"i32": "i", "i16": "h", "i8": "b", "u8": "B", "i1": "B", "f16": "H", "bf16": "H"}[name]
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
        raise ModelError(f"{where}: its offset or length in '{location}' is no integer") from None
    if folder is None:
        raise ModelError(f"{where}: its elements are in the file '{location}', but the model was read without a folder")
    if not location or "\0" in location:
        raise ModelError(f"{where}: it names no file")
    root = os.path.realpath(folder)
    path = os.path.realpath(os.path.join(root, location))
    if os.path.commonpath([root, path]) != root:
        raise ModelError(f"{where}: the file '{location}' is outside of the model's folder")
    if length != size or not 0 <= offset < 1 << 62:
        raise ModelError(f"{where}: found {length} bytes at {offset} in '{location}', expected {size}")
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            return file.read(size)
    except OSError as error:
        raise ModelError(f"{where}: cannot read '{location}': {error.strerror}") from None
