"""Caches with elements of 4 bits: bytes of two codes, the low bits first, which programs take as words of eight."""

from __future__ import annotations

from typing import Any

from saccade import _arrays
from saccade._cache_text import CODES_OF_WORD, is_packed
from saccade._form import Form

CODES_OF_BYTE = 2
_BYTES = CODES_OF_WORD // CODES_OF_BYTE


def name_of(dtype: str, has_zero: bool) -> str:
    """The element type of a cache, a key of `_cache_text.STORED` if it is one, for that of its array."""
    if dtype != "uint8":
        return dtype
    return "uint4" if has_zero else "int4"


def words(name: str, x: Any, axis: int) -> Any:
    """A view of the bytes x with words along `axis`, for arrays of NumPy and torch.

    Raises:
        ValueError: the number of codes is no multiple of eight, bytes are not adjacent, or rows not at multiples of a
            word.
    """
    if x.shape[axis] % _BYTES:
        raise ValueError(f"{name} has {x.shape[axis]} bytes along the head size, which are "
                         f"{x.shape[axis] * CODES_OF_BYTE} elements of 4 bits, expected a head size that is a multiple "
                         f"of {CODES_OF_WORD}")  # fmt: skip
    is_torch = _arrays.is_torch(x)
    if not is_torch and not _arrays.is_numpy(x):  # an array of another library on a GPU
        raise TypeError(f"{name} is no torch tensor, expected one on a GPU: elements of 4 bits are read by words")
    strides = list(x.stride() if is_torch else x.strides)
    if 0 in x.shape:
        x = x.contiguous() if is_torch else x.copy()
    elif strides[axis] != 1:
        raise ValueError(f"{name} has a stride of {strides[axis]} bytes along the head size, expected 1: elements of "
                         "4 bits are read by words")  # fmt: skip
    elif any(stride % _BYTES for i, stride in enumerate(strides) if i != axis and x.shape[i] > 1):
        raise ValueError(f"{name} has strides {tuple(strides)} in bytes, expected multiples of {_BYTES} except along "
                         "the head size: elements of 4 bits are read by words")  # fmt: skip
    if is_torch and axis == x.dim() - 1:
        return x.view(_arrays.torch_module().int32)
    if is_torch:
        return x.movedim(axis, -1).view(_arrays.torch_module().int32).movedim(-1, axis)
    import numpy

    return numpy.moveaxis(numpy.moveaxis(x, axis, -1).view(numpy.int32), -1, axis)


def in_words(form: Form, k: Any, v: Any) -> tuple[Any, Any]:
    """Keys and values as the program of a quantized form takes them."""
    assert form.scales is not None
    axis = form.key_layout.index("d")
    return tuple(words(name, x, axis) if is_packed(stored) else x
                 for name, x, (stored, _) in zip("kv", (k, v), form.scales))


__all__ = ["CODES_OF_BYTE", "in_words", "name_of", "words"]
