"""Random expressions of integers, interpreted at single places: the value is torch's, and every value is in the range that
the tracer claims of it. Divisions of ranges that are too small are made in 32 bits, and negative indices that a range
excludes are not wrapped.

SACCADE_SEED and SACCADE_FUNCTIONS select other functions than the first 400.
"""

import os
import random
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from node_values import evaluate

from saccade.regions import trace

FIRST, COUNT = int(os.environ.get("SACCADE_SEED", "0")), int(os.environ.get("SACCADE_FUNCTIONS", "400"))
PART = 20  # functions in one test
numbers = np.random.default_rng(1)
SIZE = 23


def drawn(dtype, low, high):
    """A table with the extremes of its type."""
    found = numbers.integers(low, high + 1, SIZE, dtype=dtype)
    found[:4] = low, high, 0, 1
    return torch.from_numpy(found)


TABLES = {
    "bytes_": drawn(np.uint8, 0, 255), "small": drawn(np.int8, -128, 127), "short": drawn(np.int16, -32768, 32767),
    "words": drawn(np.int32, -(2**31), 2**31 - 1), "longs": drawn(np.int64, -(2**62), 2**62),
    "near": drawn(np.int64, -SIZE, SIZE - 1), "flags": torch.from_numpy(numbers.random(SIZE) < 0.5),
}  # fmt: skip
TYPES = ["torch.uint8", "torch.int8", "torch.int16", "torch.int32", "torch.int64", "torch.bool"]
CONSTANTS = [-(2**31), -(2**31) - 1, 2**31 - 1, 2**31, -200, -8, -3, -2, -1, 0, 1, 2, 3, 7, 8, 100, 255, 256, 2**40]
PLACES = [(0, 0, 0, 0), (1, 2, 0, 22), (0, 1, 22, 0), (1, 0, 5, 9), (0, 2, 9, 5), (1, 1, 22, 22), (0, 0, 1, 2)]


class Expressions:
    """Texts of random expressions: of integers, and of booleans."""

    def __init__(self, seed):
        self.random = random.Random(seed)

    def integer(self, depth):
        draw, inner = self.random.random, lambda: self.integer(depth - 1)
        if depth == 0 or draw() < 0.1:
            table = self.random.choice([*TABLES][:-1])
            # Positions are most of what users write.
            position = self.random.choice(["i", "j", "i", "j", "h", "b", "(i - j)", "(j - i)"])
            return position if draw() < 0.6 else f"{table}[{self.random.choice('ij')}]"
        kind = self.random.randrange(12)
        if kind < 3:
            return f"({inner()} {self.random.choice('+-*')} {self.either(inner)})"
        if kind == 3:
            return f"({inner()} {self.random.choice(['//', '%'])} {self.divisor(inner)})"
        if kind == 4:
            name, divisor = self.random.choice(["fmod", "div"]), self.divisor(inner)
            return f"torch.{name}({inner()}, {divisor}{', rounding_mode=' + chr(39) + 'trunc' + chr(39) if name == 'div' else ''})"
        if kind == 5:
            return f"({inner()} {self.random.choice('&|^')} {self.either(inner)})"
        if kind == 6:
            return self.random.choice(["abs({})", "(-{})", "(~{})"]).format(inner())
        if kind == 7:
            return f"torch.{self.random.choice(['minimum', 'maximum'])}({inner()}, {inner()})"
        if kind == 8:
            low, high = sorted(self.random.sample(CONSTANTS, 2))
            return self.random.choice([f"({inner()}).clamp({low}, {high})", f"({inner()}).clamp(min={low})", f"({inner()}).clamp(max={high})"])
        if kind == 9:
            return f"torch.where({self.boolean(depth - 1)}, {inner()}, {self.either(inner)})"
        if kind == 10:
            return f"({inner()}).to({self.random.choice(TYPES[:-1])})"
        return f"near[(near[{self.random.choice('ij')}] + {self.random.choice([-1, 0, 1])}) // 2]"

    def either(self, inner):
        return inner() if self.random.random() < 0.5 else f"({self.random.choice(CONSTANTS)})"

    def divisor(self, inner):
        """An expression that is not 0, nor -1, by which C cannot divide the least integer."""
        if self.random.random() < 0.5:
            return f"({self.random.choice([c for c in CONSTANTS if c not in (0, -1)])})"
        return f"unequal({inner()})"

    def boolean(self, depth):
        if depth == 0 or self.random.random() < 0.2:
            return self.random.choice(["flags[j]", "(i > j)", "(i <= j)", "(h == 1)", "(bytes_[i] >= bytes_[j])"])
        inner = lambda: self.boolean(depth - 1)
        kind = self.random.randrange(4)
        if kind == 0:
            comparison = self.random.choice(["<", "<=", ">", ">=", "==", "!="])
            return f"({self.integer(depth - 1)} {comparison} {self.either(lambda: self.integer(depth - 1))})"
        if kind == 1:
            return f"({inner()} {self.random.choice('&|^')} {inner()})"
        if kind == 2:
            return self.random.choice(["(~{})", "torch.logical_not({})"]).format(inner())
        return f"torch.{self.random.choice(['logical_and', 'logical_or', 'logical_xor'])}({self.integer(depth - 1)}, {inner()})"


def unequal(x):
    """x without 0 and -1."""
    return torch.where((x == 0) | (x == -1), 3, x)


NAMES = {**TABLES, "torch": torch, "unequal": unequal}


def wrong(seed):
    """What is wrong with the expression of a seed; None if nothing is."""
    expressions = Expressions(seed)
    text = expressions.boolean(3) if seed % 4 == 0 else expressions.integer(3)
    function = eval(f"lambda s, b, h, i, j: {text}", NAMES)
    seen = {}

    def score(s, b, h, i, j):
        seen["value"] = function(s, b, h, i, j)
        return torch.where(seen["value"] != 0, s, 0.5)

    try:
        region = trace(score, "score", "f32")
    except RuntimeError as error:  # torch refuses it: a number that the type of the other operand does not have
        with pytest.raises(RuntimeError, match=re.escape(str(error))):
            function(None, *map(torch.tensor, PLACES[0]))
        return None
    node = region.root.operands[0]  # whether the value is not 0
    value = node.operands[0] if node.op == "arith.cmpi" and node.attribute == "ne" else node
    captures = {number: array.numpy() for number, array in zip(region.names, region.captures)}
    for place in PLACES:
        try:
            expected = function(None, *map(torch.tensor, place))
        except RuntimeError:  # refused there alone
            continue
        try:
            found = evaluate(value, (None, *place), captures)
        except (AssertionError, ArithmeticError) as error:
            return f"seed {seed} at {place}: {text}: {error}"
        is_same = bool(expected) == bool(found) if value is node else expected.item() == found
        if not is_same:
            return f"seed {seed} at {place}: {text} is {expected.item()}, found {found}"
    return None


@pytest.mark.parametrize("first", range(FIRST, FIRST + COUNT, PART))
def test_integers_are_those_of_torch_and_in_their_ranges(first):
    found = [each for each in map(wrong, range(first, first + PART)) if each]
    assert not found, "\n".join(found)
