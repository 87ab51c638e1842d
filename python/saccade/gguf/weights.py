"""The weights of a program: arguments, which have the bytes of the file, and the ops that make f32 of them."""

from __future__ import annotations

from collections import Counter

from saccade._text import identifier
from saccade.gguf.body import Body, Region, Value, tensor_type
from saccade.gguf.container import Container, Stored
from saccade.gguf.elements import SERVED
from saccade.gguf.errors import FileError


class Weights:
    """The tensors of a file as arguments of a program. An argument is called as its tensor, with underscores in place
    of dots."""

    def __init__(self, container: Container, body: Body, activations: str):
        """`activations` is their type in products with blocks. Raises FileError if a tensor has an element type
        that is not supported."""
        self.container, self._body, self._activations = container, body, activations
        self.arguments: dict[str, Stored] = {}
        """What the program reads, by the names of arguments."""
        self._values: dict[tuple[str, str], Value] = {}
        if reason := refusal(container):
            raise FileError(f"{container.path}: {reason}")

    def has(self, name: str) -> bool:
        """Whether the file has a tensor."""
        return name in self.container.tensors

    def is_quantized(self, name: str) -> bool:
        """Whether a tensor has blocks."""
        return self.container.tensors[name].element.is_quantized

    def unused(self) -> list[str]:
        """The tensors that the program does not read."""
        used = {tensor.name for tensor in self.arguments.values()}
        return [name for name in self.container.tensors if name not in used]

    def declarations(self) -> list[str]:
        """The arguments as text."""
        return [f"%{name}: {_stored(name, tensor).type} {{attn.constant}}" for name, tensor in self.arguments.items()]

    def vector(self, name: str, extent: int) -> Value:
        """A vector in f32. Raises FileError for a quantized one."""
        stored = self._argument(name, (extent,))
        if stored.element == "i8":
            raise FileError(f"{self.container.path}: '{name}' is {self.container.tensors[name].element.name}, expected "
                            "F32, F16 or BF16 for a vector")
        return self._float(stored)

    def matrix(self, name: str, rows: int, columns: int) -> Value:
        """A matrix for `Body.contract`: in the element type of the file if that is a float, else in that of
        activations, or in f32 for int8."""
        stored = self._argument(name, (rows, columns))
        element = "bf16" if self._activations == "bf16" else "f32"
        return self._float(stored, element) if stored.element == "i8" else stored

    def rows(self, name: str, indices: Value, shape: tuple[int, int]) -> Value:
        """The rows of a matrix [rows, columns] at indices [n] in f32 [n, columns]. An index out of range is the nearest
        row. Of quantized rows only those are dequantized."""
        matrix = self._argument(name, shape)
        if matrix.element == "i8":
            matrix = self._float(matrix)

        def read(at: Region, index: str) -> str:
            low, high = at.constant(0, indices.element), at.constant(shape[0] - 1, indices.element)
            clamped = at.op("arith.maxsi", at.op("arith.minsi", index, high, type=indices.element), low,
                            type=indices.element)  # fmt: skip
            row = at.cast("arith.index_cast", clamped, indices.element, "index")
            element = at.extract(matrix, row, at.index("d"))
            return element if matrix.element == "f32" else at.cast("arith.extf", element, matrix.element, "f32")

        return self._body.generic("r->rd", [indices], (indices.shape[0], shape[1]), read)

    def _argument(self, name: str, shape: tuple[int, ...]) -> Value:
        tensor = self.container.tensors.get(name)
        if tensor is None:
            raise FileError(f"{self.container.path}: the file has no tensor '{name}', expected one of shape {shape}")
        if tensor.shape != shape:
            raise FileError(f"{self.container.path}: '{name}' has shape {tensor.shape}, expected {shape}")
        argument = identifier(name)
        if self.arguments.setdefault(argument, tensor) is not tensor:
            raise FileError(f"{self.container.path}: '{name}' and '{self.arguments[argument].name}' have names that "
                            "differ in punctuation only")
        return _stored(argument, tensor)

    def _float(self, stored: Value, element: str = "f32") -> Value:
        """An argument in a float type: blocks, or a vector of plain numbers."""
        if stored.element == element:
            return stored
        key = stored.name, element
        if key not in self._values:
            tensor = self.arguments[stored.name[1:]]
            self._values[key] = (
                dequantized(self._body, stored, tensor, element) if tensor.element.is_quantized else
                self._body.generic("d->d", [stored], stored.shape,
                                   lambda at, x: at.cast("arith.extf", x, stored.element, element)))  # fmt: skip
        return self._values[key]


def refusal(container: Container) -> str:
    """The tensors whose element type is not supported, as text; empty if there are none."""
    refused = [tensor for tensor in container.tensors.values() if tensor.element.served is None]
    if not refused:
        return ""
    counts, total = Counter(tensor.element.name for tensor in refused), len(container.tensors)
    found = ", ".join(f"{count} of {total} tensors are {name}" for name, count in counts.items())
    return f"{found}, the first is '{refused[0].name}'; supported are {SERVED}"


def dequantized(body: Body, blocks: Value, tensor: Stored, element: str) -> Value:
    """The numbers of blocks [rows, blocks, bytes of a block]: [rows, elements] of a float type."""
    name = body.emit(f"attn.dequantize {blocks.name} format({tensor.element.served}) : {blocks.type} -> "
                     f"{tensor_type(tensor.shape, element)}")
    return Value(name, tensor.shape, element)


def _stored(argument: str, tensor: Stored) -> Value:
    """An argument: plain numbers, or blocks as bytes."""
    element, shape = tensor.element, tensor.shape
    if element.is_quantized:
        return Value(f"%{argument}", (*shape[:-1], shape[-1] // element.block, element.size), "i8")
    return Value(f"%{argument}", shape, element.served or "")
