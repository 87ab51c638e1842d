"""Gradients of saccade.attention against differences of its results, on a sample of the pattern library. The soak test
checks all programs."""

import random

import pytest

torch = pytest.importorskip("torch")

import gradient_programs

NAMES = list(gradient_programs.PROGRAMS)
# Every option, and a sample of scores with masks in which each score is.
OPTIONS = NAMES[len(gradient_programs.SCORES) * len(gradient_programs.MASKS):]
SAMPLE = [f"{score} {random.Random(score).choice(list(gradient_programs.MASKS))}".strip()
          for score in gradient_programs.SCORES]


def test_the_pattern_library_is_covered():
    assert len(NAMES) >= 300


@pytest.mark.parametrize("name", SAMPLE + random.Random(1).sample(OPTIONS, 6))
def test_gradients_are_those_of_differences(name):
    gradient_programs.check(name, 1)
