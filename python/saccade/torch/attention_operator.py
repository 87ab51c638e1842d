"""The PyTorch operators `saccade::attention`: calls of compiled attention in graphs of torch.compile and torch.export.

An operator takes the program as text, so a graph means the same in every process: it may be saved, cached by Inductor
or packaged by AOTInductor. The kernel compiles the text at its first call (lib/CAPI/TorchOperators.cpp).

`saccade::attention_forward` has the same kernel and records no gradients. Graphs that AOTAutograd has separated into
forward and backward contain it: a call of `saccade::attention` runs Python code first, to record gradients.

`saccade::attention_update` and `saccade::append` update caches of keys and values in place (serving.py). Their programs
have arguments that are updated by results, and the list `caches` has these in the order of the program.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch

from saccade import _operands
from saccade._cache_text import CODES_OF_WORD
from saccade._library import context, library, raise_error

# No list of tensors is empty, and integers may be None: packages of AOTInductor turn empty lists of these into None.
ARGUMENTS = ('Tensor[] tensors, str program, SymInt[]? integers=None, float[] floats=[], str layout="bhsd", '
             'str target="host"')
_UPDATE = ARGUMENTS.replace("Tensor[] tensors,", "Tensor[] tensors, Tensor(a!)[] caches,")
# Results by overload: the output, then the log-sum-exp, or the row maximum and its key, or all three. A program that is
# differentiated has what the rounding of the log-sum-exp took as well.
_RESULTS = {"": "Tensor", "lse": "(Tensor, Tensor)", "lse_low": "(Tensor, Tensor, Tensor)",
            "max": "(Tensor, Tensor, Tensor)", "lse_max": "(Tensor, Tensor, Tensor, Tensor)"}  # fmt: skip
TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_exact_strides)


def overload(return_lse: bool, return_max: bool, *, is_recorded: bool = True) -> Any:
    """The operator with these results, `saccade::attention` if gradients are recorded.

    Its arguments are the tensors of the program (q, k and v are the first); the program as `saccade.compile` takes it;
    the integers and the floats of the program, each in their order; the layout of q, k and v, and the target, where
    "host" also stands for the GPU of q. It returns new tensors: the output has the strides of q if the head dimensions
    are equal. Gradients (gradients.py) are those of the output and the log-sum-exp; the row maximum has none.
    """
    packet = torch.ops.saccade.attention if is_recorded else torch.ops.saccade.attention_forward
    if return_lse:
        return packet.lse_max if return_max else packet.lse
    return packet.max if return_max else packet.default


def differentiated_overload(is_recorded: bool) -> Any:
    """The operator of programs that are differentiated, which returns the output, the log-sum-exp and its low part."""
    return (torch.ops.saccade.attention if is_recorded else torch.ops.saccade.attention_forward).lse_low


def empty_results(tensors: list[torch.Tensor], layout: str, has_lse: bool, has_max: bool, has_low: bool = False) -> Any:
    """The results without their elements."""
    q, k, v = tensors[:3]
    _operands.check_layout(layout, False)
    _operands.check_shapes(q, k, v, layout)
    return _empty(q, v.shape[layout.index("d")], layout, has_lse, has_max, has_low)


def _empty(q: torch.Tensor, head_dim_v: int, layout: str, has_lse: bool = False, has_max: bool = False,
           has_low: bool = False) -> Any:
    axis = layout.index("d")
    if head_dim_v == q.shape[axis]:
        output = torch.empty_like(q)
    else:
        output = q.new_empty((*q.shape[:axis], head_dim_v, *q.shape[axis + 1:]))
    if not has_lse and not has_max:
        return output
    rows = [q.shape[layout.index(dimension)] for dimension in "bhs" if dimension in layout]
    precision = torch.float64 if q.dtype == torch.float64 else torch.float32
    dtypes = [precision] * (has_lse + has_low + has_max) + [torch.int64] * has_max
    return output, *[q.new_empty(rows, dtype=dtype) for dtype in dtypes]


def _depth_of(cache: torch.Tensor) -> int:
    """The head dimension of values, which is the last one; words have several codes."""
    depth: int = cache.shape[-1]
    return depth * CODES_OF_WORD if cache.dtype == torch.int32 else depth


def _register() -> None:
    for operator, (name, results) in itertools.product(("attention", "attention_forward"), _RESULTS.items()):
        qualified = f"saccade::{operator}" + ("." + name if name else "")
        torch.library.define(qualified, f"({ARGUMENTS}) -> {results}", tags=TAGS)
        fake = functools.partial(_fake_of, "lse" in name, "max" in name, "low" in name)
        torch.library.register_fake(qualified, fake)
    updates: tuple[tuple[str, str, Any], ...] = (("attention_update", "Tensor", _fake_update),
                                                 ("attention_update.lse", "(Tensor, Tensor)", _fake_update_lse),
                                                 ("append", "()", _fake_append))  # fmt: skip
    for name, results, compute in updates:
        torch.library.define(f"saccade::{name}", f"({_UPDATE}) -> {results}", tags=TAGS)
        torch.library.register_fake(f"saccade::{name}", compute)
    if error := library().saccade_torch_register(context()):
        raise_error(error)


def _fake_of(has_lse: bool, has_max: bool, has_low: bool, tensors: Any, program: str, integers: Any = None,
             floats: Any = (), layout: str = "bhsd", target: str = "host") -> Any:
    header = program.partition("\n")[0]
    if "%page_table:" in header or "%k_scale:" in header:  # caches, as those of `_fake_update`
        return _empty(tensors[0], _depth_of(tensors[2]), layout, has_lse, has_max, has_low)
    return empty_results(tensors, layout, has_lse, has_max, has_low)


def _fake_update(tensors: Any, caches: Any, program: str, integers: Any = None, floats: Any = (), layout: str = "bhsd",
                 target: str = "host") -> torch.Tensor:
    """The output; the first two caches are those of keys and values, in which the head dimension is the last one."""
    return _empty(tensors[0], _depth_of(caches[1]), layout)


def _fake_update_lse(tensors: Any, caches: Any, program: str, integers: Any = None, floats: Any = (),
                     layout: str = "bhsd", target: str = "host") -> tuple[torch.Tensor, torch.Tensor]:
    return _empty(tensors[0], _depth_of(caches[1]), layout, True)  # type: ignore[no-any-return]


def _fake_append(tensors: Any, caches: Any, program: str, integers: Any = None, floats: Any = (), layout: str = "bhsd",
                 target: str = "host") -> None:
    return None


_register()
