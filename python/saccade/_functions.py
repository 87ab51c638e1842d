"""Score, mask and weight functions of `saccade.attention`: their regions, cached under fingerprints, and a warning for
functions that are compiled again and again."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from saccade import _arrays, _gpu, _operands, _program, errors
from saccade._arrays import Array
from saccade._autograd import trace
from saccade._library import on_cache_clear
from saccade.masks import Mask
from saccade.regions import Fingerprint, Region, fingerprint
from saccade.regions.traced_function import TracedFunction, variables
from saccade.scores import Score

_MAX_REGIONS = 512
_SIGNATURES = {"score": "(s, b, h, i, j) -> score", "mask": "(b, h, i, j) -> bool",
               "weight": "(p, b, h, i, j) -> weight", "normalizer": "(s, b, h, i, j) -> weight",
               "tally": "(s, b, h, i, j) -> (bin, value)"}


class _Regions(NamedTuple):
    """The regions of functions with equal fingerprints."""

    baked: tuple[int, ...]
    """The fingerprint's numbers that at least one region has as constants."""
    regions: dict[tuple[Any, ...], tuple[Region, str]]
    """By the values of these numbers: a region and its text."""


_regions: dict[tuple[Any, ...], _Regions] = {}  # by role, precision, whether q is of torch, and fingerprint
on_cache_clear(_regions.clear)


def read(role: str, function: Callable[..., Any], q: Array) -> tuple[str, tuple[Any, ...], bool]:
    """The text of `function`, as a Form has it, what it captures now, and whether all arrays of this are of torch."""
    kind = "score" if isinstance(function, Score) else "mask" if isinstance(function, Mask) else role
    if kind != role:
        raise TypeError(f"{role} is {function!r}, expected a function {_SIGNATURES[role]}: give it as {kind}")
    if not callable(function):
        raise _no_function(role, function)
    if not hasattr(q, "dtype"):
        _arrays.check_tensor("q", q)
    is_on_gpu = _gpu.ordinal_of(q) is not None
    device = "cuda" if is_on_gpu else "cpu"
    precision = "f64" if _operands.dtype_name(q) == "float64" else "f32"
    is_torch = _arrays.is_torch(q)
    region, text, captures = region_of(role, function, device, precision, is_torch)
    arrays = captures[: len(region.capture_sources)]
    check = (_gpu if is_on_gpu else _arrays).check_tensor
    try:
        are_torch = tuple([check(role, array) for array in arrays])
    except (TypeError, ValueError):
        trace(function, role, precision, device, prefers_torch=is_torch)  # reports which one it is
        if role != "mask" or not is_torch:
            raise
        with _arrays.torch_module().no_grad():  # a mask has no gradient
            are_torch = tuple([check(role, array) for array in arrays])
    return text, captures, False not in are_torch


def region_of(role: str, function: Callable[..., Any], device: str, precision: str,
              is_torch: bool) -> tuple[Region, str, tuple[Any, ...]]:
    """The region of a function, which one with an equal fingerprint may have been traced to; its text; its captures."""
    found = fingerprint(function)
    known = None if found is None else _regions.get((role, precision, is_torch, found.key))
    same = None
    if found is not None and known is not None:
        same = known.regions.get(found.values(known.baked) if known.baked else ())
    if found is not None and same is not None:
        region, text = same
        captures = region.captures_of(found.tensors, found.numbers)
    else:
        region = trace(function, role, precision, device, prefers_torch=is_torch)
        text, captures = _program.region_text(role, region), region.captures
        _note(role, function, found, text)
        if found and region.is_reusable:
            _keep((role, precision, is_torch, found.key), found, region, text)
    return region, text, captures


