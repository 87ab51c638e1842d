"""Paired measurement: every round runs each contender once, in rotating order."""

import dataclasses
import statistics
import time
from collections.abc import Callable

import numpy as np

from . import problems
from .workers import LONG_SECONDS, WorkerFailed, WorkerProcess

# Thread pools spin for a moment after a call; the next contender starts when they sleep.
PAUSE_SECONDS = 0.02
# A contender with calls longer than LONG_SECONDS takes part in the first rounds only.
LONG_CALL_ROUNDS = 3


class WrongResult(RuntimeError):
    """A result differs from the float64 reference by more than its type allows."""


@dataclasses.dataclass
class Contender:
    """A contender, in a worker process that `start` starts on the first call."""

    name: str
    start: Callable[[], WorkerProcess]
    case_of: Callable  # (row) -> the case to run, or None
    is_peer: bool = True  # its failures do not end the run; counts for the best peer
    worker: WorkerProcess | None = None

    def call(self, method, *values):
        if self.worker is None:
            self.worker = self.start()
        return self.worker.call(method, *values)

    def close(self):
        if self.worker is not None:
            self.worker.close()
            self.worker = None


@dataclasses.dataclass
class Round:
    """One round of one row: FLOP/s or bytes/s, and processors in use, by contender."""

    process: int
    peak: float
    bandwidth: float
    rate: dict = dataclasses.field(default_factory=dict)
    processors: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Measurement:
    """All results of a row, over all processes."""

    rounds: list = dataclasses.field(default_factory=list)
    errors: dict = dataclasses.field(default_factory=dict)  # maximum error to float64, by contender
    notes: dict = dataclasses.field(default_factory=dict)  # {name: seconds} of untimed work, by contender
    failures: dict = dataclasses.field(default_factory=dict)  # reason, by contender without a result


class References:
    """Sampled rows of the float64 results, cached by case."""

    def __init__(self):
        self.cache = {}

    def __call__(self, case):
        if case not in self.cache:
            rows = problems.sample_rows(case)
            self.cache[case] = rows, problems.reference_rows(case, problems.make_inputs(case), rows)
        return self.cache[case]


def check(case, contender, reference):
    """The maximum error of a contender's result; raises WrongResult if it is above the tolerance or NaN."""
    rows, expected = reference
    difference = np.abs(contender.call("rows", rows) - expected)
    error, allowed = float(difference.max()), problems.allowed_error(case)
    if not error <= allowed:  # a NaN must not pass
        at = rows[int(np.argmax(np.nan_to_num(difference, nan=np.inf).max(axis=1)))]
        raise WrongResult(f"{contender.name} is wrong in {case}: error {error:.2g} in row {at}, "
                           f"expected at most {allowed:.2g}")
    return error


def prepare(row, contenders, references, found):
    """[(contender, case, seconds of a call)] of the contenders that support this row and give a correct result."""
    ready = []
    for contender in contenders:
        case = contender.case_of(row)
        if case is None:
            continue
        try:
            seconds, notes = contender.call("prepare", case)
            error = check(case, contender, references(case))
        except (WorkerFailed, WrongResult) as failure:
            if not contender.is_peer:
                raise
            found.failures[contender.name] = getattr(failure, "reason", str(failure))
            contender.close()  # the next row starts a fresh process
            continue
        found.errors[contender.name] = max(error, found.errors.get(contender.name, 0))
        found.notes.setdefault(contender.name, notes)
        ready.append((contender, case, seconds))
        time.sleep(PAUSE_SECONDS)
    return ready


def measure(row, contenders, peak_worker, rounds, found, references, process=0, tick=lambda: None):
    """Runs `rounds` rounds of a row and adds them to `found`."""
    ready = prepare(row, contenders, references, found)
    for number in range(rounds):
        time.sleep(PAUSE_SECONDS)
        result = Round(process, *peak_worker.call("timed_run", row.case.type))
        first = number % max(1, len(ready))
        for contender, case, expected in ready[first:] + ready[:first]:
            if expected > LONG_SECONDS and number >= LONG_CALL_ROUNDS:
                continue
            time.sleep(PAUSE_SECONDS)
            seconds, result.processors[contender.name] = contender.call("timed_run", expected)
            result.rate[contender.name] = case.work / seconds
        found.rounds.append(result)
        tick()
    for contender, _, _ in ready:
        contender.call("release")


@dataclasses.dataclass
class Summary:
    """Medians of a row. `fraction` is relative to the peak of the same round, `ratio` is our rate over the contender's."""

    row: object
    found: Measurement
    peak: float
    bandwidth: float
    rate: dict
    fraction: dict
    processors: dict
    ratio: dict  # (median, smallest, largest)
    peers: list  # names of the contenders that count for the best peer

    @property
    def best_peer(self):
        """The name of the fastest peer in the paired rounds, or None."""
        return min((name for name in self.ratio if name in self.peers), default=None,
                   key=lambda name: self.ratio[name][0])

    @classmethod
    def of(cls, row, found, ours, peers):
        rounds = found.rounds

        def bound(each):
            return each.bandwidth if row.case.is_decode else each.peak

        def median(value, rounds=rounds):
            # Median over processes of the medians over rounds: one process may be slow as a whole.
            by_process = {}
            for each in rounds:
                by_process.setdefault(each.process, []).append(value(each))
            return statistics.median(map(statistics.median, by_process.values()))

        rate, fraction, processors, ratio = {}, {}, {}, {}
        for name in dict.fromkeys(name for each in rounds for name in each.rate):
            mine = [each for each in rounds if name in each.rate]
            rate[name] = median(lambda each: each.rate[name], mine)
            fraction[name] = median(lambda each: each.rate[name] / bound(each), mine)
            processors[name] = median(lambda each: each.processors[name], mine)
            both = [each for each in mine if ours in each.rate]
            if name != ours and both:
                single = [each.rate[ours] / each.rate[name] for each in both]
                ratio[name] = (median(lambda each: each.rate[ours] / each.rate[name], both), min(single), max(single))
        return cls(row, found, median(lambda each: each.peak), median(lambda each: each.bandwidth), rate, fraction,
                   processors, ratio, peers)
