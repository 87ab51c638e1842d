"""Rows of int8 for quantized caches."""

from __future__ import annotations

from typing import Any

import torch

from saccade._opaque import is_compiling

_LARGEST = 127


def quantize_rows(function: str, name: str, x: torch.Tensor, count: torch.Tensor | None, scale: Any,
                  layout: str) -> tuple[torch.Tensor, torch.Tensor]:
    """x / scale rounded to int8, and the scales.

    Args:
        function, name: of the caller and of x, for messages.
        x: new keys or values with the dimensions of `layout`.
        count: [batch], the rows of each sequence that are no padding; None for all.
        scale: a number, or a float32 tensor [KV heads]; None computes one for each position and head, the largest
            magnitude divided by 127.

    Returns:
        The rows, and the computed scales with an extent of 1 in place of the depth (an empty tensor if they are given).

    Raises:
        ValueError: a scale, or an element that is no padding, is not finite; it names the sequence.
    """
    if scale is not None and not isinstance(scale, torch.Tensor):
        scale = torch.full((1,), float(scale))
    if is_compiling():
        return torch.ops.saccade.quantize_rows(x, count, scale, layout, function, name)  # type: ignore[no-any-return]
    return _quantize(x, count, scale, layout, function, name)


def check_scale(function: str, name: str, scale: torch.Tensor) -> None:
    """Checks a number, or the scales of heads."""
    wrong = ~(torch.isfinite(scale) & (scale > 0))
    if wrong.any():
        place = f" of head {int(wrong.int().argmax())}" if scale.numel() > 1 else ""
        raise ValueError(f"{function}: {name}{place} is {scale[wrong][0].item()}, expected a positive number")


def _quantize(x: torch.Tensor, count: torch.Tensor | None, scale: torch.Tensor | None, layout: str, function: str,
              name: str) -> tuple[torch.Tensor, torch.Tensor]:
    if scale is not None:
        check_scale(function, f"{name}_scale", scale)
        heads = x.shape[layout.index("h")]
        if scale.numel() not in (1, heads):
            raise ValueError(f"{function}: {name}_scale has {scale.numel()} elements, expected {heads}, one for each "
                             "head")  # fmt: skip
    axis, sequence = layout.index("d"), layout.index("s")
    largest = x.abs().amax(axis, keepdim=True).float()
    wrong = ~torch.isfinite(largest)
    if wrong.any():
        if count is not None:
            shape = [1] * x.dim()
            shape[sequence] = -1
            wrong &= torch.arange(x.shape[sequence]).view(shape) < count.view(-1, *[1] * (x.dim() - 1))
        if wrong.any():
            first = wrong.nonzero()[0].tolist()
            raise ValueError(f"{function}: the scale of {name} is {largest[wrong][0].item()} in row {first[sequence]}, "
                             f"expected a finite number, in sequence {first[0]}")
    if scale is None:
        computed = largest / _LARGEST
        factor = torch.where(computed > 0, 1 / computed, 0.0)
    else:
        computed = x.new_empty(0, dtype=torch.float32)
        shape = [1] * x.dim()
        shape[layout.index("h")] = -1
        factor = 1 / scale.view(shape)
    return (x.float() * factor).round_().clamp_(-_LARGEST, _LARGEST).to(torch.int8), computed


def _fake(x: torch.Tensor, count: Any, scale: Any, layout: str, function: str, name: str) -> Any:
    rows = x.new_empty(x.shape, dtype=torch.int8)
    if scale is not None:
        return rows, x.new_empty(0, dtype=torch.float32)
    shape = list(x.shape)
    shape[layout.index("d")] = 1
    return rows, x.new_empty(shape, dtype=torch.float32)


torch.library.define("saccade::quantize_rows", "(Tensor x, Tensor? count, Tensor? scale, str layout, str function, "
                     "str name) -> (Tensor, Tensor)", tags=(torch.Tag.pt2_compliant_tag,))  # fmt: skip
torch.library.impl("saccade::quantize_rows", "CPU", _quantize)
torch.library.register_fake("saccade::quantize_rows", _fake)
