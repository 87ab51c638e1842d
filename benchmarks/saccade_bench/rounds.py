"""Paired measurement: in every round each contender has one turn, and the order rotates."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import numpy as np

from . import problems
from .workers import LONG_SECONDS, Remote, WorkerFailed

# Pools spin for a moment after a call; the next contender starts when they have gone to sleep.
PAUSE_SECONDS = 0.02
# A contender whose calls are long takes part in the first rounds only.
FEW_ROUNDS = 3


class Disagreement(RuntimeError):
    """A result is farther from float64 than its type explains."""


@dataclasses.dataclass
class Contender:
    """Somebody who computes rows, in a process that `start` starts when it is first needed."""

    name: str
    start: Callable[[], Remote]
    case_of: Callable  # the case that it computes for a row, or None
    is_peer: bool = True  # ends nothing where it fails, and counts for the best peer
    remote: Remote | None = None

    def call(self, method, *values):
        if self.remote is None:
            self.remote = self.start()
        return self.remote.call(method, *values)

    def close(self):
        if self.remote is not None:
            self.remote.close()
            self.remote = None


@dataclasses.dataclass
class Round:
    """One round of one row: flops or bytes a second, and processors in use, by contender."""

    process: int
    peak: float
    bandwidth: float
    rate: dict = dataclasses.field(default_factory=dict)
    processors: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Measurement:
    """All that was found for a row, over all processes."""

    rounds: list = dataclasses.field(default_factory=list)
    errors: dict = dataclasses.field(default_factory=dict)  # largest against float64, by contender
    notes: dict = dataclasses.field(default_factory=dict)  # {what: seconds} outside the timing, by contender
    failures: dict = dataclasses.field(default_factory=dict)  # why a contender has no figures


class References:
    """Rows of results in float64, computed once a case."""

    def __init__(self):
        self.known = {}

    def __call__(self, case):
        if case not in self.known:
            rows = problems.sample_rows(case)
            self.known[case] = rows, problems.reference_rows(case, problems.make_inputs(case), rows)
        return self.known[case]


def check(case, contender, reference):
    """The largest error of a contender's result; raises Disagreement where it is larger than allowed, or no number."""
    rows, expected = reference
    difference = np.abs(contender.call("rows", rows) - expected)
    error, allowed = float(difference.max()), problems.allowed_error(case)
    if not error <= allowed:  # a NaN must not pass
        at = rows[int(np.argmax(np.nan_to_num(difference, nan=np.inf).max(axis=1)))]
        raise Disagreement(f"{contender.name} is wrong in {case}: row {at} is off by {error:.2g}, "
                           f"{allowed:.2g} allowed")
    return error


def prepare(row, contenders, references, found):
    """(contender, its case, its seconds of a call) for those who compute this row rightly."""
    ready = []
    for contender in contenders:
        case = contender.case_of(row)
        if case is None:
            continue
        try:
            seconds, notes = contender.call("prepare", case)
            error = check(case, contender, references(case))
        except (WorkerFailed, Disagreement) as failure:
            if not contender.is_peer:
                raise
            found.failures[contender.name] = getattr(failure, "reason", str(failure))
            contender.close()  # a fresh process has the next row
            continue
        found.errors[contender.name] = max(error, found.errors.get(contender.name, 0))
        found.notes.setdefault(contender.name, notes)
        ready.append((contender, case, seconds))
        time.sleep(PAUSE_SECONDS)
    return ready


def measure(row, contenders, machine, rounds, found, references, process=0, tick=lambda: None):
    """Adds `rounds` rounds of a row to the measurement `found`."""
    ready = prepare(row, contenders, references, found)
    for number in range(rounds):
        time.sleep(PAUSE_SECONDS)
        result = Round(process, *machine.call("turn", row.case.type))
        first = number % max(1, len(ready))
        for contender, case, expected in ready[first:] + ready[:first]:
            if expected > LONG_SECONDS and number >= FEW_ROUNDS:
                continue
            time.sleep(PAUSE_SECONDS)
            seconds, result.processors[contender.name] = contender.call("turn", expected)
            result.rate[contender.name] = case.work / seconds
        found.rounds.append(result)
        tick()
    for contender, _, _ in ready:
        contender.call("release")


@dataclasses.dataclass
class Summary:
    """A row's medians. `fraction` is of the limit measured in the same round, `ratio` is ours to another's."""

    row: object
    found: Measurement
    peak: float
    bandwidth: float
    rate: dict
    fraction: dict
    processors: dict
    ratio: dict  # (median, smallest, largest)
    peers: list  # names of those who count for the best peer

    @property
    def best_peer(self):
        """The name of the peer that is nearest to ours, or None."""
        return min((name for name in self.ratio if name in self.peers), default=None,
                   key=lambda name: self.ratio[name][0])

    @classmethod
    def of(cls, row, found, ours, peers):
        rounds = found.rounds

        def limit(each):
            return each.bandwidth if row.case.is_decode else each.peak

        def median(value, rounds=rounds):
            # Median over processes of the medians over rounds: a process may be unlucky as a whole.
            by_process = {}
            for each in rounds:
                by_process.setdefault(each.process, []).append(value(each))
            return statistics.median(map(statistics.median, by_process.values()))

        rate, fraction, processors, ratio = {}, {}, {}, {}
        for name in dict.fromkeys(name for each in rounds for name in each.rate):
            mine = [each for each in rounds if name in each.rate]
            rate[name] = median(lambda each: each.rate[name], mine)
            fraction[name] = median(lambda each: each.rate[name] / limit(each), mine)
            processors[name] = median(lambda each: each.processors[name], mine)
            both = [each for each in mine if ours in each.rate]
            if name != ours and both:
                single = [each.rate[ours] / each.rate[name] for each in both]
                ratio[name] = (median(lambda each: each.rate[ours] / each.rate[name], both), min(single), max(single))
        return cls(row, found, median(lambda each: each.peak), median(lambda each: each.bandwidth), rate, fraction,
                   processors, ratio, peers)
