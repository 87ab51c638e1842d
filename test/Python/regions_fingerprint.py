"""Fingerprints are equal where functions compute the same, different where they do not, and cheap.

REQUIRES: numpy, torch
RUN: %python %s
"""

import functools
import math
import operator
import random
import sys
import time
import timeit
import types

import numpy as np
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, or_masks

from saccade.regions import fingerprint, trace

slopes = torch.rand(8)
window = 4
config = {"window": 4}
limits = [3, 5]
settings = types.ModuleType("settings")
settings.reach, settings.other = 3, 1


def key(function):
    found = fingerprint(function)
    return None if found is None else found.key


def equal(a, b, what):
    assert key(a) is not None, what
    assert key(a) == key(b) and hash(key(a)) == hash(key(b)), what


def different(a, b, what):
    assert key(a) is not None and key(b) is not None, what
    assert key(a) != key(b), what


def bias(x):
    return lambda s, b, h, i, j: s + x


def reads(x, y=None):
    return lambda s, b, h, i, j: s + x[h] if y is None else s + x[h] * y[j]


# --- the same function, made anew ---------------------------------------------------------------------------------------

equal(bias(1.0), bias(1.0), "equal numbers")
equal(reads(torch.rand(8)), reads(torch.rand(3)), "tensors of one type and rank, whatever their extents and numbers")
equal(reads(np.ones(8)), reads(np.zeros(3)), "NumPy arrays likewise")
a, b = torch.rand(8), torch.rand(8)
equal(reads(a, b), reads(b, a), "tensors in other places")
assert fingerprint(reads(a, b)).tensors == (a, b) and fingerprint(reads(a, a)).tensors == (a,)
equal(and_masks(bias(1), bias(2)), and_masks(bias(1), bias(2)), "functions around functions")
equal(functools.partial(bias(1), 2, b=3), functools.partial(bias(1), 2, b=3), "partial")

# --- different functions --------------------------------------------------------------------------------------------------

for x, y in [(1, 2), (1, 1.0), (1, True), (0, False), (1.0, True), (0.0, -0.0), (1, "1"), (None, 0), (1, torch.float32),
             (np.float32(1), np.float64(1)), (np.int32(1), 1), (np.float32(0), np.float32(-0.0)), ((1, 2), [1, 2]),
             ((1, 2), (1, 2, 3)), ((1,), 1), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (range(3), range(4)), (b"a", b"b"),
             (torch.float32, torch.float64), (slopes, slopes.double()), (slopes, torch.rand(8, 2)), (slopes, slopes.numpy()),
             (slopes, torch.nn.Parameter(slopes)), (slopes, 1.0), (np.ones(3), np.ones(3, np.float32)), (torch.exp, torch.log),
             (math.exp, math.log), (operator.add, operator.sub), (np.exp, np.log), (np.where, np.clip), (F.relu, F.silu),
             (bias(1), bias(2)), ((slopes, 1), (slopes, 2)), (int, float), (torch, math), (torch.Size([1]), torch.Size([2])),
             (1j, 2j), (functools.partial(max, 1), functools.partial(max, 2)), (functools.partial(max, 1), functools.partial(min, 1))]:  # fmt: skip
    different(bias(x), bias(y), (x, y))
    equal(bias(x), bias(x), x)
different(reads(a, b), reads(a, a), "one tensor twice")
different(bias(1), reads(slopes), "code")
different(and_masks(bias(1)), or_masks(bias(1)), "code around the same function")
different(lambda s, b, h, i, j: s + 1, lambda s, b, h, i, j: s + 2, "constants in code")
different(lambda s, b, h, i, j, x=1: s + x, lambda s, b, h, i, j, x=2: s + x, "defaults are code, too")
make = lambda default: lambda s, b, h, i, j, x=default: s + x  # noqa: E731
different(make(1), make(2), "defaults")
make = lambda default: lambda s, b, h, i, j, *, x=default: s + x  # noqa: E731
different(make(1), make(2), "keyword defaults")
assert fingerprint(make(slopes)).tensors == (slopes,)

# --- what changes between calls -------------------------------------------------------------------------------------------


def by_global(b, h, i, j):
    return i - j < window


