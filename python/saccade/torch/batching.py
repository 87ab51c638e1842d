"""The operators `saccade::attention` under `torch.vmap`: the mapped dimension becomes a part of the batch where it can,
otherwise one call after another.

PyTorch computes batched gradients (`torch.autograd.grad(is_grads_batched=True)`, vectorized Jacobians, gradcheck) with
an older vmap, whose tensors have the dispatch key Batched. The same rules serve both.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from saccade.torch.attention_operator import differentiated_overload, overload
from saccade.torch.differentiated import places

_FUNCTION = re.compile(r"%b\b")
_REGION = re.compile(r"(?:score|mask|weight|normalizer)\([^)]*%b\b[^)]*\) \{")


def attention_rule(operator: Any, info: Any, in_dims: Any, tensors: Any, program: str, integers: Any = None,
                   floats: Any = (), layout: str = "bhsd", target: str = "host") -> Any:
    """The rule of a forward operator."""
    rest = program, integers, floats, layout, target
    dims = in_dims[0]
    if any(dim is not None for dim in dims[3:]) or not _is_joinable(program, layout):
        return _loop(info, operator, (tensors,), (dims,), rest)
    joined = [_join(x, dim, info.batch_size, layout.index("b")) for x, dim in zip(tensors[:3], dims)]
    results = operator([*joined, *tensors[3:]], *rest)
    axes = [layout.index("b"), *[0] * 3]  # rows are [b, h, s]
    if isinstance(results, torch.Tensor):
        return results.unflatten(axes[0], (info.batch_size, -1)), axes[0]
    split = tuple([x.unflatten(axis, (info.batch_size, -1)) for x, axis in zip(results, axes)])
    return split, tuple(axes[: len(split)])


def backward_rule(operator: Any, info: Any, in_dims: Any, output_gradient: Any, lse_gradient: Any, output: Any,
                  lse: Any, lse_low: Any, tensors: Any, *rest: Any) -> Any:
    """The rule of the backward operator. Gradients of captured tensors are sums over a batch, so only one call after
    another gives those of each mapped one."""
    return _loop(info, operator, (output_gradient, lse_gradient, output, lse, lse_low, tensors), in_dims[:6], rest)


def jvp_rule(operator: Any, info: Any, in_dims: Any, tangents: Any, has_lse: Any, tensors: Any, program: str,
             integers: Any = None, floats: Any = (), layout: str = "bhsd", target: str = "host") -> Any:
    """The rule of the operator for tangents. Values are not mapped if only tangents are."""
    rest = program, integers, floats, layout, target
    owners = places(program)
    is_of_others = any(dim is not None and owner > 2 for dim, owner in zip(in_dims[0], owners))
    if any(dim is not None for dim in in_dims[2][3:]) or is_of_others or not _is_joinable(program, layout):
        def call(tangents: Any, tensors: Any) -> Any:
            return operator(tangents, has_lse, tensors, *rest)

        results, axes = _loop(info, call, (tangents, tensors), (in_dims[0], in_dims[2]), ())
        return _without_mapped_values(results, axes, in_dims[2])
    axis = layout.index("b")
    joined = [_join(x, dim, info.batch_size, axis) for x, dim in zip(tensors[:3], in_dims[2])]
    pushed = [_join(x, dim, info.batch_size, axis) if owner < 3 else x
              for x, dim, owner in zip(tangents, in_dims[0], owners)]
    results = operator(pushed, has_lse, [*joined, *tensors[3:]], *rest)
    axes = [axis, 0] * 2 if has_lse else [axis] * 2  # rows are [b, h, s]
    results = [x.unflatten(at, (info.batch_size, -1)) for x, at in zip(results, axes)]
    return _without_mapped_values(results, axes, in_dims[2])


def _without_mapped_values(results: list[torch.Tensor], axes: list[int], dims: Any) -> tuple[Any, Any]:
    """Values and tangents, and their mapped dimensions: values have none if none of their operands has one in `dims`.
    Forward mode needs this: PyTorch's older vmap has no rule for the alias of a mapped value."""
    if any(dim is not None for dim in dims):
        return results, axes
    count = len(results) // 2
    values = [x.select(axis, 0) for x, axis in zip(results[:count], axes)]
    return [*values, *results[count:]], [*[None] * count, *axes[count:]]


