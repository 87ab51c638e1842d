"""The program of a lowered function, with its constants and pytrees."""

from __future__ import annotations

import dataclasses
import io
import os
from typing import Any

import jax
import numpy as np

from saccade import _graph
from saccade.jax.constants import TYPES


@dataclasses.dataclass(frozen=True)
class Value:
    """An array argument or result of the function."""

    path: str
    """Its path in the arguments or results, such as "[0]['w']"."""
    dtype: np.dtype
    """The NumPy data type."""
    shape: tuple[int | None, ...]
    """None for a dynamic extent."""


@dataclasses.dataclass
class Program:
    """One public function @main. It takes the leaves of the arguments that the function reads, then its constants."""

    text: str
    in_tree: Any
    """JAX's tree definition of (args, kwargs)."""
    out_tree: Any
    inputs: list[Value]
    """The leaves of the arguments, including unused ones."""
    kept: list[int]
    """The indices of the inputs that @main takes."""
    outputs: list[Value]
    constants: list[np.ndarray]
    """Large arrays that the function closes over."""
    arguments: list[str]
    """The names of @main's arguments."""
    exported: Any = None
    """For dynamic extents: a `jax.export.Exported` without its module, which has the constraints between extents."""

    def check_extents(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Raises JAX's ValueError for shapes of the leaves that the function was not lowered for: other static extents,
        or symbolic extents without a solution of at least 1 each."""
        if self.exported is None:
            return
        leaves = [jax.ShapeDtypeStruct(shape, each.dtype) for shape, each in zip(shapes, self.inputs, strict=True)]
        args, kwargs = jax.tree_util.tree_unflatten(self.in_tree, leaves)
        jax.eval_shape(self.exported.call, *args, **kwargs)

    def write(self, path: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None) -> list[str]:
        """Writes the program to `path` and each constant to `<path without .mlir>.constant_<i>.npy`, or all of them to
        one safetensors file `weights`. Each file is replaced atomically. Returns the names of all files, the program's
        last."""
        files = [(_graph.Value(name, name, "", each.shape), _File(each))
                 for name, each in ((f"constant_{i}", each) for i, each in enumerate(self.constants))]
        return _graph.Program(self.text, [], files, []).write(path, weights)


class _File:
    """An array in NumPy's .npy format; bfloat16 as its bits."""

    def __init__(self, array: np.ndarray):
        self.array = array

    @property
    def stored(self) -> _graph.Tensor:
        data = np.ascontiguousarray(self.array)
        element = next(element for element, dtype in TYPES.items() if dtype == data.dtype.name)
        return _graph.Tensor(element, data.shape, data.tobytes())

    def npy(self) -> bytes:
        file = io.BytesIO()
        np.save(file, self.array.view(np.uint16) if self.array.dtype.name == "bfloat16" else self.array)
        return file.getvalue()