def by_helper(b, h, i, j):
    return by_global(b, h, i, j)


def by_inner(b, h, i, j):
    return (lambda: i - j < window)()


def changes(function, change, what):
    before = key(function)
    change()
    assert before is not None and before != key(function), what


for function in (by_global, by_helper, by_inner):
    changes(function, lambda: globals().update(window=window + 1), f"a global of {function.__name__}")
changes(lambda b, h, i, j: i < limits[0], lambda: limits.__setitem__(0, 9), "a list")
changes(lambda b, h, i, j: i < limits[0], lambda: limits.append(9), "a longer list")
changes(lambda b, h, i, j: i < config["window"], lambda: config.update(window=9), "a dict")
changes(lambda b, h, i, j: i < settings.reach, lambda: setattr(settings, "reach", 9), "an attribute of a module")
unchanged = lambda b, h, i, j: i < settings.reach  # noqa: E731
before = key(unchanged)
settings.other = 2
assert key(unchanged) == before, "an attribute that is not named"
read_reach = lambda module: module.reach  # noqa: E731
changes(lambda b, h, i, j: i < read_reach(settings), lambda: setattr(settings, "reach", 8), "a module handed over")
settings.inner = types.ModuleType("inner")
settings.inner.depth = 1
changes(lambda b, h, i, j: i < settings.inner.depth, lambda: setattr(settings.inner, "depth", 2), "a module in a module")


@functools.wraps(math.exp)
def looks_like_a_library(x):
    return x * window


looks_like_a_library.__dict__.clear()
changes(lambda s, b, h, i, j: looks_like_a_library(s), lambda: globals().update(window=window + 1), "what a wrapper reads")


def counter():
    count = 0

    def advance():
        nonlocal count
        count += 1

    return (lambda s, b, h, i, j: s + count), advance


counted, advance = counter()
changes(counted, advance, "a variable of a closure")
helper = lambda i, j: i < j  # noqa: E731
changes(lambda b, h, i, j: helper(i, j), lambda: globals().update(helper=lambda i, j: i > j), "a helper")
tenth = lambda s, b, h, i, j: s + torch.tensor(0.1)  # noqa: E731
torch.set_default_dtype(torch.float64)
wide = key(tenth)
torch.set_default_dtype(torch.float32)
assert wide is not None and wide != key(tenth), "torch's default type"
changes(by_global, lambda: setattr(by_global, "__code__", by_inner.__code__), "the code of a function")

# --- what cannot be told ----------------------------------------------------------------------------------------------------


class Masker:
    reach = 3

    def mask(self, b, h, i, j):
        return i - j < self.reach

    __call__ = mask


masker = Masker()
calls = []


def with_effect(b, h, i, j):
    global window
    window += 1
    return i < window


def with_attribute(b, h, i, j):
    return i < with_attribute.reach


def draws_inside(s, b, h, i, j):
    from numpy import random as drawn

    return s * drawn.rand()


with_attribute.reach = 3
marked = torch.rand(8)
marked.reach = 3
lazy = types.ModuleType("lazy")
lazy.__getattr__ = lambda name: 3
endless = []
endless.append(endless)
unbound = (lambda: (lambda b, h, i, j: later)())  # noqa: E731, F821
for opaque in (masker, masker.mask, lambda b, h, i, j: i < masker.reach, lambda b, h, i, j: i < Masker.reach, with_effect,
               with_attribute, bias(endless), bias(object()), bias([].append), bias(iter([1])), bias(torch.nn.Linear(2, 2)),
               functools.lru_cache(bias), bias(functools.lru_cache(bias)), bias({1, 2}), 3, None,
               lambda b, h, i, j: i < read_reach(with_attribute), lambda b, h, i, j: i < read_reach(marked), bias(getattr),
               lambda b, h, i, j: i < lazy.reach, lambda b, h, i, j: i < getattr(settings, "reach"),
               lambda b, h, i, j: i < globals()["window"], lambda b, h, i, j: i < eval("window"), bias(time.time),
               lambda s, b, h, i, j: s * time.time(), lambda s, b, h, i, j: s * np.random.rand(), draws_inside,
               lambda s, b, h, i, j: s * random.random(), bias(np.random), bias(np.random.rand), bias(random.gauss),
               bias(np.random.RandomState), lambda s, b, h, i, j: s + (lambda: np.random.rand())()):  # fmt: skip
    assert fingerprint(opaque) is None, opaque
