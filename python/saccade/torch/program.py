"""The program of an exported module, with its weights and pytrees."""

from __future__ import annotations

import ctypes
import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from saccade import _graph

ELEMENTS = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8",
            torch.int16: "i16", torch.int32: "i32", torch.int64: "i64", torch.bool: "i1",
            torch.float8_e4m3fn: "f8E4M3FN", torch.float8_e5m2: "f8E5M2"}
"""MLIR's names of the element types."""

COMPLEX = {torch.complex64: torch.float32, torch.complex128: torch.float64}
"""The types of the parts of complex elements. Programs have both parts of an input in a last dimension."""


@dataclasses.dataclass(frozen=True)
class Weight:
    """A parameter, buffer or constant of the module."""

    source: torch.Tensor
    """The tensor itself, which may require grad."""

    @property
    def tensor(self) -> torch.Tensor:
        """The tensor as it is now, without gradients; it shares its memory."""
        return self.source.detach() if self.source.requires_grad else self.source

    @property
    def stored(self) -> _graph.Tensor:
        """A row-major copy of the elements."""
        tensor = self.tensor if self.tensor.is_contiguous() else self.tensor.contiguous()
        data = ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size()) if tensor.numel() else b""
        return _graph.Tensor(ELEMENTS[tensor.dtype], tuple(tensor.shape), data)

    def npy(self) -> bytes:
        """The weight in NumPy's .npy format; bfloat16 as the uint16 bits."""
        return self.stored.npy()


@dataclasses.dataclass
class Program(_graph.Program):
    """One function @main that takes the tensors and sizes of the module's arguments, then its weights."""

    in_spec: Any
    """The pytree of the arguments, (args, kwargs)."""
    out_spec: Any
    """The pytree of the results."""
    fixed_inputs: dict[int, Any]
    """Non-tensor leaves of the arguments by index, with their values at the export."""
    graph: torch.fx.Graph
    """What was read, after PyTorch's decompositions."""
    returned: list[Any]
    """The leaves of the results: `Result` for a tensor of @main, others unchanged."""
    constants: dict[str, torch.Tensor] = dataclasses.field(default_factory=dict)
    """The small buffers of the module that are constants of @main, and complex ones, by name; also those that it does
    not read, such as the number of batches by which a batch norm counts changes of its statistics."""
    complex_inputs: frozenset[int] = frozenset()
    """The numbers of the inputs that are complex."""

    def arguments(self, given: Sequence[Any]) -> Sequence[Any]:
        """Arguments of @main: complex tensors as their real and imaginary parts."""
        if not self.complex_inputs:
            return given
        return [torch.view_as_real(x.resolve_conj()) if i in self.complex_inputs and torch.is_complex(x) else x
                for i, x in enumerate(given)]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Result:
    """A result of @main."""

    number: int
