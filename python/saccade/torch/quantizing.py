"""Rows of int8 and of floats of 8 bits for quantized caches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from saccade._opaque import is_compiling

LARGEST = {torch.int8: 127.0, torch.float8_e4m3fn: 448.0, torch.float8_e5m2: 57344.0}
"""The element types of quantized caches, and the largest magnitudes of rows."""


def quantize_rows(function: str, name: str, x: torch.Tensor, count: torch.Tensor | None, scale: Any, dtype: torch.dtype,
                  blocks: int, layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """x / scale rounded to `dtype` and saturated, and the scales.

    Args:
        function, name: of the caller and of x, for messages.
        x: new keys or values with the dimensions of `layout`, of which d is the last one.
        count: [batch], the rows of each sequence that are no padding; None for all.
        scale: a number, or a float32 tensor [KV heads]; None computes those of each position and head, the largest
            magnitude divided by that of `dtype`.
        dtype: one of LARGEST.
        blocks: how many scales of each position and head to compute, each of as many successive elements.

    Returns:
        The rows, and the computed scales with an extent of `blocks` in place of the depth (an empty tensor if they are
        given).

    Raises:
        ValueError: a scale, or an element that is no padding, is not finite; it names the sequence. Tensors in the
            memory of a GPU are not read.
    """
    if scale is not None and not isinstance(scale, torch.Tensor):
        scale = torch.full((1,), float(scale), device=x.device)
    if is_compiling():
        quantize: Callable[..., tuple[torch.Tensor, torch.Tensor]] = torch.ops.saccade.quantize_rows
        return quantize(x, count, scale, dtype, blocks, layout, function, name)
    return _quantize(x, count, scale, dtype, blocks, layout, function, name)


def check_scale(function: str, name: str, scale: torch.Tensor) -> None:
    """Checks a number, or the scales of heads. Those in the memory of a GPU are not read."""
    if not scale.is_cpu:
        return
    wrong = ~(torch.isfinite(scale) & (scale > 0))
    if wrong.any():
        place = f" of head {int(wrong.int().argmax())}" if scale.numel() > 1 else ""
        raise ValueError(f"{function}: {name}{place} is {scale[wrong][0].item()}, expected a positive number")


def _quantize(x: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None, dtype: torch.dtype, blocks: int,
              layout: str, function: str, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    if scale is not None:
        check_scale(function, f"{name}_scale", scale)
        heads = x.shape[layout.index("h")]
        if scale.numel() not in (1, heads):
            raise ValueError(f"{function}: {name}_scale has {scale.numel()} elements, expected {heads}, one for each "
                             "head")  # fmt: skip
    sequence = layout.index("s")
    largest = _largest(x, blocks)
    if not x.is_cpu:
        return _rounded(x, scale, largest, dtype, layout)
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
    return _rounded(x, scale, largest, dtype, layout)


def unchecked(x: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None, dtype: torch.dtype, blocks: int,
              layout: str, function: str, name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The operator in terms of others, without its checks, for exported programs."""
    return _rounded(x, scale, _largest(x, blocks), dtype, layout)


def _largest(x: torch.Tensor, blocks: int) -> torch.Tensor:
    """The largest magnitudes of blocks of elements, in float32."""
    return x.unflatten(-1, (blocks, -1)).abs().amax(-1).float()


def _rounded(x: torch.Tensor, scale: torch.Tensor | None, largest: torch.Tensor, dtype: torch.dtype,
             layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    limit = LARGEST[dtype]
    if scale is None:
        computed = largest / limit
        # Not by the reciprocal, which is infinite for a scale below 2^-128.
        divisor = torch.where(computed > 0, computed, 1.0)
        rows = (x.float().unflatten(-1, (largest.shape[-1], -1)) / divisor.unsqueeze(-1)).flatten(-2)
    else:
        computed = x.new_empty(0, dtype=torch.float32)
        shape = [1] * x.dim()
        shape[layout.index("h")] = -1
        rows = x.float() / scale.view(shape)
    if dtype == torch.int8:
        rows = rows.round()
    return rows.clamp(-limit, limit).to(dtype), computed


def _fake(x: torch.Tensor, count: Any, scale: Any, dtype: torch.dtype, blocks: int, layout: str, function: str,
          name: str) -> Any:
    rows = x.new_empty(x.shape, dtype=dtype)
    if scale is not None:
        return rows, x.new_empty(0, dtype=torch.float32)
    return rows, x.new_empty((*x.shape[:-1], blocks), dtype=torch.float32)


torch.library.define("saccade::quantize_rows", "(Tensor x, Tensor? count, Tensor? scale, ScalarType dtype, int blocks, "
                     "str layout, str function, str name) -> (Tensor, Tensor)",
                     tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
torch.library.impl("saccade::quantize_rows", "CompositeExplicitAutograd", _quantize)
torch.library.register_fake("saccade::quantize_rows", _fake)
