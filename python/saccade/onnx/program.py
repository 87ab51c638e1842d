"""A model as the compiler takes it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
import tempfile

from saccade.onnx.tensors import Tensor


@dataclasses.dataclass(frozen=True)
class Value:
    """An input, a weight or an output."""

    name: str
    """As the model calls it."""
    argument: str
    """As the program does."""
    data_type: int
    """ONNX's number of the element type; 0 where the model does not say."""
    shape: tuple[int | None, ...] | None
    """None for an extent that only the run time knows, or for all of them."""


@dataclasses.dataclass
class Program:
    """One function @main: the inputs of the model, then its weights."""

    text: str
    inputs: list[Value]
    weights: list[tuple[Value, Tensor]]
    outputs: list[Value]

    def write(self, path: str | os.PathLike[str]) -> list[str]:
        """Writes the program to `path`, and each weight to a file `<path without .mlir>.<argument>.npy` beside it;
        gives the
        names of all files, the program's last. Each file appears whole or not at all."""
        path = os.fspath(path)
        stem = re.sub(r"\.mlir$", "", path)
        files = [(f"{stem}.{weight.argument}.npy", tensor.npy()) for weight, tensor in self.weights]
        files.append((path, self.text.encode()))
        # What can fail has failed before the first file gets its name.
        written: list[tuple[str, str]] = []
        try:
            for name, data in files:
                written.append((_write_beside(name, data), name))
        except BaseException:
            for temporary, _ in written:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise
        for temporary, name in written:
            os.replace(temporary, name)
        return [name for name, _ in files]


def _write_beside(path: str, data: bytes) -> str:
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", prefix=os.path.basename(path) + ".")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(temporary, 0o644)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    return temporary
