"""Events: heads whose statistics cross thresholds, layers that collapse, NaN and Inf."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from saccade import _operands, _parameters
from saccade.observe.record import Event, Layer


@dataclass(frozen=True)
class Thresholds:
    """When a head or a layer is reported. None turns an event off."""

    dead: float | None = 1e-3
    """The output of a head is less than this part of the median of its layer."""
    sink: float | None = 0.9
    """The mass on the first keys is more than this."""
    sharp: float | None = 0.05
    """The uniformity of a head, its entropy over that of equal weights, is less than this."""
    uniform: float | None = 0.99
    """The uniformity is more than this."""
    collapse: float | None = 0.1
    """The mean uniformity of the heads of a layer is less than this."""

    @classmethod
    def of(cls, given: Thresholds | Mapping[str, Any] | None) -> Thresholds:
        """Thresholds from some by name."""
        if given is None or isinstance(given, Thresholds):
            return given or cls()
        if not isinstance(given, Mapping):
            raise TypeError(f"thresholds is {given!r:.80}, expected a dict or saccade.observe.Thresholds")
        known = [each.name for each in dataclasses.fields(cls)]
        for name, x in given.items():
            if name not in known:
                raise ValueError(f"thresholds has {name!r}{_operands.did_you_mean(str(name), known)}: expected "
                                 f"{', '.join(known)}")
            if x is not None:
                _parameters.number(f"thresholds[{name!r}]", x)
        return cls(**given)


class Watch:
    """Reports when a state begins: a head that stays in it is reported once."""

    def __init__(self, thresholds: Thresholds):
        self._thresholds = thresholds
        self._active: set[tuple[Any, ...]] = set()

    def events(self, step: int, measured: Sequence[Any]) -> list[Event]:
        """The events of a step, from a `Measured` of each layer or None."""
        found = [*self._not_finite(step, measured)]
        for index, each in enumerate(measured):
            if each is not None:
                found += self._of_layer(step, index, each)
        return found

    def _not_finite(self, step: int, measured: Sequence[Any]) -> Iterator[Event]:
        """The first layer with NaN or Inf. Later layers have got it from there."""
        index, each = next(((i, x) for i, x in enumerate(measured) if x is not None and x.finding), (0, None))
        if not self._begins(("finite",), each is not None) or each is None:
            return
        finding = each.finding
        yield Event(step, finding.kind, index, finding.head, finding.query, finding.key, finding.operand,
                    f"{each.layer}, head {finding.head}: {finding.message}")

    def _begins(self, state: tuple[Any, ...], is_active: bool) -> bool:
        """Whether a state is active that was not before."""
        was_active = state in self._active
        (self._active.add if is_active else self._active.discard)(state)
        return is_active and not was_active

    def _of_layer(self, step: int, index: int, measured: Any) -> Iterator[Event]:
        limits, layer = self._thresholds, measured.layer
        sink, uniformity, size = measured.numbers["sink"], measured.numbers["uniformity"], measured.size
        median = float(numpy.median(size))
        for head in range(layer.heads):
            part = size[head] / median if median else float(size[head] > 0)
            even = f"the entropy is {_percent(uniformity[head])} of that of equal weights"
            for kind, is_active, message in (
                ("dead", _below(part, limits.dead), f"the output is {_percent(part)} of that of the median head: "
                                                    "the head does nothing"),
                ("sink", _above(sink[head], limits.sink), f"{_percent(sink[head])} of the weight is on the first keys"),
                ("sharp", _below(uniformity[head], limits.sharp), f"{even}: each query attends to about one key"),
                ("uniform", _above(uniformity[head], limits.uniform), f"{even}: the head averages all values"),
            ):  # fmt: skip
                if self._begins((kind, index, head), is_active):
                    yield Event(step, kind, index, head, None, None, None, f"{layer}, head {head}: {message}")
        mean = float(uniformity.mean())
        if self._begins(("collapse", index), _below(mean, limits.collapse)):
            message = _collapse(layer, mean, float(measured.numbers["max"].max()))
            yield Event(step, "collapse", index, None, None, None, None, message)


def _collapse(layer: Layer, mean: float, largest: float) -> str:
    return (f"{layer}: the entropy has collapsed to {_percent(mean)} of that of equal weights, and the largest logit "
            f"is {largest:.3g}: lower the learning rate, bound queries and keys, or add a loss of the entropy")


def _below(x: float, limit: float | None) -> bool:
    return limit is not None and bool(x < limit)


def _above(x: float, limit: float | None) -> bool:
    return limit is not None and bool(x > limit)


def _percent(x: float) -> str:
    return f"{100 * x:.3g} %"