def _no_function(role: str, x: Any) -> TypeError:
    """The error for a score, mask or weight that is no function, with what to write for tensors."""
    expected = f"expected a function {_SIGNATURES[role]}, or None"
    if not hasattr(x, "__dlpack__") and not _arrays.is_torch(x):
        recipe = ": give its function as mask=block_mask.mask_mod" if hasattr(x, "mask_mod") else ""
        return TypeError(f"{role} is {x!r:.80}, {expected}{recipe}")
    found = _arrays.kind_of(x) or f"a {type(x).__module__.partition('.')[0].removesuffix('lib')} array"
    recipe = {"score": ": a tensor is added to the scores by score=saccade.scores.bias(score)",
              "mask": f": {_operands.tensor_recipe(role)}"}.get(role, "")  # fmt: skip
    return TypeError(f"{role} is {found}, {expected}{recipe}")


def _keep(key: tuple[Any, ...], found: Fingerprint, region: Region, text: str) -> None:
    """Caches a region under a key of its fingerprint, and its baked numbers."""
    known = _regions.get(key)
    baked = tuple(sorted(region.baked.union(known.baked if known else ())))
    if known is None or known.baked != baked:
        # Other values of the numbers that were baked before led to the use of more.
        if len(_regions) >= _MAX_REGIONS:
            _regions.clear()
        known = _regions[key] = _Regions(baked, {})
    if len(known.regions) >= _MAX_REGIONS:
        known.regions.clear()
    # The tensors of this call are not kept: they may be large, and later calls have others.
    made = [None if source is not None else made for source, made in zip(region.capture_sources, region.captures)]
    known.regions[found.values(baked)] = dataclasses.replace(region, captures=tuple(made)), text


# --- functions that are compiled again and again ----------------------------------------------------------------------

_REPEATS = 8
"""A function with this many regions is reported."""
_FRONTENDS = ("saccade.torch.", "saccade.transformers.", "saccade.jax.", "saccade.stats", "saccade._received")


class _History:
    """The regions of one function, by their texts."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self.values: dict[str, Any] = {}
        """What the function captured the last time: numbers, strings, and types and extents of arrays."""
        self.changed: dict[str, None] = {}
        """The names of variables that differed between two regions."""


_histories: dict[tuple[Any, ...], _History] = {}  # by role and code
on_cache_clear(_histories.clear)


def _note(role: str, function: Callable[..., Any], found: Fingerprint | None, text: str) -> None:
    """Notes that a function was traced to a region, and warns once if it has many regions."""
    if (getattr(function, "__module__", None) or "").startswith(_FRONTENDS):
        return  # one function for masks of many forms, which is not the caller's
    codes = found.codes() if found else (_code_of(function),)
    if len(_histories) >= _MAX_REGIONS:
        _histories.clear()
    history = _histories.setdefault((role, codes), _History())
    if len(history.texts) >= _REPEATS or text in history.texts:
        return
    values = {name: _described(value) for name, value in variables(function)}
    if history.texts:
        history.changed.update(dict.fromkeys(name for name, value in values.items()
                                             if name in history.values and history.values[name] != value))
    history.texts.add(text)
    history.values = values
    if len(history.texts) == _REPEATS:
        names = ", ".join(f"'{name}'" for name in history.changed)
        because = f"for other values of {names}" if names else "because it computes something else each time"
        hint = (" A captured number is compiled in if the function uses its value while it is traced (if, range, "
                "int()), or if it divides, multiplies or bounds positions: a 0-d tensor is read at each call."
                if names else "")
        title = TracedFunction(function, role).title
        errors.warn(f"{title} was compiled {_REPEATS} times, {because}.{hint}")


def _code_of(function: Any) -> Hashable:
    while isinstance(function, functools.partial):
        function = function.func
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        function = getattr(type(function), "__call__", None)
    return getattr(function, "__code__", None)


def _described(x: Any) -> Hashable | None:
    """A value that is compared between calls: a scalar with its type, or the type and extents of an array."""
    if isinstance(x, (bool, int, float, str)):
        return type(x), str(x)
    if isinstance(x, type) or not isinstance(getattr(x, "shape", None), tuple) or not hasattr(x, "dtype"):
        return None
    is_numpy_scalar = type(x).__module__ == "numpy" and hasattr(x, "item") and not hasattr(x, "__setitem__")
    return (type(x), str(x)) if is_numpy_scalar else (str(x.dtype), tuple(x.shape))
