"""Rows of int8, of floats of 8 bits and of codes of 4 bits for quantized caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from saccade._cache_text import CODES_OF_WORD, ZERO_POINT
from saccade._opaque import is_compiling

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0, torch.uint8: 7.0}
"""The element types of quantized caches, and the largest magnitudes of rows; uint8 has two codes of 4 bits."""
_LARGEST_CODE = 15


def quantize_rows(function: str, name: str, x: torch.Tensor, count: torch.Tensor | None, scale: Any, zero: Any,
                  has_zero: bool, dtype: torch.dtype, blocks: int,
                  layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """x / scale rounded to `dtype` and saturated, the scales and the zero points. Rounding is to nearest, ties to even,
    and after the zero point is added.

    Args:
        function, name: of the caller and of x, for messages.
        x: new keys or values with the dimensions of `layout`, of which d is the last one.
        count: [batch], the rows of each sequence that are no padding; None for all.
        scale: a number, or a float32 tensor [KV heads]; None computes those of each position and head, the largest
            magnitude divided by that of `dtype`, or with zero points the distance of the largest and the smallest
            element divided by 15.
        zero: the zero points of given scales.
        has_zero: whether codes have zero points other than 8.
        dtype: one of LARGEST.
        blocks: how many scales of each position and head to compute, each of as many successive elements.

    Returns:
        The rows, in which codes of 4 bits are words of eight, and the computed scales and zero points with an extent of
        `blocks` in place of the depth (empty tensors if they are given).

    Raises:
        ValueError: a scale, or an element that is no padding, is not finite; it names the sequence. Tensors in the
            memory of a GPU are not read.
    """
    scale, zero = (torch.full((1,), float(number), device=x.device) if isinstance(number, (int, float)) else number
                   for number in (scale, zero))  # fmt: skip
    if is_compiling():
        quantize: Callable[..., tuple[torch.Tensor, torch.Tensor, torch.Tensor]] = torch.ops.saccade.quantize_rows
        return quantize(x, count, scale, zero, has_zero, dtype, blocks, layout, function, name)
    return _quantize(x, count, scale, zero, has_zero, dtype, blocks, layout, function, name)


def check_scale(function: str, name: str, scale: torch.Tensor) -> None:
    """Checks a number, or the scales or zero points of heads. Those in the memory of a GPU are not read."""
    if not scale.is_cpu:
        return
    is_zero = name.endswith("_zero")
    wrong = ~(torch.isfinite(scale) & ((scale > 0) | is_zero))
    if wrong.any():
        place = f" of head {int(wrong.int().argmax())}" if scale.numel() > 1 else ""
        raise ValueError(f"{function}: {name}{place} is {scale[wrong][0].item()}, expected a "
                         f"{'finite' if is_zero else 'positive'} number")


def _quantize(x: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None, zero: torch.Tensor | None,
              has_zero: bool, dtype: torch.dtype, blocks: int, layout: str, function: str,
              name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    for what, numbers in (("scale", scale), ("zero", zero)):
        if numbers is None:
            continue
        check_scale(function, f"{name}_{what}", numbers)
        heads = x.shape[layout.index("h")]
        if numbers.numel() not in (1, heads):
            raise ValueError(f"{function}: {name}_{what} has {numbers.numel()} elements, expected {heads}, one for "
                             "each head")  # fmt: skip
    sequence = layout.index("s")
    found = _found(x, has_zero, dtype, blocks)
    largest = found[0]
    if not x.is_cpu:
        return _rounded(x, scale, zero, found, dtype, layout)
    wrong = ~torch.isfinite(largest)
    if wrong.any():
        if count is not None and "b" in layout:
            shape = [1] * x.dim()
            shape[sequence] = -1
            wrong &= torch.arange(x.shape[sequence]).view(shape) < count.view(-1, *[1] * (x.dim() - 1))
        if wrong.any():
            first = wrong.nonzero()[0].tolist()
            place = f", in sequence {first[0]}" if "b" in layout else ""
            raise ValueError(f"{function}: the scale of {name} is {largest[wrong][0].item()} in row {first[sequence]}, "
                             f"expected a finite number{place}")
    return _rounded(x, scale, zero, found, dtype, layout)


def unchecked(x: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None, zero: torch.Tensor | None,
              has_zero: bool, dtype: torch.dtype, blocks: int, layout: str, function: str,
              name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The operator in terms of others, without its checks, for exported programs."""
    return _rounded(x, scale, zero, _found(x, has_zero, dtype, blocks), dtype, layout)


