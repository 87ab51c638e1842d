"""An exported program as the compiler takes it."""

from __future__ import annotations

import ctypes
import dataclasses
from typing import Any

import torch

from saccade import _graph

ELEMENTS = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
            torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "i1"}
"""Types of elements by MLIR's names."""


@dataclasses.dataclass(frozen=True)
class Weight:
    """A parameter, a buffer or a constant of the module: its own memory."""

    tensor: torch.Tensor

    @property
    def stored(self) -> _graph.Tensor:
        """The elements row by row, copied."""
        tensor = self.tensor if self.tensor.is_contiguous() else self.tensor.contiguous()
        data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
        return _graph.Tensor(ELEMENTS[tensor.dtype], tuple(tensor.shape), data)

    def npy(self) -> bytes:
        """The weight as a file of NumPy's format; bfloat16 as uint16, its bits."""
        return self.stored.npy()


@dataclasses.dataclass
class Program(_graph.Program):
    """One function @main: the tensors and sizes that the module takes, then its weights."""

    in_spec: Any
    """The tree of the module's arguments, (args, kwargs), as torch.utils._pytree has it."""
    out_spec: Any
    """The tree of what it gives."""
    fixed_inputs: dict[int, Any]
    """Leaves of the arguments that are no tensors, by their numbers: what they were at the export."""
    returned: list[Any]
    """The leaves of what it gives: `Result` for a tensor of @main, others as they are."""


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of @main."""

    number: int