def _is_joinable(program: str, layout: str) -> bool:
    """Whether a mapped dimension can be joined with the batch: no function and no dropout reads the index of the batch,
    and no length belongs to it."""
    reads = len(_FUNCTION.findall(program)) - len(_REGION.findall(program))
    return "b" in layout and not reads and "kv_len(%kv_len : tensor" not in program and " dropout(" not in program


def _join(x: torch.Tensor, dim: int | None, size: int, axis: int) -> torch.Tensor:
    x = x.unsqueeze(axis).expand(*x.shape[:axis], size, *x.shape[axis:]) if dim is None else x.movedim(dim, axis)
    return x.flatten(axis, axis + 1)


def _loop(info: Any, call: Callable[..., Any], tensors: tuple[Any, ...], in_dims: tuple[Any, ...],
          rest: tuple[Any, ...]) -> Any:
    def select(x: Any, dim: Any, i: int) -> Any:
        if isinstance(x, (list, tuple)):
            return [select(each, each_dim, i) for each, each_dim in zip(x, dim)]
        return x if dim is None else x.select(dim, i)

    results = [call(*[select(x, dim, i) for x, dim in zip(tensors, in_dims)], *rest) for i in range(info.batch_size)]
    if isinstance(results[0], torch.Tensor):
        return torch.stack(results), 0
    stacked = [torch.stack(parts) for parts in zip(*results)]
    return type(results[0])(stacked), type(results[0])([0] * len(stacked))


def _older(operator: Any, rule: Callable[..., Any], *arguments: Any) -> Any:
    """The kernel of an operator for tensors of the older vmap: the innermost level goes by the rule, whose calls come
    here again if there are further levels."""
    innermost: int = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    leaves, structure = tree_flatten(arguments)
    for level in range(innermost, 0, -1):
        # The first dimension is the mapped one; tensors without one get an empty dimension.
        mapped = [torch._remove_batch_dim(x, level, 0, 0) if isinstance(x, torch.Tensor) else None for x in leaves]
        dims = [None if x is None or not x.shape[0] else 0 for x in mapped]
        sizes = [x.shape[0] for x, dim in zip(mapped, dims) if x is not None and dim is not None]
        if sizes:
            inner = [x if dim is None else given for x, dim, given in zip(leaves, dims, mapped)]
            in_dims = tree_unflatten(dims, structure)
            results, out_dims = rule(operator, SimpleNamespace(batch_size=sizes[0]), in_dims,
                                     *tree_unflatten(inner, structure))
            if isinstance(results, torch.Tensor):
                return torch._add_batch_dim(results, out_dims, level)
            return type(results)([x if dim is None else torch._add_batch_dim(x, dim, level)
                                  for x, dim in zip(results, out_dims)])
    raise RuntimeError(f"{operator}: the mapped tensors belong to no active level of vmap")


def register(library: torch.library.Library) -> None:
    """Registers the rules of all operators."""
    rules: list[tuple[Any, Callable[..., Any]]] = [
        (overload(*flags[:2], is_recorded=flags[2]), attention_rule)
        for flags in itertools.product((False, True), repeat=3)]
    rules += [(differentiated_overload(is_recorded), attention_rule) for is_recorded in (False, True)]
    rules += [(torch.ops.saccade.attention_backward.default, backward_rule),
              (torch.ops.saccade.attention_jvp.default, jvp_rule)]
    for operator, rule in rules:
        torch.library.register_vmap(operator, functools.partial(rule, operator), lib=library)
        library.impl(operator, functools.partial(_older, operator, rule), "Batched")
