"""Checks of numbers that are parameters: scales, caps, rates, offsets, counts.

One rule holds for all of them. A parameter is a Python or NumPy scalar; booleans and strings are none. NaN is refused,
and so is every value whose result would be meaningless. Tensors and arrays, also those without dimensions, are data:
they are read at each call and pass unchanged, and NaN in them gives NaN.
"""

from __future__ import annotations

import math
import operator
import sys
from collections.abc import Sequence
from typing import Any

_SMALLEST, _LARGEST = 2.0**-126, 3.4028234663852886e38  # of the normal numbers of float32


def is_data(x: Any) -> bool:
    """Whether x is a tensor or an array, whose elements are read at each call. NumPy scalars are numbers."""
    return hasattr(x, "ndim") and not isinstance(x, getattr(sys.modules.get("numpy"), "generic", ()))


def number(name: str, x: Any, expected: str = "a finite number") -> float:
    """x as a float. Raises TypeError if it is no number, ValueError if it is NaN or infinite."""
    found = _float(name, x, expected)
    if not math.isfinite(found):
        raise ValueError(f"{name} is {found}, expected {expected}")
    return found


def _float(name: str, x: Any, expected: str) -> float:
    if isinstance(x, (bool, str, bytes)) or getattr(x, "ndim", None) or _is_bool(x):
        raise TypeError(f"{name} is {x!r:.80}, expected {expected}")
    try:
        return float(x)
    except (TypeError, ValueError):
        raise TypeError(f"{name} is {x!r:.80}, expected {expected}") from None
    except OverflowError:  # an int beyond float64
        return math.inf


def positive(name: str, x: Any) -> float:
    """x as a finite float above 0."""
    found = number(name, x, "a finite number above 0")
    if found <= 0:
        raise ValueError(f"{name} is {found}, expected a finite number above 0")
    return found


def rate(name: str, x: Any) -> float:
    """x as a probability."""
    found = _float(name, x, "a number, 0 to 1")
    if not 0 <= found <= 1:
        raise ValueError(f"{name} is {found}, expected a probability, 0 to 1")
    return found


def soft_cap(name: str, x: Any) -> float:
    """x as the bound of a soft cap; 0 stands for none, as in FlashAttention. Other bounds are normal numbers of
    float32, in which scores are computed."""
    found = _float(name, x, "a number of at least 0")
    if not found >= 0:
        raise ValueError(f"{name} is {found}, expected a number of at least 0, where 0 is no cap")
    if found and not _SMALLEST <= found <= _LARGEST:
        raise ValueError(f"{name} is {found}, expected a number of at least 0, where 0 is no cap and others are "
                         "normal numbers of float32")
    return found


def integer(name: str, x: Any, least: int | None = None) -> int:
    """x as an int, also if it is a float without a fraction."""
    expected = "an integer" if least is None else f"an integer of at least {least}"
    try:
        if isinstance(x, bool) or getattr(x, "ndim", None) or _is_bool(x):
            raise TypeError
        found = operator.index(x)
    except TypeError:
        whole = number(name, x, expected)
        if whole != int(whole):
            raise ValueError(f"{name} is {x}, expected {expected}") from None
        found = int(whole)
    if not -(2**63) <= found < 2**63:
        raise ValueError(f"{name} is {found}, expected {expected}, of 64 bits")
    if least is not None and found < least:
        raise ValueError(f"{name} is {found}, expected {expected}")
    return found


def fixed_integer(name: str, x: Any, least: int | None = None) -> None:
    """Rejects a number that is no integer or below `least`. Data is read at each call, so it is not known here."""
    if not is_data(x):
        integer(name, x, least)


def flag(name: str, x: Any) -> bool:
    """x, which is True or False."""
    if x is not True and x is not False:
        raise TypeError(f"{name} is {x!r:.80}, expected True or False")
    return x


def elements(name: str, given: Sequence[Any], are_integers: bool) -> None:
    """Checks the numbers of a list, nested or not, that becomes an array."""
    for i, x in enumerate(given):
        if isinstance(x, (list, tuple, range)):
            elements(f"{name}[{i}]", x, are_integers)
        elif not isinstance(x, bool) and not getattr(x, "ndim", None):
            (integer if are_integers else number)(f"{name}[{i}]", x)


def _is_bool(x: Any) -> bool:
    return "bool" in str(getattr(x, "dtype", ""))
