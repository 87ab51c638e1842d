"""The rules of scales and alignments, on numbers alone."""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt

Add = Callable[..., None]
"""Adds a finding: its rule, the message, the line to write instead."""


def is_near(value: float, expected: float) -> bool:
    """Compares with a tolerance: scales are written with few digits."""
    return abs(value - expected) <= 1e-3 * expected


def check_scale(add: Add, given: float, before: float, head_size: int, heads: int, width: int, instead: str) -> None:
    """Finds scales that are likely mistakes.

    Args:
        add: adds a finding.
        given: what multiplies the product of queries and keys.
        before: what multiplied queries and keys before it.
        head_size: the number of elements that the product adds.
        heads: the number of heads, 0 if it is unknown.
        width: the features that queries are projected from, 0 if they are unknown.
        instead: the line to write.
    """
    right, total = 1 / sqrt(head_size) if head_size else 0, given * before
    if head_size <= 1 or is_near(total, right):
        return
    twos = (right, 1 / sqrt(width)) if width else (right,)
    if not is_near(before, 1) and is_near(given, right) and any(is_near(before, x) for x in twos):
        add("scale-twice", f"the query or the key is multiplied by {before:.4g}, and the scores by 1/√{head_size} "
            "again; expected one of them", instead)
    elif heads > 1 and is_near(total, 1 / sqrt(heads * head_size)):
        add("scale-width", f"scale is 1/√{heads * head_size}, the width of all {heads} heads together; expected "
            f"1/√{head_size}, the head size", instead)
    elif width > 1 and is_near(total, 1 / sqrt(width)):
        add("scale-width", f"scale is 1/√{width}, the width that queries are projected from; expected 1/√{head_size}, "
            "the head size", instead)
    elif is_near(total, 1 / head_size):
        add("scale-root", f"scale is 1/{head_size}, without the square root; expected 1/√{head_size}, the head size",
            instead)
    elif is_near(total, sqrt(head_size)):
        add("scale-root", f"scale is √{head_size}, a factor in place of a divisor; expected 1/√{head_size}", instead)


def check_alignment(add: Add, queries: int, keys: int, instead: str) -> None:
    """Finds a causal mask that starts at the first key although there are fewer queries than keys."""
    if not 0 < queries < keys:
        return
    if queries == 1:
        found = f"1 query and {keys} keys lets the query attend to the first key only"
    else:
        found = f"{queries} queries and {keys} keys lets no query attend beyond the first {queries} keys"
    add("alignment", f"top_left alignment with {found}; bottom_right was probably meant", instead)
