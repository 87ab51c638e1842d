"""The option `normalizer` of `saccade.attention`: the weight of a key as a function of its score alone, or a part of
what later keys leave of a stick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

STICK_BREAKING = "stick_breaking"
"""Not a function of one score, so it is a clause of the program and no region."""
NAMES = ("softmax", "sigmoid", "silu", "relu_squared", STICK_BREAKING)

# As the functions of saccade.scores, these avoid isinstance and hasattr, so that they have fingerprints.


def _sigmoid_of(x: Any) -> Any:
    try:
        return x.sigmoid()
    except AttributeError:
        import numpy

        return 1 / (1 + numpy.exp(-x))


def _relu_of(x: Any) -> Any:
    try:
        return x.relu()
    except AttributeError:
        import numpy

        return numpy.maximum(x, 0)


def _sigmoid(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return _sigmoid_of(s)


def _silu(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    return s * _sigmoid_of(s)


def _relu_squared(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
    positive = _relu_of(s)
    return positive * positive


_FUNCTIONS: dict[str, Callable[..., Any]] = {"sigmoid": _sigmoid, "silu": _silu, "relu_squared": _relu_squared}


def function_of(normalizer: Any) -> Any:
    """The function (s, b, h, i, j) of a normalizer; None for the softmax, the name for stick-breaking. Raises
    ValueError for an unknown name. What is no string is a function, which the caller checks."""
    if not isinstance(normalizer, str) or normalizer == "softmax":
        return None if isinstance(normalizer, str) else normalizer
    if normalizer == STICK_BREAKING:
        return normalizer
    if normalizer not in _FUNCTIONS:
        raise ValueError(f"normalizer is {normalizer!r:.80}, expected one of {', '.join(map(repr, NAMES))}, or a "
                         "function (s, b, h, i, j) -> weight")
    return _FUNCTIONS[normalizer]


def check_without_sum(sink: Any, return_lse: Any, return_max: Any, stats: Any) -> None:
    """Raises ValueError for options of the softmax, which weights without a sum do not have."""
    for name, value in (("sink", sink), ("return_lse", return_lse), ("return_max", return_max), ("stats", stats)):
        if value is not None and value is not False:
            found = f"{value!r:.40}" if value is True else "given"
            expected = "False" if name.startswith("return") else "None"
            raise ValueError(f"{name} is {found}, expected {expected}: it belongs to the softmax, and a normalizer is "
                             "given")
