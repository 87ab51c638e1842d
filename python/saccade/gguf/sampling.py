"""Draws tokens from logits."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy


class Sampler:
    """Draws a token from the distribution softmax(logits / temperature), limited to the likeliest tokens."""

    def __init__(self, temperature: float, top_k: int | None, top_p: float, seed: int | None):
        """The options of `Session.generate`. Raises ValueError for one out of range."""
        if not 0 <= temperature < math.inf:
            raise ValueError(f"temperature is {temperature}, expected 0 or more")
        if top_k is not None and operator.index(top_k) < 1:
            raise ValueError(f"top_k is {top_k}, expected 1 or more")
        if not 0 < top_p <= 1:
            raise ValueError(f"top_p is {top_p}, expected more than 0 and at most 1")
        self.temperature, self.top_k, self.top_p = temperature, top_k, top_p
        if temperature:
            import numpy

            self._random = numpy.random.default_rng(seed)

    def draw(self, logits: numpy.ndarray) -> int:
        """A token, given the logits [vocabulary]."""
        import numpy

        if not self.temperature:
            return int(logits.argmax())
        order = numpy.argsort(-logits, kind="stable")[: self.top_k]
        scaled = (logits[order].astype(numpy.float64) - logits[order[0]]) / self.temperature
        weights = numpy.exp(scaled)
        weights /= weights.sum()
        if self.top_p < 1:
            kept = int(numpy.searchsorted(weights.cumsum(), self.top_p)) + 1
            weights = weights[:kept] / weights[:kept].sum()
        return int(order[self._random.choice(len(weights), p=weights)])