def _found(x: torch.Tensor, has_zero: bool, dtype: torch.dtype, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Scales and zero points of blocks of elements, in float32. The zero points are empty without `has_zero`, and the
    scales then the largest magnitudes, which `_rounded` divides."""
    parts = x.unflatten(-1, (blocks, -1))
    if not has_zero:
        return parts.abs().amax(-1).float(), x.new_empty(0, dtype=torch.float32)
    low = parts.amin(-1).float()
    scale = (parts.amax(-1).float() - low) / _LARGEST_CODE
    zero = -low / scale
    # Elements that are equal, or nearly so, have their own value as the zero point, and the code 0.
    is_one = (scale == 0) | (torch.isfinite(scale) & ~torch.isfinite(zero))
    return torch.where(is_one, 1.0, scale), torch.where(is_one, -low, zero)


def _rounded(x: torch.Tensor, scale: torch.Tensor | None, zero: torch.Tensor | None,
             found: tuple[torch.Tensor, torch.Tensor], dtype: torch.dtype,
             layout: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    limit = LARGEST[dtype]
    if scale is None:
        has_zero = found[1].numel() > 0
        scales, zeros = (found[0] if has_zero else found[0] / limit), found[1]
        # Not by the reciprocal, which is infinite for a scale below 2^-128.
        divisor = torch.where(scales > 0, scales, 1.0)
        parts = x.float().unflatten(-1, (scales.shape[-1], -1)) / divisor.unsqueeze(-1)
        rows = (parts + zeros.unsqueeze(-1) if has_zero else parts).flatten(-2)
    else:
        scales = zeros = x.new_empty(0, dtype=torch.float32)
        has_zero = zero is not None
        shape = [1] * x.dim()
        shape[layout.index("h")] = -1
        rows = x.float() / scale.view(shape)
        if zero is not None:
            rows = rows + zero.view(shape)
    if dtype == torch.uint8:
        codes = rows.round().clamp(0, _LARGEST_CODE) if has_zero else rows.round().clamp(-limit, limit) + ZERO_POINT
        return _in_words(codes.to(torch.int32)), scales, zeros
    if dtype == torch.int8:
        rows = rows.round()
    return rows.clamp(-limit, limit).to(dtype), scales, zeros


def _in_words(codes: torch.Tensor) -> torch.Tensor:
    """Words of eight codes, the first ones in the low bits."""
    parts = codes.unflatten(-1, (-1, CODES_OF_WORD))
    result = parts[..., 0]
    for i in range(1, CODES_OF_WORD):
        result = result | parts[..., i] << 4 * i
    return result


def _fake(x: torch.Tensor, count: Any, scale: Any, zero: Any, has_zero: bool, dtype: torch.dtype, blocks: int,
          layout: str, function: str, name: str) -> Any:
    is_packed = dtype == torch.uint8
    rows = x.new_empty((*x.shape[:-1], x.shape[-1] // (CODES_OF_WORD if is_packed else 1)),
                       dtype=torch.int32 if is_packed else dtype)
    shapes = [(*x.shape[:-1], blocks) if is_computed else (0,) for is_computed in (
        scale is None, scale is None and has_zero)]  # fmt: skip
    return rows, *(x.new_empty(shape, dtype=torch.float32) for shape in shapes)


torch.library.define("saccade::quantize_rows", "(Tensor x, Tensor? count, Tensor? scale, Tensor? zero, bool has_zero, "
                     "ScalarType dtype, int blocks, str layout, str function, str name) -> (Tensor, Tensor, Tensor)",
                     tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
torch.library.impl("saccade::quantize_rows", "CompositeExplicitAutograd", _quantize)
torch.library.register_fake("saccade::quantize_rows", _fake)
