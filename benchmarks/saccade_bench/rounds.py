"""Paired measurement: in every round each worker has one turn, and the order rotates."""

import dataclasses
import statistics
import time

import numpy as np

from . import cases

# Pools spin for a moment after a call; the next worker starts when they have gone to sleep.
PAUSE_SECONDS = 0.02


class Disagreement(RuntimeError):
    """A result is farther from float64 than its type explains."""


@dataclasses.dataclass
class Round:
    """One round of one case: flops or bytes a second, and processors in use, by worker."""

    process: int
    peak: float
    bandwidth: float
    rate: dict
    processors: dict


def check(case, workers):
    """Compares every worker's result with float64 on some rows; the largest error by worker."""
    rows = cases.sample_rows(case)
    expected = cases.reference_rows(case, cases.make_inputs(case), rows)
    errors = {}
    for worker in workers:
        difference = np.abs(worker.call("rows", rows) - expected)
        errors[worker.name] = float(difference.max())
        if not errors[worker.name] <= cases.TOLERANCE[case.type]:  # a NaN must not pass
            at = rows[int(np.argmax(np.nan_to_num(difference, nan=np.inf).max(axis=1)))]
            raise Disagreement(f"{worker.name} is wrong in {case}: row (batch, head, query) {at} is off by "
                               f"{errors[worker.name]:.2g}, {cases.TOLERANCE[case.type]:.2g} allowed")
    return errors


def measure(case, workers, machine, rounds, process=0, tick=lambda: None):
    """`rounds` rounds of a case by the attention workers and the machine's worker; (rounds, errors by worker)."""
    expected = {}
    for worker in workers:
        expected[worker.name] = worker.call("prepare", case)
        time.sleep(PAUSE_SECONDS)
    errors = check(case, workers)
    results = []
    for number in range(rounds):
        rate, processors, limits = {}, {}, None
        turns = [*workers, machine]
        first = number % len(turns)
        for worker in turns[first:] + turns[:first]:
            time.sleep(PAUSE_SECONDS)
            if worker is machine:
                limits = worker.call("turn", case.type)
                continue
            seconds, processors[worker.name] = worker.call("turn", expected[worker.name])
            rate[worker.name] = case.flops / seconds
        results.append(Round(process, *limits, rate, processors))
        tick()
    for worker in workers:
        worker.call("release")
    return results, errors


@dataclasses.dataclass
class Summary:
    """A case's medians. `fraction` is of the peak measured in the same round, `ratio` is ours to a peer's."""

    case: cases.Case
    rounds: int
    peak: float
    bandwidth: float
    rate: dict
    fraction: dict
    processors: dict
    ratio: dict
    errors: dict

    @classmethod
    def of(cls, case, rounds, errors, ours):
        # Median over processes of the medians over rounds: a process may be unlucky as a whole.
        def median(value):
            by_process = {}
            for each in rounds:
                by_process.setdefault(each.process, []).append(value(each))
            return statistics.median(map(statistics.median, by_process.values()))

        names = list(rounds[0].rate)
        ratio = {}
        for peer in names:
            if peer != ours:
                single = [each.rate[ours] / each.rate[peer] for each in rounds]
                ratio[peer] = (median(lambda each: each.rate[ours] / each.rate[peer]), min(single), max(single))
        return cls(
            case, len(rounds), median(lambda each: each.peak), median(lambda each: each.bandwidth),
            {name: median(lambda each: each.rate[name]) for name in names},
            {name: median(lambda each: each.rate[name] / each.peak) for name in names},
            {name: median(lambda each: each.processors[name]) for name in names},
            ratio, errors)
