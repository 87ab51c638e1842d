"""The PyTorch operators `saccade::attention`: calls of compiled attention in graphs of torch.compile and torch.export.

An operator takes the program as text, so a graph means the same in every process: it may be saved, cached by Inductor
or packaged by AOTInductor. The kernel compiles the text at its first call (lib/CAPI/TorchOperators.cpp).
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from saccade import _operands
from saccade._library import context, library, raise_error

ARGUMENTS = ("(Tensor q, Tensor k, Tensor v, Tensor[] tensors, SymInt[] integers, float[] floats, str program, "
             'str layout="bhsd", str target="host")')
# Results by overload: the output, then the log-sum-exp, or the row maximum and its key, or all three.
_RESULTS = {"": "Tensor", "lse": "(Tensor, Tensor)", "max": "(Tensor, Tensor, Tensor)",
            "lse_max": "(Tensor, Tensor, Tensor, Tensor)"}  # fmt: skip
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)


def overload(return_lse: bool, return_max: bool) -> Any:
    """The operator with these results.

    Its arguments are q, k, v; then the other tensors, integers and floats of the program, each in their order; then the
    program as `saccade.compile` takes it, the layout of q, k and v, and the target, where "host" also stands for the
    GPU of q. It returns new tensors: the output has the strides of q if the head dimensions are equal. Gradients
    (gradients.py) are those of the output and the log-sum-exp; the row maximum has none.
    """
    packet = torch.ops.saccade.attention
    if return_lse:
        return packet.lse_max if return_max else packet.lse
    return packet.max if return_max else packet.default


def empty_results(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, layout: str, has_lse: bool, has_max: bool) -> Any:
    """The results without their elements."""
    _operands.check_layout(layout, False)
    _operands.check_shapes(q, k, v, layout, None, None, None, None, None)
    axis = layout.index("d")
    if v.shape[axis] == q.shape[axis]:
        output = torch.empty_like(q)
    else:
        output = q.new_empty((*q.shape[:axis], v.shape[axis], *q.shape[axis + 1:]))
    if not has_lse and not has_max:
        return output
    rows = [q.shape[layout.index(dimension)] for dimension in "bhs" if dimension in layout]
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    results: tuple[torch.Tensor, ...] = (output,)
    if has_lse:
        results += (q.new_empty(rows, dtype=precision),)
    if has_max:
        results += (q.new_empty(rows, dtype=precision), q.new_empty(rows, dtype=torch.int64))
    return results


def _register() -> None:
    for name, results in _RESULTS.items():
        qualified = "saccade::attention" + ("." + name if name else "")
        torch.library.define(qualified, f"{ARGUMENTS} -> {results}", tags=TAGS)
        fake = functools.partial(_fake_of, "lse" in name, "max" in name)
        torch.library.register_fake(qualified, fake)
    if error := library().saccade_torch_register(context()):
        raise_error(error)


def _fake_of(has_lse: bool, has_max: bool, q: Any, k: Any, v: Any, tensors: Any, integers: Any, floats: Any,
             program: str, layout: str = "bhsd", target: str = "host") -> Any:
    return empty_results(q, k, v, layout, has_lse, has_max)


_register()
