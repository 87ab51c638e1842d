"""The origin of a tensor that leads to attention: where its axes come from, and what multiplied it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import prod
from typing import Any

FEATURES, HEADS, MIXED, QUERIES, KEYS, OTHER = "features", "heads", "mixed", "queries", "keys", ""
"""What an axis is: the features of a layer, a part that was split from features, a mixture of positions and features,
the queries and keys of scores, or anything else."""


@dataclass
class Scores:
    """A product of queries and keys, shared by all tensors that are computed from it."""

    head_size: int
    heads: int
    is_free: bool
    """Whether queries, keys or scores are multiplied by tensors, so that the scale may be any."""
    width: int
    factors: tuple[float, float]
    """What multiplies queries and keys, and what multiplies the product."""
    at: tuple[str, str]
    """Module and place of the product, later of the softmax."""
    is_between_heads: bool = False
    is_transposed: bool = True
    """Whether the product adds over features of both operands, as far as it is known."""
    is_constant: bool = False
    mixture: str = ""
    normalised: str | None = None
    """The axis of the softmax; None if it is unknown."""
    normalizer: str = ""
    is_shifted: bool = False
    is_masked: bool = False
    is_masked_late: bool = False
    has_bias: bool = False
    has_empty_row: bool = False
    pending: list[tuple[Any, ...]] = field(default_factory=list)
    """Findings that count if a softmax follows: their rule, message, line to write and place."""


@dataclass(frozen=True)
class Facts:
    """The origin of a tensor's axes, and the numbers that multiplied it."""

    axes: tuple[str, ...]
    factor: float = 1.0
    """What numbers multiplied it since it came from a layer."""
    width: int = 0
    """The features that the layer read; 0 if there was no layer."""
    is_free: bool = False
    is_constant: bool = False
    """Whether all weights of the layer are equal."""
    mixture: str = ""
    """The shapes of a reshape that mixed positions and features."""
    kind: str = ""
    """"scores", "weights", "output" of attention, "parameter", or empty."""
    scores: Scores | None = field(default=None, compare=False)
    cut_from: tuple[int, ...] = ()
    """The shape of the constant that it was cut from."""

    def moved(self, order: list[int]) -> Facts:
        """Facts of the tensor with its axes in another order."""
        return replace(self, axes=tuple(self.axes[i] for i in order))


def regrouped(facts: Facts, old: tuple[int, ...], new: tuple[int, ...]) -> Facts:
    """Facts after a reshape from shape `old` to `new`."""
    axes: list[str] = [OTHER] * len(new)
    mixture = facts.mixture
    for before, after in _groups(old, new):
        labels = {facts.axes[i] for i in before}
        if len(before) == len(after) == 1:
            axes[after[0]] = facts.axes[before[0]]
        elif len(before) == 1 and FEATURES in labels:
            for i in after[:-1]:
                axes[i] = HEADS
            axes[after[-1]] = FEATURES
        elif len(after) == 1:
            axes[after[0]] = FEATURES if labels <= {FEATURES, HEADS} else labels.pop() if len(labels) == 1 else OTHER
        elif labels <= {FEATURES, HEADS}:
            for i in after[:-1]:
                axes[i] = HEADS
            axes[after[-1]] = FEATURES
        elif FEATURES in labels and not _keeps_features([old[i] for i in before], [new[i] for i in after]):
            for i in after:
                axes[i] = MIXED
            mixture = f"{list(old)} to {list(new)}"
        elif FEATURES in labels:
            axes[after[-1]] = FEATURES
    return replace(facts, axes=tuple(axes), mixture=mixture)


def _keeps_features(old: list[int], new: list[int]) -> bool:
    """Whether features are split or joined, and the other axes too, without a change of their order: the smaller one of
    the last extents divides the larger one, and what is left of it fits the other axes."""
    if max(old[-1], new[-1]) % min(old[-1], new[-1]):
        return False
    depth = min(old[-1], new[-1])
    rest = [(*each[:-1], each[-1] // depth) for each in (old, new)]
    return all(len(before) == 1 or len(after) == 1 for before, after in _groups(*rest))


def _groups(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[list[int], list[int]]]:
    """The axes of two shapes with equal numbers of elements, in the smallest parts that have equal numbers. Axes of one
    element belong to no part."""
    if prod(old) != prod(new) or not prod(old):
        return []
    left = [(i, n) for i, n in enumerate(old) if n != 1]
    right = [(i, n) for i, n in enumerate(new) if n != 1]
    groups = []
    while left and right:
        (i, n), (j, m) = left.pop(0), right.pop(0)
        before, after = [i], [j]
        while n != m:
            if n < m:
                i, more = left.pop(0)
                before.append(i)
                n *= more
            else:
                j, more = right.pop(0)
                after.append(j)
                m *= more
        groups.append((before, after))
    return groups
