"""However a function reaches an array, it is captured: the same region as of the array read directly.

REQUIRES: numpy, torch
RUN: %python %s
"""

import functools
import types

import numpy as np
import torch

from saccade.regions import trace

NAMES = ["%s", "%b", "%h", "%i", "%j"], ["%c0"]


class Bias:
    def __init__(self, table):
        self.table, self.scale = table, 1

    def __call__(self, s, b, h, i, j):
        return s + self.table[h]

    def method(self, s, b, h, i, j):
        return s + self.table[h]


def ways(table, index=lambda x, h: x[h]):
    """Functions that all add table[h] to the score."""
    module = types.ModuleType("tables")
    module.table, module.read = table, lambda h: table[h]
    holder, bias = types.SimpleNamespace(table=table), Bias(table)
    tables, named = (None, [table]), {"table": table}

    def read(h):
        return table[h]

    def countdown(n, h):
        return table[h] if n == 0 else countdown(n - 1, h)

    def default(s, b, h, i, j, x=table, *, y=table):
        return s + x[h]

    def inner(s, b, h, i, j):
        def add():
            return s + table[h]

        return add()

    yield lambda s, b, h, i, j: s + table[h]
    yield lambda s, b, h, i, j: s + read(h)
    yield lambda s, b, h, i, j: s + countdown(2, h)
    yield lambda s, b, h, i, j: s + tables[1][0][h]
    yield lambda s, b, h, i, j: s + named["table"][h]
    yield lambda s, b, h, i, j: s + module.table[h]
    yield lambda s, b, h, i, j: s + module.read(h)
    yield lambda s, b, h, i, j: s + holder.table[h]
    yield lambda s, b, h, i, j: s + index(table, h)
    yield lambda s, b, h, i, j: s + by_name(h)
    yield lambda s, b, h, i, j: sum((x[h] for x in [table]), start=s)
    yield from (bias, bias.method, default, inner, functools.partial(default), functools.partial(added, table))


def added(x, s, b, h, i, j):
    return s + x[h]


def by_name(h):
    return everyone[h]


for everyone in (torch.rand(8), np.random.rand(8).astype(np.float32)):
    direct, *others = ways(everyone)
    expected = trace(direct, "score", "f32")
    assert expected.captures[0] is everyone and expected.capture_types == ("tensor<?xf32>",)
    for number, function in enumerate(others):
        region = trace(function, "score", "f32")
        assert region.captures[0] is everyone and len(region.captures) == 1, number
        assert region.body(*NAMES) == expected.body(*NAMES), f"{number}:\n{region.body(*NAMES)}"

# Tracing leaves a function and what it reaches as they were.
array = np.ones(8)
bias = Bias(array)
trace(bias, "score", "f64")
assert bias.table is array and type(bias.table[0]) is np.float64
