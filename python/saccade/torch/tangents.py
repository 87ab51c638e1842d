"""Tangents of the operators `saccade::attention`, for PyTorch's forward mode.

The program of an operator call is compiled with the attribute `attn.jvp`, which adds the function `attention_jvp`. The
operator `saccade::attention_jvp` calls it: it returns the results and their tangents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad

from saccade import _program
from saccade.torch.attention_operator import ARGUMENTS, TAGS, empty_results
from saccade.torch.differentiated import call_compiled, differentiated
from saccade.torch.fallback import requires_grad


def push(call: Callable[..., Any], has_lse: bool, has_max: bool, tensors: list[torch.Tensor], program: str,
         *options: Any) -> Any:
    """The results of an operator call with tangents. `call` is the call for tensors without tangents."""
    if has_max:
        raise NotImplementedError("saccade::attention: the row maximum has no tangent: call the operator that returns "
                                  "it on detached tensors")
    if _program.is_differentiated(program):  # the tangents of a call whose gradients are recorded
        raise NotImplementedError("saccade.attention: second derivatives are not supported")
    duals = [forward_ad.unpack_dual(x) for x in tensors]
    primals = [dual.primal for dual in duals]
    given = [dual.tangent for dual in duals if dual.tangent is not None]
    needs = tuple([dual.tangent is not None for dual in duals])
    results = torch.ops.saccade.attention_jvp(given, has_lse, primals, differentiated(program, needs, "attn.jvp"),
                                              *options)
    count = len(results) // 2
    values = results[:count]
    if requires_grad(*primals):  # gradients are recorded of the results, but not of their tangents
        found = call(primals, program, *options)
        values = found if has_lse else [found]
    made = tuple([forward_ad.make_dual(*pair) for pair in zip(values, results[count:])])
    return made if has_lse else made[0]


def _compute(tangents: list[torch.Tensor], has_lse: bool, tensors: list[torch.Tensor], program: str,
             integers: list[int] | None = None, floats: list[float] | None = None, layout: str = "bhsd",
             target: str = "host") -> list[torch.Tensor]:
    """The kernel for memory of a CPU or a GPU."""
    return call_compiled("attention_jvp", "attention_jvp", program, target, tensors, (integers, floats),
                         [x.resolve_neg() for x in tangents], _empty_results(tensors, layout, has_lse))


def _empty_results(tensors: Any, layout: str, has_lse: bool) -> list[Any]:
    """Memory for the results and for their tangents."""
    made: list[Any] = []
    for _ in range(2):
        found = empty_results(tensors, layout, has_lse, False)
        made += found if has_lse else [found]
    return made


def _fake(tangents: Any, has_lse: bool, tensors: Any, program: str, integers: Any = None, floats: Any = (),
          layout: str = "bhsd", target: str = "host") -> Any:
    return _empty_results(tensors, layout, has_lse)


def register(library: torch.library.Library) -> None:
    """Registers the operator, apart from its kernel for autograd."""
    library.define(f"attention_jvp(Tensor[] tangents, bool has_lse, {ARGUMENTS}) -> Tensor[]", tags=TAGS)
    for key in ("CPU", "CUDA"):
        library.impl("attention_jvp", _compute, key)
    torch.library.register_fake("saccade::attention_jvp", _fake, lib=library)
