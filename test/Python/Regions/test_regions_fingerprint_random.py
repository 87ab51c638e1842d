"""Functions that capture random nested structures: if one leaf or container is changed and the function computes
something else, its fingerprint is another one, and a compiled mask follows. All small nestings of containers have
different fingerprints.

SACCADE_SEED and SACCADE_FUNCTIONS select other structures than the first 400.
"""

import functools
import itertools
import math
import os
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import saccade
from saccade.regions import fingerprint

FIRST, COUNT = int(os.environ.get("SACCADE_SEED", "0")), int(os.environ.get("SACCADE_FUNCTIONS", "400"))
LEAVES = [0, 1, 2, 5, -1, True, False, 0.0, -0.0, 1.0, 0.5, "a", "b", b"a", None, ..., 1j, complex(-0.0, 1), range(3), range(0, 3, 2),
          range(0, 4, 2), range(5, 5), range(0), np.int32(1), np.int64(1), np.float32(1), np.float32(-0.0), np.float64(0.0),
          np.bool_(True), torch.float32, torch.float64, math.exp, math.log, np.exp, int, float, torch.Size([2])]  # fmt: skip


def scaled(x, by, to=1):
    return (x, by, to)


def defaulting(x):
    return lambda held=x: held


def closing(x):
    return lambda: x


def structure(draw, depth=3):
    """A random nested structure."""
    if depth == 0 or draw.random() < 0.25:
        return draw.choice(LEAVES)
    kind, inner = draw.randrange(6), [structure(draw, depth - 1) for _ in range(draw.randint(0, 3))]
    if kind == 0:
        return tuple(inner)
    if kind == 1:
        return list(inner)
    if kind == 2:
        return {draw.choice(["x", "y", 1, 2.0, (1, 2)]): each for each in inner}
    if kind == 3:
        return functools.partial(scaled, *inner[:1], by=inner[-1:] or 0)
    if kind == 4:
        return defaulting(inner)
    return closing(inner)


def mutated(draw, x):
    """The structure with one leaf or container changed."""
    if isinstance(x, (tuple, list)) and x and not isinstance(x, torch.Size) and draw.random() < 0.8:
        at = draw.randrange(len(x))
        items = [mutated(draw, each) if i == at else each for i, each in enumerate(x)]
        how = draw.random()
        if how < 0.1:
            return tuple(x) if isinstance(x, list) else list(x)
        if how < 0.2:
            return type(x)(reversed(x))
        return type(x)(items)
    if isinstance(x, dict) and x and draw.random() < 0.8:
        chosen = draw.choice(list(x))
        how = draw.random()
        if how < 0.2:
            return dict(reversed(x.items()))
        if how < 0.4:
            return {("z" if key == chosen else key): each for key, each in x.items()}
        return {key: mutated(draw, each) if key == chosen else each for key, each in x.items()}
    if isinstance(x, functools.partial) and draw.random() < 0.8:
        return functools.partial(x.func, *x.args, **{key: mutated(draw, each) for key, each in x.keywords.items()})
    if callable(x) and getattr(x, "__closure__", None) and draw.random() < 0.8:
        return closing(mutated(draw, x.__closure__[0].cell_contents))
    if callable(x) and getattr(x, "__defaults__", None) and draw.random() < 0.8:
        return defaulting(mutated(draw, x.__defaults__[0]))
    return draw.choice(LEAVES)


def shown(x):
    """All that code can read of a structure, as text."""
    if isinstance(x, range):
        return f"range{x.start, x.stop, x.step}"
    if isinstance(x, (tuple, list)):
        return f"{type(x)}[{', '.join(shown(each) for each in x)}]"
    if isinstance(x, dict):
        return f"dict[{', '.join(shown(item) for item in x.items())}]"
    if isinstance(x, functools.partial):
        return f"partial[{shown(x.args)}, {shown(x.keywords)}]"
    if getattr(x, "__closure__", None):
        return f"closure[{shown(x.__closure__[0].cell_contents)}]"
    if getattr(x, "__defaults__", None):
        return f"default[{shown(x.__defaults__)}]"
    return f"{type(x)}{x!r}"


