"""Functions between products: views, numbers that multiply, masks, softmax and dropout."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from saccade import _places
from saccade.linting import calls, masks
from saccade.linting.facts import KEYS, OTHER, QUERIES, Facts, Scores, regrouped

if TYPE_CHECKING:
    from saccade.linting.watching import Watch

_SOFTMAX = frozenset({"softmax", "special_softmax", "log_softmax", "special_log_softmax", "_softmax", "_log_softmax"})
_SIGMOID = frozenset({"sigmoid", "special_expit"})
_KEEPING = frozenset({
    "add", "radd", "iadd", "sub", "rsub", "isub", "neg", "masked_fill", "tanh", "clamp", "dropout", "to", "type_as",
    "type", "float", "double", "half", "bfloat16", "contiguous", "clone", "nan_to_num", "where", "mul", "rmul", "imul",
    "div", "truediv", "itruediv", "exp", "relu", "gelu", "tril", "triu", "_to_copy", "alias", "detach"})  # fmt: skip
_NORMS = frozenset({"layer_norm", "rms_norm", "normalize", "group_norm"})
_RESHAPES = frozenset({"view", "reshape", "flatten", "unflatten", "view_as", "reshape_as", "_unsafe_view", "unsqueeze",
                       "squeeze"})
_REVERSED = tuple(x.__get__ for x in (torch.Tensor.T, torch.Tensor.mT, torch.Tensor.H, torch.Tensor.mH))
_FLAGS = frozenset({"eq", "ne", "logical_not", "invert", "bool", "__getitem__", "to", "unsqueeze", "view"})
_ALIASES = {"addcmul": "add", "divide": "div", "multiply": "mul", "subtract": "sub", "add_": "add"}


def name_of(function: Any) -> str:
    """The name of a function without what tells its forms apart: in place, of a tensor or a module, an overload."""
    if function in _REVERSED:
        return "mT"
    name: str = getattr(function, "__name__", "").split(".")[0]
    if name == "__getitem__":
        return name
    name = name.strip("_") if name.startswith("__") else name.rstrip("_")
    return _ALIASES.get(name, name)


def follow(watch: Watch, name: str, args: Any, kwargs: Any, result: Any) -> None:
    """Notes what the result of a function is."""
    operands = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    known = [x for x in operands if x in watch.facts]
    if not known:
        _follow_unknown(watch, name, operands, result)
        return
    source = max(known, key=lambda x: watch.facts[x].kind in ("scores", "weights"))
    facts = watch.facts[source]
    if name in _RESHAPES or name in ("transpose", "swapaxes", "swapdims", "t", "mT", "permute", "movedim", "moveaxis",
                                     "expand", "expand_as", "repeat_interleave", "__getitem__", "select", "chunk",
                                     "split", "tensor_split", "unbind", "narrow", "slice"):
        _follow_view(watch, name, args, kwargs, source, facts, result)
    elif not isinstance(result, torch.Tensor):
        return
    elif name in _SOFTMAX or name in _SIGMOID:
        _normalise(watch, name, args, kwargs, source, facts, result)
    elif name in _NORMS:
        watch.facts[result] = replace(facts, is_free=True, factor=1.0)
    elif name == "cat":
        watch.facts[result] = replace(facts, cut_from=())
    elif name in _KEEPING or name in _FLAGS:
        if facts.kind in ("scores", "weights") and facts.scores is not None:
            facts = _change(watch, name, args, kwargs, operands, source, facts)
        elif name in ("mul", "rmul", "imul", "div", "truediv", "itruediv"):
            facts = _multiplied(name, args, source, facts)
        if result.ndim == len(facts.axes):
            watch.facts[result] = facts


def _follow_unknown(watch: Watch, name: str, operands: list[torch.Tensor], result: Any) -> None:
    """Constants that are cut, and parameters that are transposed."""
    if not operands or not isinstance(result, torch.Tensor):
        return
    source = operands[0]
    if isinstance(source, torch.nn.Parameter) and result.numel() == source.numel():
        watch.facts[result] = Facts((OTHER,) * result.ndim, kind="parameter")
    elif name == "__getitem__" and source.ndim >= 2 and result.ndim >= 2 and source.shape[-1] == source.shape[-2]:
        watch.facts[result] = Facts((OTHER,) * result.ndim, cut_from=tuple(source.shape[-2:]))
    elif name in _NORMS:
        watch.facts[result] = Facts((OTHER,) * result.ndim, is_free=True)


# --- numbers that multiply --------------------------------------------------------------------------------------------


def _multiplied(name: str, args: Any, source: torch.Tensor, facts: Facts) -> Facts:
    other = next((x for x in args if x is not source), None)
    number = calls.number_of(other)
    if number is None and isinstance(other, torch.Tensor) and other.numel() == 1 and calls.is_readable(other):
        number = float(other)
    if number is None:
        return replace(facts, is_free=True)
    if "div" in name:
        return replace(facts, factor=facts.factor / number) if number and args[0] is source else facts
    return replace(facts, factor=facts.factor * number)


# --- views ------------------------------------------------------------------------------------------------------------


def _follow_view(watch: Watch, name: str, args: Any, kwargs: Any, source: torch.Tensor, facts: Facts,
                 result: Any) -> None:
    if len(facts.axes) != source.ndim or args[:1] and args[0] is not source:
        return
    results = result if isinstance(result, (tuple, list)) else (result,)
    for each in results:
        if not isinstance(each, torch.Tensor):
            continue
        made = _viewed(name, args, kwargs, source, facts, each)
        if made is None or len(made.axes) != each.ndim:
            continue
        watch.facts[each] = made
        if facts.kind == "output" and made.mixture:
            calls.add_mixture(watch.add, made.mixture)


def _viewed(name: str, args: Any, kwargs: Any, source: torch.Tensor, facts: Facts, made: torch.Tensor) -> Facts | None:
    order = list(range(source.ndim))
    rest = args[1:]
    if name in _RESHAPES:
        return regrouped(facts, tuple(source.shape), tuple(made.shape))
    if name in ("transpose", "swapaxes", "swapdims", "t", "mT"):
        swapped = (*rest, *kwargs.values())[-2:]
        first, second = swapped if len(swapped) == 2 else (-2, -1)
        if source.ndim < 2 or not isinstance(first, int) or not isinstance(second, int):
            return facts if source.ndim < 2 else None
        order[first], order[second] = order[second], order[first]
        return facts.moved(order)
    if name == "permute":
        dims = rest or tuple(kwargs.values())
        dims = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
        return facts.moved([int(i) for i in dims])
    if name in ("movedim", "moveaxis"):
        if len(rest) != 2 or not all(isinstance(x, int) for x in rest):
            return None
        order.insert(rest[1] % source.ndim, order.pop(rest[0] % source.ndim))
        return facts.moved(order)
    if name in ("unbind", "select"):
        dim = rest[0] if rest else kwargs.get("dim", 0)
        del order[dim]
        return facts.moved(order)
    if name == "__getitem__":
        return _indexed(rest[0], source, facts)
    return facts if made.ndim == source.ndim else None


def _indexed(index: Any, source: torch.Tensor, facts: Facts) -> Facts | None:
    parts = list(index) if isinstance(index, tuple) else [index]
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in parts):
        return None
    missing = source.ndim - sum(part is not None and part is not Ellipsis for part in parts)
    if Ellipsis not in parts:
        parts.append(Ellipsis)
    axes: list[str] = []
    at = 0
    for part in parts:
        if part is None:
            axes.append(OTHER)
        elif part is Ellipsis:
            axes += facts.axes[at:at + missing]
            at += missing
        else:
            axes += [facts.axes[at]] if isinstance(part, slice) else []
            at += 1
    return replace(facts, axes=tuple(axes))


# --- scores and weights -----------------------------------------------------------------------------------------------


def _normalise(watch: Watch, name: str, args: Any, kwargs: Any, source: torch.Tensor, facts: Facts,
               result: torch.Tensor) -> None:
    scores = facts.scores
    if scores is None or facts.kind != "scores" or len(facts.axes) != source.ndim:
        return
    scores = _branch(scores, facts)
    scores.normalizer = "sigmoid" if name in _SIGMOID else "softmax"
    dim = kwargs.get("dim", args[1] if len(args) > 1 else None)
    if name in _SOFTMAX and isinstance(dim, int):
        scores.normalised = facts.axes[dim]
    if scores.is_masked and calls.is_readable(source) and isinstance(dim, int):
        scores.has_empty_row = bool((source == float("-inf")).all(dim).any())
    watch.facts[result] = replace(facts, kind="weights", scores=scores)


def _branch(scores: Scores, facts: Facts) -> Scores:
    """The scores of weights that are made here. Others may be made of the same product."""
    return replace(scores, at=_places.of_call(), factors=(scores.factors[0], facts.factor),
                   pending=list(scores.pending))  # fmt: skip


def _change(watch: Watch, name: str, args: Any, kwargs: Any, operands: list[torch.Tensor], source: torch.Tensor,
            facts: Facts) -> Facts:
    """A change of scores or weights."""
    scores = facts.scores
    assert scores is not None
    is_scores = facts.kind == "scores"
    others = [x for x in operands if x is not source and x.numel() > 1]
    if name in ("mul", "rmul", "imul", "div", "truediv", "itruediv"):
        if is_scores:
            facts = _multiplied(name, args, source, facts)
            scores.is_free = scores.is_free or facts.is_free
        elif others and "mul" in name and _is_zero_or_one(others[0]):
            scores.is_masked_late = True
        elif others:
            scores.normalised = None
    elif name == "masked_fill":
        _fill(watch, args, kwargs, source, facts)
    elif name == "where":
        _choose(watch, args, source, facts)
    elif name in ("tril", "triu") and not is_scores:
        scores.is_masked_late = True
    elif is_scores and others and name in ("add", "radd", "iadd", "sub", "isub"):
        _add(watch, "sub" in name, others[0], source, facts)
    elif is_scores and name == "exp":
        scores = _branch(scores, facts)
        scores.normalizer = "exp"
        facts = replace(facts, kind="weights", scores=scores)
    elif name == "dropout" and not is_scores:
        given = {**dict(zip(("input", "p", "training"), args)), **kwargs}
        if given.get("p", 0.5) and given.get("training", kwargs.get("train", True)):
            calls.check_dropout(watch.add, "F.dropout(weights, p, training=self.training)")
    return facts


def _is_zero_or_one(tensor: torch.Tensor) -> bool:
    return calls.is_readable(tensor) and bool(((tensor == 0) | (tensor == 1)).all()) and not bool(tensor.all())


def _fill(watch: Watch, args: Any, kwargs: Any, source: torch.Tensor, facts: Facts) -> None:
    given = {**dict(zip(("input", "mask", "value"), args)), **kwargs}
    number = calls.number_of(given["value"])
    assert facts.scores is not None
    if facts.kind == "weights":
        facts.scores.is_masked_late = facts.scores.is_masked_late or number == 0
    elif number is not None and number <= masks.SENTINEL and given["mask"].dtype == torch.bool:
        _hide(watch, given["mask"], number, source, facts)


def _choose(watch: Watch, args: Any, source: torch.Tensor, facts: Facts) -> None:
    if len(args) != 3 or args[0].dtype != torch.bool:
        return
    condition, first, second = args
    number = calls.number_of(second if first is source else first)
    assert facts.scores is not None
    if facts.kind == "weights":
        facts.scores.is_masked_late = facts.scores.is_masked_late or number == 0
    elif number is not None and number <= masks.SENTINEL:
        _hide(watch, ~condition if first is source else condition, number, source, facts)


def _extents(source: torch.Tensor, facts: Facts) -> tuple[int, int, int, int]:
    """Queries, keys, batch and heads of scores whose last axes these are; otherwise 0."""
    if facts.axes[-2:] != (QUERIES, KEYS):
        return 0, 0, 0, 0
    shape = [int(extent) for extent in source.shape]
    return shape[-2], shape[-1], shape[0] if len(shape) > 2 else 0, shape[1] if len(shape) == 4 else 0


def _hide(watch: Watch, hidden: torch.Tensor, number: float, source: torch.Tensor, facts: Facts) -> None:
    """Checks a mask that is True for hidden keys."""
    assert facts.scores is not None
    facts.scores.is_masked = True
    queries, keys, batch, heads = _extents(source, facts)
    if not queries or not calls.is_readable(hidden):
        return
    add = functools.partial(watch.add, at=_places.of_call())
    _check_cut(watch, add, hidden, facts)
    masks.check_boolean(add, ~hidden, queries, keys, batch, heads, "masked_fill(~mask, ...)")
    empty = int(hidden.expand(source.shape).all(-1).sum()) if hidden.ndim else 0
    masks.check_sentinel(add, number, empty, masks.BY_HAND)


def _check_cut(watch: Watch, add: Any, mask: torch.Tensor, facts: Facts) -> None:
    """Finds a mask that was cut from a square as large as the head."""
    known = watch.facts.get(mask)
    size = facts.scores.head_size if facts.scores is not None else 0
    if known is not None and known.cut_from == (size, size) != tuple(mask.shape[-2:]) and size not in watch.tables:
        calls.add_mask_size(add, size)


def _add(watch: Watch, is_difference: bool, other: torch.Tensor, source: torch.Tensor, facts: Facts) -> None:
    scores, known = facts.scores, watch.facts.get(other)
    assert scores is not None
    if other.shape[-1] == 1 and is_difference:
        scores.is_shifted = True
        return
    if known is not None and known.kind == "scores" or isinstance(other, torch.nn.Parameter):
        scores.has_bias = True
        return
    queries, keys, batch, heads = _extents(source, facts)
    if not queries or not calls.is_readable(other) or not other.is_floating_point():
        scores.has_bias = True
        return
    at = _places.of_call()

    def add(*finding: str) -> None:
        scores.pending.append((*finding, at))

    _check_cut(watch, add, other, facts)
    is_mask, has_bias = masks.check_added(add, -other if is_difference else other, queries, keys, batch, heads,
                                          masks.BY_HAND)
    scores.is_masked, scores.has_bias = scores.is_masked or is_mask, scores.has_bias or has_bias


def check_failure(watch: Watch, name: str, args: Any, kwargs: Any) -> None:
    """Finds the mask whose side is the head size in a call that PyTorch refuses."""
    operands = [x for x in (*args, *kwargs.values()) if isinstance(x, torch.Tensor)]
    source = next((x for x in operands if x in watch.facts and watch.facts[x].kind == "scores"), None)
    if source is None or name not in ("masked_fill", "where", "add", "iadd", "radd"):
        return
    scores = watch.facts[source].scores
    size = 0 if scores is None else scores.head_size
    if any(x.shape[-2:] == (size, size) for x in operands if x is not source):
        calls.add_mask_size(watch.add, size)
