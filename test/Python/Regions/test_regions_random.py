"""Random functions trace over torch and over NumPy alike, and what is compiled of them equals float64 torch on grids.

All of 200 functions are traced, every fifth is compiled. SACCADE_SEED and SACCADE_FUNCTIONS select others, of which
every one is compiled.

Functions that reach random numbers in random ways follow their values: as operands of the region, or as constants in its
key.
"""

import functools
import os
import random
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from node_values import evaluate
from random_functions import RandomFunctions
from region_reference import DEPTH, QUERIES, Case, inputs, run, shape

import saccade
from saccade._functions import region_of

FIRST, COUNT = int(os.environ.get("SACCADE_SEED", "0")), int(os.environ.get("SACCADE_FUNCTIONS", "200"))
SEEDS = range(FIRST, FIRST + COUNT)
COMPILED = [seed for seed in SEEDS if "SACCADE_FUNCTIONS" in os.environ or seed % 5 == 0]
PART = 40  # functions in one program


@functools.cache
def traced(seed):
    """The functions of a seed, and their cases over torch and over NumPy."""
    precision = "f64" if seed % 3 == 0 else "f32"
    queries = QUERIES[seed // 10 % 2]
    floats = [np.float64] if precision == "f64" else [np.float32, np.float64]
    functions = RandomFunctions(seed, shape(queries), floats=floats)
    return functions, [Case(f"seed {seed}", *functions.make(library), precision, queries) for library in (torch, np)]


def case_of(seed):
    """The case that is compiled: torch's or NumPy's."""
    return traced(seed)[1][seed // 5 % 2]


@functools.cache
def results(part):
    """(softmax, log-sum-exp) by seed, of one program."""
    seeds = COMPILED[part * PART: (part + 1) * PART]
    return dict(zip(seeds, run([case_of(seed) for seed in seeds])))


@pytest.mark.parametrize("seed", SEEDS)
def test_regions_of_random_functions_are_reusable(seed):
    _, cases = traced(seed)
    assert all(region.is_reusable for case in cases for region in (case.score_region, case.mask_region) if region)


@pytest.mark.parametrize("seed", COMPILED)
def test_compiled_random_function_agrees_with_float64(seed):
    functions, case = traced(seed)[0], case_of(seed)
    softmax, lse = results(COMPILED.index(seed) // PART)[seed]
    query, key, _ = inputs(case.queries)
    scaled = torch.tensor(np.einsum("bhid,bhjd->bhij", query, key) / np.sqrt(DEPTH))
    scores, allowed = functions.on_grid(scaled)
    scores = torch.where(allowed, scores, -torch.inf)
    expected = scores.softmax(-1).nan_to_num().numpy()
    error, limit = np.abs(softmax - expected).max(), 2e-5 if case.precision == "f32" else 1e-12
    assert error < limit, functions.text
    assert np.allclose(lse, scores.logsumexp(-1), limit, limit), functions.text


# --- numbers that change between calls --------------------------------------------------------------------------------

NUMBERS = [0, 1, 2, 3, 5, -1, -2, 7, 40, 0.0, -0.0, 1.0, 0.5, -1.5, 2.0, 3.25, 2**31, -(2**33), 1e15, -1e30, float("inf"), True, False]
TABLES = {"words": np.array([3, 0, 2, 1, 3, 2], np.int32), "bytes_": np.array([200, 3, 0, 7, 255, 1], np.uint8),
          "small": np.array([-100, 3, 0, 7, 100, 1], np.int8), "reals": np.array([0.5, -1.25, 3.0, 0.0, 2.0, 1.0])}  # fmt: skip
PLACES = [(0.75, 0, 0, 0, 0), (-1.5, 1, 2, 3, 5), (2.0, 0, 1, 5, 2), (0.25, 1, 0, 4, 4)]
# {n}, {m}: numbers; {e}, {f}: expressions.
TERMS = [
    "({e} + {n})", "({n} - {e})", "({e} * {n})", "({n} * {e} - {m})", "({e} / {n})", "({n} / (x.abs({e}) + 1))", "({e} // {n})",
    "({e} % {n})", "(({e} + {n}) // 4)", "(({e} + {n}) % 5)", "x.where({e} < {n}, {e}, {f})", "x.where(i < {n}, {n}, {m})",
    "x.minimum({e}, i + {n})", "x.maximum({e}, {f} * {n})", "x.clip({e}, {n}, {n} + 3)", "({e} + ({n} + {m}))", "({e} * ({n} - {m} * 2))",
    "({e} + {n} * {m})", "({e} - {n} / 4)", "({e} * -{n})", "({e} + abs({n}))", "({e} if {n} > 2 else {f})", "({e} + len(range({n} % 3)))",
    "({e} + [1.5, -2, 4][{n} % 3])", "({e} + words[j] * {n})", "(bytes_[j] + {n} + {e})", "(small[j] - {n} + {e})", "({e} + words[{n} % 5])",
    "(reals[j] * {n} + {e})", "({e} + (words[j] == {n}) * 2)", "({e} + (i >= {n}))", "({e} ** 2 + {n})", "({e} + {n} ** 2)",
    "({e} + {n} // 2)", "({e} + {n} % 3)", "({e} + float({n}) / 2)", "({e} + int({n} if {n} == {n} and abs({n}) < 9 else 0))",
    "({e} + x.exp(-abs(i - j) * 0.1) * {n})", "x.tanh({e} / 2) * {n}", "({e} + (i + {n}) * (j - {m}))", "({e} + round({n} % 8))",
    "({e} + (1 if {n} is {n} else 2))", "({e} + (1 if isinstance({n}, int) else 2))", "({e} + (1 if type({n}) is int else 2))",
    "({e} + max({n}, 1))", "({e} + divmod(i, 3)[0] * {n})", "({e} + helper({n}, j))", "({n} + 0 * {e})",
]  # fmt: skip


def reached(draw, name):
    """How a function reaches a number: an expression of it, and its place."""
    return draw.choice([(name, "closure"), (name, "closure"), (f"globals_{name}", "global"), (f"settings.{name}", "module"),
                        (f"listed[{name[1:]}]", "list"), (f"nested['all'][0][{name[1:]}]", "dict"), (f"default_{name}", "default"),
                        (f"keyword_{name}", "keyword")])  # fmt: skip


class Reaching:
    """A random function of numbers: `make(numbers)` makes it with them."""

    def __init__(self, seed, names):
        draw = random.Random(seed)
        self.names, self.ways = names, [reached(draw, name) for name in names]
        self.is_partial = draw.random() < 0.3

        def expression(depth):
            if depth == 0:
                return draw.choice(["s", "i", "j", "(j - i)", "h", "s * 0.5"])
            term = draw.choice(TERMS)
            first, second = draw.sample(self.ways, 2)
            return term.format(n=first[0], m=second[0], e=expression(depth - 1), f=expression(0))

        self.text = f"s + {expression(draw.randint(1, 3))}"
        defaults = "".join(f", default_{name}={name}" for name, (_, way) in zip(names, self.ways) if way == "default")
        keywords = [f"keyword_{name}={name}" for name, (_, way) in zip(names, self.ways) if way == "keyword"]
        if not self.is_partial:
            defaults += "".join(f", {each}" for each in keywords)
        elif keywords:
            defaults += ", *" + "".join(f", {each.partition('=')[0]}" for each in keywords)
        self.partial = ", ".join(keywords) if self.is_partial else ""
        self.source = (f"def make({', '.join([*names, 'listed', 'nested', *TABLES])}):\n"
                       f"    def helper(number, j):\n        return number + j * {names[0]}\n"
                       f"    function = lambda s, b, h, i, j{defaults}: {self.text}\n"
                       + (f"    function = functools.partial(function, {self.partial})\n" if self.partial else "")
                       + "    return function\n")
        self.code = compile(self.source, "reaching", "exec")

    def make(self, numbers):
        settings = types.ModuleType("settings")
        scope = {"functools": functools, "settings": settings, "x": torch}
        for name, number in zip(self.names, numbers):
            setattr(settings, name, number)
            scope[f"globals_{name}"] = number
        # One code for all values, as in a loop of a program.
        exec(self.code, scope)
        listed = list(numbers)
        return scope["make"](*numbers, listed, {"all": (listed, 1)}, *map(torch.tensor, TABLES.values()))


def follows(seed):
    """What is wrong with the function of a seed, None if nothing is, and how many calls had other numbers than those that
    their region was traced with."""
    names = [f"n{at}" for at in range(3)]
    reaching, draw = Reaching(seed, names), random.Random(f"values {seed}")
    reused = 0
    numbers = [draw.choice(NUMBERS) for _ in names]
    known = {}
    for _ in range(6):
        numbers = [draw.choice(NUMBERS) if draw.random() < 0.4 else number + 1 if draw.random() < 0.4 and number is not True else number
                   for number in numbers]  # fmt: skip
        function = reaching.make(numbers)
        try:
            expected = [float(function(torch.tensor(place[0]), *map(torch.tensor, place[1:]))) for place in PLACES]
        except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError):  # Python or torch refuses the numbers
            continue
        try:
            region, _, captures = region_of("score", function, "cpu", "f64", True)
        except (TypeError, ZeroDivisionError) as error:
            if "regions do not support" in str(error) or "raises an integer" in str(error) or "boolean" in str(error):
                continue
            return f"seed {seed}: {numbers}: {reaching.source}{error}", 0
        _, first = known.setdefault(id(region.root), (region.root, repr(numbers)))
        reused += first != repr(numbers)
        found = [evaluate(region.root, place, {name: value.numpy() if isinstance(value, torch.Tensor) else value
                                               for name, value in zip(region.names, captures)}) for place in PLACES]  # fmt: skip
        if not np.allclose(found, expected, 1e-9, 1e-9, equal_nan=True):
            return f"seed {seed}: {numbers}: {reaching.source}{found}, expected {expected}, baked {region.baked}", 0
    return None, reused


@pytest.mark.parametrize("first", range(FIRST, FIRST + 2 * COUNT, PART))
def test_random_functions_follow_their_numbers(first):
    saccade.cache_clear()
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # the type of scores here, to which Python floats are converted
    try:
        found = [follows(seed) for seed in range(first, first + PART)]
    finally:
        torch.set_default_dtype(default)
    wrong = [each for each, _ in found if each]
    assert not wrong, "\n".join(wrong[:3])
    assert sum(reused for _, reused in found) > PART / 2, "regions are not found again"
