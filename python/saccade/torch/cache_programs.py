"""Programs that append to caches, and the calls of them: a compiled function, or an operator in a graph that
torch.compile or torch.export traces."""

from __future__ import annotations

from typing import Any

import torch

from saccade import _gpu, _program, scores
from saccade._form import Form
from saccade._library import on_cache_clear
from saccade._opaque import is_compiling
from saccade.module import compile
from saccade.regions import trace
from saccade.torch import attention_operator
from saccade.torch import cache_arguments as arguments
from saccade.torch.cache_messages import translated


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def _text(is_attention: bool, fields: tuple[Any, ...]) -> tuple[str, tuple[str, ...]]:
    """The program of a Form, or without attention the one that only appends, and the names of its operands."""
    form = Form(*fields)
    if form.score is not None:
        form = form._replace(score=_program.region_text("score", trace(
            scores.soft_cap(2.0).function, "score", form.precision)))
    if is_attention:
        return _program.program(form), form.names()
    assert form.append is not None
    table = [type for name, type in form.operands() if name == "page_table"]
    text = form.append.program(_program.caches_of(form), form.layout, table[0] if table else None)
    return text, ("page_table",) * len(table)


_functions: dict[tuple[Any, ...], tuple[Any, tuple[str, ...]]] = {}
"""Compiled functions and the names of their operands by the number of the GPU, whether they attend, and form."""
on_cache_clear(_functions.clear)


def call(name: str, form: Form, queries: list[torch.Tensor], caches: list[torch.Tensor], new: list[Any],
         operands: dict[str, Any], is_updating: bool, table: str) -> Any:
    """Calls the program of a form, without queries the one that only appends. Its inputs are queries, caches, `new`,
    which are new rows, their places and the bound of a soft cap, which is the only score function, and the operands;
    scales of positions are caches, too. `table` is that of `translated`."""
    if is_compiling():
        return _call_operator(name, form, queries, caches, new, operands, is_updating)
    gpu = None if caches[0].is_cpu else _gpu.ordinal_of(caches[0])
    key = gpu, bool(queries), form
    known = _functions.get(key)
    if known is None:
        target = {} if gpu is None else {"target": f"cuda:{gpu}"}
        text, names = _text(bool(queries), form)
        module = compile(text, **target)
        known = _functions[key] = module[next(iter(module))], names
    function, names = known
    try:
        results = function(*queries, *caches, *new, *[operands[name] for name in names])
    except (TypeError, ValueError) as error:
        raise type(error)(translated(name, str(error), table)) from None
    if not queries:
        return None
    if form.lse:
        return results[:2]
    return results[0] if is_updating else results


def _call_operator(name: str, form: Form, queries: list[torch.Tensor], caches: list[torch.Tensor], new: list[Any],
                   operands: dict[str, Any], is_updating: bool) -> Any:
    if torch.is_grad_enabled():
        for what, x in zip(("q", "k_cache", "v_cache") if queries else ("k_cache", "v_cache"), [*queries, *caches]):
            arguments.check_no_gradient(name, what, x)
    program, names = _text(bool(queries), tuple(form))
    lists: dict[bool, list[torch.Tensor]] = {False: [*queries], True: []}
    values = [*new, *[operands[name] for name in names]]
    updated = [False] * len(new) + [name.endswith(("_scale", "_zero")) for name in names]
    for x, is_cache in zip([*caches, *values], [True] * len(caches) + updated):
        if isinstance(x, torch.Tensor):
            lists[is_cache and x.dim() > 2 and is_updating].append(x)
    floats = [x for x in values if isinstance(x, float)]
    integers = [x for x in values if isinstance(x, (int, torch.SymInt))]
    if not queries:
        torch.ops.saccade.append(lists[False], lists[True], program)
        return None
    if not is_updating:
        overload = attention_operator.overload(form.lse, False)
        return overload(lists[False], program, integers or None, floats, form.layout)
    packet = torch.ops.saccade.attention_update
    update = packet.lse if form.lse else packet.default
    return update(lists[False], lists[True], program, integers or None, floats, form.layout)
