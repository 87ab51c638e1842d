"""Weights of a model by name: of safetensors and GGUF files, or given as arrays.

The format that is written is that of the README of safetensors 0.8, section "Format".
"""

from __future__ import annotations

import difflib
import json
import os
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from saccade._arrays import Array
from saccade._text import identifier

Weights = str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | Mapping[str, Array]
"""A safetensors or GGUF file, several of one model, or arrays by name."""


_DTYPES = {"f64": "F64", "f32": "F32", "f16": "F16", "bf16": "BF16", "i64": "I64", "i32": "I32", "i16": "I16",
           "i8": "I8", "i1": "BOOL", "f8E4M3FN": "F8_E4M3", "f8E5M2": "F8_E5M2"}
"""The names of MLIR's element types in a safetensors file."""


def pieces(weights: Sequence[tuple[Any, Any]]) -> Iterator[bytes]:
    """A safetensors file of pairs of `_graph.Value` and `_graph.Weight`. A tensor has the model's name, or that of the
    argument if the argument is not the identifier of the model's."""
    header, offset = {}, 0
    tensors = {value.name if identifier(value.name) == value.argument else value.argument: weight
               for value, weight in weights}  # fmt: skip
    for name, weight in tensors.items():
        stored = weight.stored
        header[name] = {"dtype": _DTYPES[stored.element], "shape": stored.shape,
                        "data_offsets": (offset, offset + len(stored.data))}
        offset += len(stored.data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    yield struct.pack("<Q", len(text)) + text
    for weight in tensors.values():
        yield weight.stored.data


class WeightsByArgument:
    """Finds the tensor of an argument: the one of a name whose identifier it is, such as "encoder.layer.0.weight" for
    the argument "encoder_layer_0_weight" that importers make of it."""

    def __init__(self, weights: Weights):
        """Reads the names of all tensors.

        Raises:
            TypeError: neither a path, nor paths, nor a mapping of arrays.
            OSError: a file cannot be read.
            ValueError: a file is no safetensors or GGUF file, or damaged, or two tensors have the same name.
            ImportError: the package safetensors is not installed.
        """
        self._arrays: dict[str, Any] = {}
        self._files: dict[str, tuple[str, Any]] = {}
        if isinstance(weights, Mapping):
            self.title = "weights"
            self._arrays.update(weights)
        else:
            paths = [weights] if isinstance(weights, (str, os.PathLike)) else weights
            if not isinstance(paths, (list, tuple)) or not all(isinstance(each, (str, os.PathLike)) for each in paths):
                raise TypeError(f"weights is {weights!r:.80}, expected a path, a list of paths or a mapping from names "
                                "to arrays")
            self.title = ", ".join(map(os.fspath, paths)) or "weights"
            for path in map(os.fspath, paths):
                self._add(path)
        self._by_argument: dict[str, list[str]] = {}
        for name in self.names:
            self._by_argument.setdefault(identifier(name), []).append(name)

    @property
    def names(self) -> list[str]:
        """The names of all tensors."""
        return [*self._arrays, *self._files]

    def name_of(self, argument: str) -> str | None:
        """The name of the tensor of an argument, if there is one. Raises ValueError if there are several."""
        if identifier(argument) != argument:  # of a program that no importer wrote
            return argument if argument in self._arrays or argument in self._files else None
        names = self._by_argument.get(argument, [])
        if len(names) > 1:
            raise ValueError(f"{self.title}: {' and '.join(map(repr, names))} fit the argument {argument!r}; give "
                             "weights as a mapping from arguments to arrays")
        return names[0] if names else None

    def read(self, name: str) -> Any:
        """The tensor of a name: a torch tensor if torch is installed, else a NumPy array."""
        if name in self._arrays:
            return self._arrays[name]
        path, file = self._files[name]
        try:
            return file.get_tensor(name)
        except TypeError as error:  # NumPy has no bfloat16
            raise TypeError(f"{path}: {name} cannot be read without torch: {error}") from None

    def missing(self, arguments: Iterable[str]) -> str:
        """Says which tensors were not found, and which have similar names."""
        lines = []
        for argument in arguments:
            close = difflib.get_close_matches(argument, self._by_argument, 1)
            lines.append(argument + (f" (did you mean {self._by_argument[close[0]][0]!r}?)" if close else ""))
        return f"{self.title}: no tensor of {len(self.names)} fits {', '.join(lines[:8])}" + (
            f" and {len(lines) - 8} more" if len(lines) > 8 else "")

    def _add(self, path: str) -> None:
        with open(path, "rb") as opened:  # raises OSError, with the name
            is_gguf = opened.read(4) == b"GGUF"
        file = _GGUF(path) if is_gguf else _safetensors(path)
        names: list[str] = file.keys()
        for name in names:
            if name in self._files:
                raise ValueError(f"{path}: {name!r} is in {self._files[name][0]}, too")
            self._files[name] = path, file


class _GGUF:
    """The tensors of a GGUF file as arrays that share its memory, as a safetensors file returns them."""

    def __init__(self, path: str):
        from saccade.gguf import Container

        self._container = Container(path)

    def keys(self) -> list[str]:
        return list(self._container.tensors)

    def get_tensor(self, name: str) -> Any:
        return self._container.array(self._container.tensors[name])


def _safetensors(path: str) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ImportError("weights are in a safetensors file, which the package safetensors reads: "
                          "pip install saccade[weights]") from None
    try:
        return safe_open(path, framework="pt" if _has_torch() else "np")
    except SafetensorError as error:
        raise ValueError(f"{path} is no safetensors file, or damaged: {error}") from None


def absolute(weights: Any) -> Any:
    """The weights with paths that hold in any folder."""
    if isinstance(weights, (str, os.PathLike)):
        return os.path.abspath(weights)
    return [absolute(each) for each in weights] if isinstance(weights, (list, tuple)) else weights


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None
