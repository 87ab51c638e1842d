"""Operators of a frontend against their project's own execution: calls drawn until every argument is covered.

An argument of a schema is covered when calls that agree have left it to its default and have given two other values, or
when it is listed as refused and was. A refusal that is not listed is a failure, and a listed one that does not come is
one too. A case is determined by its name, which `check_case` repeats.
"""

import collections
import dataclasses
import random
import re

import numpy as np
from interpreter import Refused, difference, interpret


@dataclasses.dataclass
class Case:
    """A drawn call: the values of its arguments, the program and what the project computes."""

    arguments: dict  # by name, without those that are left to their defaults
    text: str
    inputs: list
    expected: list


@dataclasses.dataclass
class Target:
    """An operator in one version or overload."""

    name: str
    arguments: dict  # by name, whether it has a default
    types: list
    make: object  # (random, type) -> Case; raises NotAccepted
    limited: frozenset = frozenset()  # arguments of which only one value is supported: others are refused
    check: object = None  # compares results: (found, expected) -> difference
    weight: int = 1  # how many times as often it is drawn, for operators whose arguments have many forms


class NotAccepted(Exception):
    """The project does not accept the drawn call itself."""


class Coverage:
    """What calls that agree have shown of the arguments of a target."""

    def __init__(self, target):
        self.target, self.values = target, collections.defaultdict(set)
        self.types, self.agreed, self.refused = set(), 0, 0

    def add(self, case):
        self.agreed += 1
        for name in self.target.arguments:
            given = case.arguments.get(name, "left out")
            self.values[name].add(given if isinstance(given, str) else shown(given))

    def missing(self):
        """The arguments that are not covered, with the reason."""
        found = [] if self.agreed or self.refused else ["no call agrees"]
        for name, has_default in self.target.arguments.items():
            values = self.values[name]
            others = len(values - {"left out"})
            if self.agreed and has_default and "left out" not in values:
                found.append(f"{name} is never left out")
            if name in self.target.limited:
                if self.refused == 0:
                    found.append(f"{name} is limited, but nothing is refused")
            elif self.agreed and others < 2:
                found.append(f"{name} has {others} values: {sorted(values)}")
        return found


def shown(value):
    """A value of an argument; tensors by their shape and type."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, (list, tuple)):
        return str([shown(each) for each in value])
    return repr(value)


def attempt(target, seed, number, coverage=None, refusals=(), counts=None):
    """Runs draw `number` of a target; returns a failure, or "". Raises NotAccepted if no draw is accepted."""
    type_name = target.types[number % len(target.types)]
    for again in range(8):
        name = f"{seed}/{target.name}/{number}/{again}"
        try:
            case = target.make(random.Random(name), type_name)
            break
        except NotAccepted:
            continue
    else:
        raise NotAccepted
    where = f"{name}: {({key: shown(value) for key, value in case.arguments.items()})}"
    try:
        found = interpret(case.text, case.inputs)
    except Refused as error:
        message = str(error).splitlines()[0]
        for key, (names, words) in refusals.items():
            if re.fullmatch(names, target.name) and re.search(words, message):
                if counts is not None:
                    counts[key] += 1
                if coverage is not None:
                    coverage.refused += 1
                return ""
        return f"{where}: refused: {message}"
    if len(found) != len(case.expected):
        return f"{where}: found {len(found)} results, expected {len(case.expected)}"
    for i, (x, y) in enumerate(zip(found, case.expected)):
        if error := (target.check or difference)(x, np.asarray(y)):
            return f"{where}: result {i}: {error}"[:2000]
    if coverage is not None:
        coverage.add(case)
        coverage.types.add(type_name)
    return ""


@dataclasses.dataclass
class Outcome:
    draws: int
    agreed: int
    refused: collections.Counter
    failures: list
    missing: dict  # what is not covered, by target
    types: dict  # by target, the types of calls that agree


def run(targets, refusals, seed=0, least=1, most=90):
    """Draws each target once for each of its types `least` times, then up to `most` times until it is covered."""
    counts, failures, missing, types, draws, agreed = collections.Counter(), [], {}, {}, 0, 0
    for target in targets:
        coverage, fewest = Coverage(target), least * target.weight * len(target.types)
        for number in range(max(most, fewest)):
            if number >= fewest and not coverage.missing():
                break
            try:
                failure = attempt(target, seed, number, coverage, refusals, counts)
            except NotAccepted:
                continue
            draws += 1
            if failure:
                failures.append(failure)
                if len(failures) > 200:
                    return Outcome(draws, agreed, counts, failures, missing, types)
        agreed += coverage.agreed
        types[target.name] = coverage.types
        if left := coverage.missing():
            missing[target.name] = left
    return Outcome(draws, agreed, counts, failures, missing, types)
