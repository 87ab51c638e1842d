"""A lowered function as the compiler takes it."""

from __future__ import annotations

import dataclasses
import io
import os
from typing import Any

import jax
import numpy as np

from saccade import _graph


@dataclasses.dataclass(frozen=True)
class Value:
    """An array that the function takes or gives."""

    path: str
    """Where it is in the arguments, or in what is returned, such as "[0]['w']"."""
    dtype: np.dtype
    """NumPy's data type."""
    shape: tuple[int | None, ...]
    """None for an extent that only a call knows."""


@dataclasses.dataclass
class Program:
    """One public function @main. It takes those leaves of the arguments that the function reads, then its constants."""

    text: str
    in_tree: Any
    """JAX's tree of (args, kwargs)."""
    out_tree: Any
    inputs: list[Value]
    """The leaves of the arguments, also those that nobody reads."""
    kept: list[int]
    """Which of them @main takes."""
    outputs: list[Value]
    constants: list[np.ndarray]
    """Arrays that the function closes over, where they are large."""
    arguments: list[str]
    """The names of what @main takes."""
    exported: Any = None
    """Where calls may choose extents: a `jax.export.Exported`, without its program, that knows how they hang
    together."""

    def check_extents(self, shapes: tuple[tuple[int, ...], ...]) -> None:
        """Raises ValueError, as JAX does, for shapes of the leaves that the function was not lowered for: other
        constants, or extents that its symbols have no solution for, each at least 1."""
        if self.exported is None:
            return
        leaves = [jax.ShapeDtypeStruct(shape, each.dtype) for shape, each in zip(shapes, self.inputs, strict=True)]
        args, kwargs = jax.tree_util.tree_unflatten(self.in_tree, leaves)
        jax.eval_shape(self.exported.call, *args, **kwargs)

    def write(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes the program to `path`, and each constant to a file `<path without .mlir>.constant_<i>.npy` beside it;
        gives the names of all files, the program's last. Each file appears whole or not at all."""
        files = [(_graph.Value(name, name, "", each.shape), _File(each))
                 for name, each in ((f"constant_{i}", each) for i, each in enumerate(self.constants))]
        return _graph.Program(self.text, [], files, []).write(path)


class _File:
    """An array as a file of NumPy's format, which has no bfloat16: it gets the bits."""

    def __init__(self, array: np.ndarray):
        self.array = array

    def npy(self) -> bytes:
        file = io.BytesIO()
        np.save(file, self.array.view(np.uint16) if self.array.dtype.name == "bfloat16" else self.array)
        return file.getvalue()