assert not trace(masker.mask, "mask", "f32").is_reusable
assert fingerprint(lambda b, h, i, j: missing(i)) is not None  # noqa: F821


def recursive(n, i, j):
    return i < j if n == 0 else recursive(n - 1, j, i)


assert fingerprint(lambda b, h, i, j: recursive(2, i, j)) is not None

# --- regions of functions with equal fingerprints -----------------------------------------------------------------------------

for make_array in (torch.rand, lambda *extents: np.random.rand(*extents)):
    x, y, x2, y2 = [make_array(8) for _ in range(4)]
    order = lambda x, y: lambda s, b, h, i, j: s + y[h] * x[j] + y[i]  # noqa: E731
    region = trace(order(x, y), "score", "f32")
    assert region.is_reusable and set(map(id, region.captures)) == {id(x), id(y)}
    rebound = region.captures_of(fingerprint(order(x2, y2)).tensors)
    assert [id(c) for c in rebound] == [id({id(x): x2, id(y): y2}[id(c)]) for c in region.captures]
    again = trace(order(x2, y2), "score", "f32")
    names = ["%s", "%b", "%h", "%i", "%j"], ["%c0", "%c1"]
    assert region.body(*names) == again.body(*names) and list(map(id, again.captures)) == list(map(id, rebound))
    # What is read but not needed is not captured.
    assert trace(lambda s, b, h, i, j: (x[h], s)[1], "score", "f32").captures == ()

# What was computed from numbers or extents while tracing holds for one call only.
scale = torch.tensor(2.0)
for function in (lambda s, b, h, i, j: s * float(scale), lambda s, b, h, i, j: s + (slopes * 2)[h], lambda s, b, h, i, j: s + slopes.sum(),
                 lambda s, b, h, i, j: s / len(slopes), lambda s, b, h, i, j: s / slopes.shape[0], lambda s, b, h, i, j: s / slopes.numel(),
                 lambda s, b, h, i, j: s + slopes.flip(0)[h], lambda s, b, h, i, j: s + slopes[1:][h], lambda s, b, h, i, j: s if slopes[-1].item() < 2 else -s, lambda s, b, h, i, j: s * slopes[0].item(),
                 lambda s, b, h, i, j: s + slopes.tolist()[0], lambda s, b, h, i, j: s + slopes.to(torch.float64)[h]):  # fmt: skip
    assert not trace(function, "score", "f32").is_reusable, function.__code__
values = np.random.rand(8)
for function in (lambda s, b, h, i, j: s * float(values[0]), lambda s, b, h, i, j: s + (values * 2)[h], lambda s, b, h, i, j: s + values.sum(),
                 lambda s, b, h, i, j: s / len(values), lambda s, b, h, i, j: s / values.shape[0], lambda s, b, h, i, j: s + values[::-1][h],
                 lambda s, b, h, i, j: s + np.flip(values)[h], lambda s, b, h, i, j: s + values.astype(np.float32)[h]):  # fmt: skip
    assert not trace(function, "score", "f32").is_reusable, function.__code__
for function in (lambda s, b, h, i, j: s * scale, lambda s, b, h, i, j: s + slopes[0], lambda s, b, h, i, j: s + slopes[-1], lambda s, b, h, i, j: s + torch.tensor([1.0, 2.0])[h],
                 lambda s, b, h, i, j: s + slopes[h].to(slopes.dtype), lambda s, b, h, i, j: s * slopes.dim(), lambda s, b, h, i, j: s + values[0]):  # fmt: skip
    assert trace(function, "score", "f32").is_reusable, function.__code__

# --- cost -------------------------------------------------------------------------------------------------------------------

quick = [bias(1.0), reads(slopes), lambda b, h, i, j: i - j < window]
for function in quick:
    seconds = min(timeit.repeat(lambda: fingerprint(function), number=1000, repeat=20)) / 1000
    print(f"{seconds * 1e6:.2f} us", file=sys.stderr)
    assert seconds < 20e-6, seconds  # about 1.5 us on an idle machine