def reads(held):
    return lambda s, b, h, i, j: (s, held)[0]


def test_fingerprint_changes_with_every_leaf_and_container():
    same, other = 0, 0
    for seed in range(FIRST, FIRST + COUNT):
        draw = random.Random(seed)
        first = structure(draw)
        second = mutated(draw, first)
        one, again, changed = (fingerprint(reads(each)) for each in (first, first, second))
        assert one is not None and changed is not None, f"seed {seed}: {shown(first)}"
        keys = [(each.key, each.values(range(len(each.numbers)))) for each in (one, again, changed)]
        assert keys[0] == keys[1] and hash(keys[0]) == hash(keys[1]), f"seed {seed}: {shown(first)}"
        if shown(first) == shown(second):
            same += 1
            continue
        other += 1
        assert keys[0] != keys[2], f"seed {seed}: {shown(first)}\nand\n{shown(second)}"
    assert other > COUNT / 2, f"{other} of {COUNT} structures were changed"


def plain(*held, **named):
    return held, named


def with_defaults(values, named=()):
    function = types.FunctionType(plain.__code__, {})
    function.__defaults__, function.__kwdefaults__ = tuple(values), dict(named)
    return function


CONTAINERS = {"list": list, "tuple": tuple, "default": with_defaults,
              "keyword": lambda values: with_defaults([], enumerate(values)), "dict": lambda values: dict(enumerate(values)),
              "partial": lambda values: functools.partial(plain, *values),
              "named": lambda values: functools.partial(plain, **{f"x{i}": each for i, each in enumerate(values)}),
              "closure": lambda values: closing(tuple(values)), "two": lambda values: with_defaults(values[:1], enumerate(values[1:]))}

LEAST = {"keyword": 1, "named": 1, "two": 2}  # with fewer elements they are other containers


def nestings(size, containers):
    """All sequences of nested containers with `size` containers and numbers 0, as pairs of text and structure."""
    if size == 0:
        yield "", []
    for own in range(1, size + 1):
        rest = list(nestings(size - own, containers))
        for text, inner in nestings(own - 1, containers):
            made = [(f"{name}({text}) ", CONTAINERS[name](inner)) for name in containers if len(inner) >= LEAST.get(name, 0)]
            made += [("0 ", 0)] * (own == 1)
            for (head, first), (tail, others) in itertools.product(made, rest):
                yield head + tail, [first, *others]


@pytest.mark.parametrize(("size", "containers"), [(3, list(CONTAINERS)), (5, ["tuple", "default"]), (5, ["list", "dict"])])
def test_fingerprints_of_all_small_nestings_differ(size, containers):
    seen = {}
    for each in range(size + 1):
        for text, held in nestings(each, containers):
            other = seen.setdefault(fingerprint(reads(held)).key, text)
            assert other == text, f"[{other}] and [{text}]"
    assert len(seen) > 500


# Structures, and what a mask reads of them: its results follow every one of a list, one after another.
FOLLOWED = {
    "range": ([range(0, 3, 2), range(0, 4, 2), range(1)], lambda x: x.stop),
    "nested": ([{"a": (1, [2, 3])}, {"a": (1, [2, 5])}, {"a": (1, [2, 3])}], lambda x: x["a"][1][1]),
    "partial": ([functools.partial(scaled, by=2), functools.partial(scaled, by=4)], lambda x: x.keywords["by"]),
    "closure": ([lambda: 3, lambda: 5], lambda x: x()),
}


@pytest.mark.parametrize("name", FOLLOWED)
def test_results_follow_a_captured_structure(name):
    structures, read = FOLLOWED[name]
    q = torch.ones(1, 1, 6, 8)
    v = torch.eye(6, 8)[None, None]
    for held in structures:
        found = saccade.attention(q, q, v, mask=lambda b, h, i, j: j < read(held))
        expected = torch.zeros(1, 1, 6, 8)
        expected[..., : read(held)] = 1 / read(held)
        torch.testing.assert_close(found, expected)
