"""Fingerprints are equal where functions compute the same, different where they do not, and cheap."""

import builtins
import functools
import gc
import math
import operator
import random
import sys
import time
import timeit
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch.nn.attention.flex_attention import and_masks, or_masks

from saccade.regions import fingerprint, trace

slopes = torch.rand(8)
a, b = torch.rand(8), torch.rand(8)
window = 4
limits = [3, 5]
config = {"window": 4}
settings = types.ModuleType("settings")
settings.reach, settings.other = 3, 1
settings.inner = types.ModuleType("inner")
settings.inner.depth = 1
helper = lambda i, j: i < j


def key(function):
    """The key and all numbers."""
    found = fingerprint(function)
    return None if found is None else (found.key, found.values(range(len(found.numbers))))


def bias(x):
    return lambda s, b, h, i, j: s + x


def reads(x, y=None):
    return lambda s, b, h, i, j: s + x[h] if y is None else s + x[h] * y[j]


def with_default(default):
    return lambda s, b, h, i, j, x=default: s + x


def with_keyword_default(default):
    return lambda s, b, h, i, j, *, x=default: s + x


# --- the same function, made anew -------------------------------------------------------------------------------------

EQUAL = {
    "numbers": lambda: (bias(1.0), bias(1.0)),
    "tensors of one type and rank": lambda: (reads(torch.rand(8)), reads(torch.rand(3))),
    "arrays of one type and rank": lambda: (reads(np.ones(8)), reads(np.zeros(3))),
    "tensors in other places": lambda: (reads(a, b), reads(b, a)),
    "functions around functions": lambda: (and_masks(bias(1), bias(2)), and_masks(bias(1), bias(2))),
    "partial": lambda: (functools.partial(bias(1), 2, b=3), functools.partial(bias(1), 2, b=3)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_functions_that_compute_the_same_are_equal(name):
    one, other = map(key, EQUAL[name]())
    assert one is not None
    assert one == other
    assert hash(one) == hash(other)


def test_fingerprint_has_the_tensors_that_are_read_each_once():
    assert fingerprint(reads(a, b)).tensors == (a, b)
    assert fingerprint(reads(a, a)).tensors == (a,)
    assert fingerprint(with_keyword_default(slopes)).tensors == (slopes,)


# --- different functions ----------------------------------------------------------------------------------------------

VALUES = [
    (1, 2), (1, 1.0), (1, True), (0, False), (1.0, True), (0.0, -0.0), (1, "1"), (None, 0), (1, torch.float32),
    (np.float32(1), np.float64(1)), (np.int32(1), 1), (np.float32(0), np.float32(-0.0)), ((1, 2), [1, 2]),
    ((1, 2), (1, 2, 3)), ((1,), 1), ({"a": 1}, {"a": 2}), ({"a": 1}, {"b": 1}), (range(3), range(4)),
    (range(0, 3, 2), range(0, 4, 2)), (range(0), range(2, 2)), (complex(0.0, 1.0), complex(-0.0, 1.0)), (b"a", b"b"),
    (torch.float32, torch.float64), (slopes, slopes.double()), (slopes, torch.rand(8, 2)), (slopes, slopes.numpy()),
    (slopes, torch.nn.Parameter(slopes)), (slopes, 1.0), (np.ones(3), np.ones(3, np.float32)), (torch.exp, torch.log),
    (math.exp, math.log), (operator.add, operator.sub), (np.exp, np.log), (np.where, np.clip), (F.relu, F.silu),
    (bias(1), bias(2)), ((slopes, 1), (slopes, 2)), (int, float), (torch, math),
    (torch.Size([1]), torch.Size([2])), (1j, 2j), (functools.partial(max, 1), functools.partial(max, 2)),
    (functools.partial(max, 1), functools.partial(min, 1)), (functools.partial(bias(1)), functools.partial(bias(2))),
    (np.dtype("f4"), np.dtype("f8")),
]  # fmt: skip


@pytest.mark.parametrize(("x", "y"), VALUES)
def test_other_captured_values_differ_and_the_same_is_equal(x, y):
    keys = [key(bias(x)), key(bias(x)), key(bias(y))]
    assert None not in keys
    assert keys[0] == keys[1]
    assert hash(keys[0]) == hash(keys[1])
    assert keys[0] != keys[2]


DIFFERENT = {
    "one tensor twice": (reads(a, b), reads(a, a)),
    "code": (bias(1), reads(slopes)),
    "code around the same function": (and_masks(bias(1)), or_masks(bias(1))),
    "constants in code": (lambda s, b, h, i, j: s + 1, lambda s, b, h, i, j: s + 2),
    "code with defaults": (lambda s, b, h, i, j, x=1: s + x, lambda s, b, h, i, j, x=2: s + x),
    "defaults": (with_default(1), with_default(2)),
    "keyword defaults": (with_keyword_default(1), with_keyword_default(2)),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_functions_that_compute_something_else_differ(name):
    one, other = map(key, DIFFERENT[name])
    assert one is not None
    assert other is not None
    assert one != other


# --- what changes between calls ---------------------------------------------------------------------------------------


def by_global(b, h, i, j):
    return i - j < window


def by_helper(b, h, i, j):
    return by_global(b, h, i, j)


def by_inner(b, h, i, j):
    return (lambda: i - j < window)()


@functools.wraps(math.exp)
def looks_like_a_library(x):
    return x * window


looks_like_a_library.__dict__.clear()
read_reach = lambda module: module.reach
HERE = sys.modules[__name__]

# A function, and what changes what it reads, for one test.
CHANGES = {
    "global": (by_global, lambda patch: patch.setattr(HERE, "window", 5)),
    "global of a helper": (by_helper, lambda patch: patch.setattr(HERE, "window", 5)),
    "global of an inner function": (by_inner, lambda patch: patch.setattr(HERE, "window", 5)),
    "global of a wrapper": (lambda s, b, h, i, j: looks_like_a_library(s),
                            lambda patch: patch.setattr(HERE, "window", 5)),
    "element of a list": (lambda b, h, i, j: i < limits[0], lambda patch: limits.__setitem__(0, 9)),
    "length of a list": (lambda b, h, i, j: i < limits[0], lambda patch: limits.append(9)),
    "dict": (lambda b, h, i, j: i < config["window"], lambda patch: patch.setitem(config, "window", 9)),
    "attribute of a module": (lambda b, h, i, j: i < settings.reach, lambda patch: patch.setattr(settings, "reach", 9)),
    "module handed over": (lambda b, h, i, j: i < read_reach(settings),
                           lambda patch: patch.setattr(settings, "reach", 8)),
    "module in a module": (lambda b, h, i, j: i < settings.inner.depth,
                           lambda patch: patch.setattr(settings.inner, "depth", 2)),
    "helper": (lambda b, h, i, j: helper(i, j), lambda patch: patch.setattr(HERE, "helper", lambda i, j: i > j)),
    "name that becomes a builtin": (lambda b, h, i, j: i < missing,  # noqa: F821
                                    lambda patch: patch.setattr(builtins, "missing", 3, raising=False)),
    "code of a function": (by_global, lambda patch: patch.setattr(by_global, "__code__", by_inner.__code__)),
}


@pytest.fixture
def patch(monkeypatch):
    yield monkeypatch
    limits[:] = [3, 5]


@pytest.mark.parametrize(("function", "change"), CHANGES.values(), ids=CHANGES)
def test_fingerprint_changes_with_what_a_function_reads(function, change, patch):
    before = key(function)
    change(patch)
    assert before is not None
    assert before != key(function)


def test_fingerprint_changes_with_a_variable_of_a_closure():
    count = 0
    function = lambda s, b, h, i, j: s + count
    before = key(function)
    count += 1
    assert before is not None
    assert before != key(function)


def test_fingerprint_changes_with_the_default_type_of_torch():
    function = lambda s, b, h, i, j: s + torch.tensor(0.1)
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        wide = key(function)
        torch.set_default_dtype(torch.float32)
        assert wide is not None
        assert wide != key(function)
    finally:
        torch.set_default_dtype(default)


def test_attribute_that_is_not_named_does_not_count(monkeypatch):
    function = lambda b, h, i, j: i < settings.reach
    before = key(function)
    monkeypatch.setattr(settings, "other", 2)
    assert key(function) == before


# --- functions without a fingerprint -----------------------------------------------------------------------------------


class Masker:
    reach = 3

    def mask(self, b, h, i, j):
        return i - j < self.reach

    __call__ = mask


def with_effect(b, h, i, j):
    global window
    window += 1
    return i < window


def with_attribute(b, h, i, j):
    return i < with_attribute.reach


def draws_inside(s, b, h, i, j):
    from numpy import random as drawn

    return s * drawn.rand()


def counting():
    count = 0

    def mask(b, h, i, j):
        nonlocal count
        count += 1
        return i < count

    return mask


def imports_a_module(b, h, i, j):
    import programs

    return i < len(programs.capped)


masker = Masker()
with_attribute.reach = 3
marked = torch.rand(8)
marked.reach = 3
lazy = types.ModuleType("lazy")
lazy.__getattr__ = lambda name: 3
endless = []
endless.append(endless)
OPAQUE = {
    "object": masker, "method": masker.mask, "attribute of an object": lambda b, h, i, j: i < masker.reach,
    "attribute of a class": lambda b, h, i, j: i < Masker.reach, "effect": with_effect,
    "attribute of a function": with_attribute, "endless list": bias(endless), "instance": bias(object()),
    "method of a list": bias([].append), "iterator": bias(iter([1])), "model": bias(torch.nn.Linear(2, 2)),
    "cached function": functools.lru_cache(bias), "captured cache": bias(functools.lru_cache(bias)),
    "set": bias({1, 2}), "number": 3, "None": None,
    "function handed over": lambda b, h, i, j: i < read_reach(with_attribute),
    "tensor handed over": lambda b, h, i, j: i < read_reach(marked), "getattr": bias(getattr),
    "lazy module": lambda b, h, i, j: i < lazy.reach,
    "call of getattr": lambda b, h, i, j: i < getattr(settings, "reach"),
    "globals()": lambda b, h, i, j: i < globals()["window"], "eval": lambda b, h, i, j: i < eval("window"),
    "time": bias(time.time), "call of time": lambda s, b, h, i, j: s * time.time(),
    "call of np.random": lambda s, b, h, i, j: s * np.random.rand(), "import inside": draws_inside,
    "call of random": lambda s, b, h, i, j: s * random.random(), "np.random": bias(np.random),
    "np.random.rand": bias(np.random.rand), "random.gauss": bias(random.gauss),
    "RandomState": bias(np.random.RandomState),
    "effect on a closure": counting(), "import of a module": imports_a_module,
    "eval in an inner function": lambda b, h, i, j: i < (lambda: eval("window"))(),
    "method of a generator": bias(np.random.default_rng(1).random),
    "np.random in an inner function": lambda s, b, h, i, j: s + (lambda: np.random.rand())(),
}  # fmt: skip


@pytest.mark.parametrize("name", OPAQUE)
def test_function_that_may_compute_anything_has_no_fingerprint(name):
    assert fingerprint(OPAQUE[name]) is None


def test_region_of_a_function_without_fingerprint_is_not_reusable():
    assert not trace(masker.mask, "mask", "f32").is_reusable


def recursive(n, i, j):
    return i < j if n == 0 else recursive(n - 1, j, i)


def test_names_that_do_not_exist_and_recursion_have_fingerprints():
    assert fingerprint(lambda b, h, i, j: missing(i)) is not None  # noqa: F821
    assert fingerprint(lambda b, h, i, j: recursive(2, i, j)) is not None


def test_code_of_a_function_that_is_gone_is_not_taken_for_other_code():
    keys = set()
    for n in range(300):
        function = eval(f"lambda s, b, h, i, j: s + {n}")
        keys.add(key(function))
        del function
        if n % 50 == 0:
            gc.collect()
    assert len(keys) == 300


# --- cost -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("function", [bias(1.0), reads(slopes), lambda b, h, i, j: i - j < window],
                         ids=["number", "tensor", "global"])  # fmt: skip
def test_fingerprint_is_cheap(function):
    seconds = min(timeit.repeat(lambda: fingerprint(function), number=1000, repeat=20)) / 1000
    assert seconds < 20e-6  # about 1.5 us on an idle machine
