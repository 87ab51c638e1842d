"""Programs that append to caches, and the calls of them: a compiled function, or an operator in a graph that
torch.compile or torch.export traces."""

from __future__ import annotations

import functools
from typing import Any, TypeAlias

import torch

from saccade import _gpu, _program, scores
from saccade._cache_text import STORED, Append, Rotation, is_cached, scale_type
from saccade._library import on_cache_clear
from saccade._opaque import is_compiling
from saccade.module import compile
from saccade.regions import trace
from saccade.torch import attention_operator
from saccade.torch import cache_arguments as arguments
from saccade.torch.cache_messages import translated

_Scales: TypeAlias = tuple[tuple[str, str | int], tuple[str, str | int]]
"""The element types of keys and values, and the kinds of their scales."""
_Append: TypeAlias = tuple[str, bool, int | None, bool]
"""The arguments of `_cache_text.Append`. Dynamo takes only tuples as constants."""


@functools.lru_cache(maxsize=256)
def _attention_text(element: str, head_dim: int, head_dim_v: int, layout: str, causal: str | None, sides: str,
                    has_scale: bool, kv_len: str | None, pages: str | None, scales: _Scales | None, lse: bool,
                    append: _Append | None, tree: bool, rotation: tuple[int, bool, str] | None,
                    ragged: str | None, has_cap: bool) -> str:
    score = trace(scores.soft_cap(2.0).function, "score", "f64" if element == "f64" else "f32") if has_cap else None
    return _program.program(_program.Spec(
        element=element, head_dim=head_dim, head_dim_v=head_dim_v, layout=layout, causal=causal, left="l" in sides,
        right="r" in sides, scale=has_scale, kv_len=kv_len, pages=pages,
        scales=scales, lse=lse, append=Append(*append) if append else None, tree=tree,
        rotation=Rotation(*rotation) if rotation else None, ragged=(ragged, None) if ragged else None,
        score=score))  # fmt: skip


@functools.lru_cache(maxsize=256)
def _append_text(element: str, head_dim: int, head_dim_v: int, layout: str, pages: str | None,
                 scales: _Scales | None, append: _Append) -> str:
    elements = [STORED[stored][0] for stored, _ in scales] if scales else [element, element]
    shapes = ["".join(f"{extent}x" if dim == "d" else "?x" for dim in layout) for extent in (head_dim, head_dim_v)]
    caches = [(name, f"tensor<{shape}{own}>") for name, shape, own in zip("kv", shapes, elements)]
    caches += [(f"{name}_scale", scale_type(kind, layout)) for name, (_, kind) in zip("kv", scales or ())
               if is_cached(kind)]  # fmt: skip
    return Append(*append).program(caches, layout, f"tensor<?x?x{pages}>" if pages else None)


_functions: dict[tuple[Any, ...], Any] = {}  # compiled functions by target and spec
on_cache_clear(_functions.clear)


def call(name: str, spec: tuple[Any, ...], queries: list[torch.Tensor], caches: list[torch.Tensor], inputs: list[Any],
         scales: list[Any], is_updating: bool, table: str) -> Any:
    """Calls the program of `spec`, those of `_attention_text`, or without queries of `_append_text`. Its inputs are
    queries, caches, `inputs`, and `scales`, with the tables of rotations; those with more than two dimensions, the
    scales of positions, are caches, too. `table` is that of `translated`."""
    updated = [True] * len(caches) + [False] * len(inputs)
    updated += [isinstance(scale, torch.Tensor) and scale.dim() > 2 for scale in scales]
    if is_compiling():
        if torch.is_grad_enabled():
            for what, x in zip(("q", "k_cache", "v_cache") if queries else ("k_cache", "v_cache"), [*queries, *caches]):
                arguments.check_no_gradient(name, what, x)
        lists: dict[bool, list[torch.Tensor]] = {False: [*queries], True: []}
        for x, is_updated in zip([*caches, *inputs, *scales], updated):
            if isinstance(x, torch.Tensor):
                lists[is_updated and is_updating].append(x)
        floats = [x for x in [*inputs, *scales] if isinstance(x, float)]
        integers = [x for x in inputs if isinstance(x, (int, torch.SymInt))]
        program = _constant_text(bool(queries), spec)
        if not queries:
            torch.ops.saccade.append(lists[False], lists[True], program)
            return None
        if not is_updating:
            overload = attention_operator.overload(spec[10], False)
            return overload(lists[False], program, integers or None, floats, spec[3])
        packet = torch.ops.saccade.attention_update
        update = packet.lse if spec[10] else packet.default
        return update(lists[False], lists[True], program, integers or None, floats, spec[3])
    gpu = None if caches[0].is_cpu else _gpu.ordinal_of(caches[0])
    key = gpu, spec
    function = _functions.get(key)
    if function is None:
        target = {} if gpu is None else {"target": f"cuda:{gpu}"}
        module = compile(_text(bool(queries), spec), **target)
        function = _functions[key] = module[next(iter(module))]
    try:
        results = function(*queries, *caches, *inputs, *scales)
    except (TypeError, ValueError) as error:
        raise type(error)(translated(name, str(error), table)) from None
    if not queries:
        return None
    if spec[10]:
        return results[:2]
    return results[0] if is_updating else results


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _constant_text(is_attention: bool, spec: tuple[Any, ...]) -> str:
    return _text(is_attention, spec)


def _text(is_attention: bool, spec: tuple[Any, ...]) -> str:
    return _attention_text(*spec) if is_attention else _append_text(*spec)
