"""Integer arguments of PyTorch's operators at the ends of their type and beyond the rank of a tensor: the result is
PyTorch's, or the call is refused. None crashes, and none is computed with a default or a wrapped number."""

import copy
import random
import re

import pytest

pytest.importorskip("torch")

import torch
from interpreter import Refused, difference, interpret
from torch_calls import program_of
from torch_drawn import draw
from torch_targets import array, overloads

pytestmark = pytest.mark.filterwarnings("ignore")
EXTREMES = [-(2**63), -(2**31) - 1, -9, 9, 2**31, 2**63 - 1]
# Sizes and strides are left out: PyTorch itself crashes on some.
NAMES = re.compile(r"(dim|axis|start_dim|end_dim|source|destination)[01s]?|dim[12]|diagonal|offset|start|end|index|shifts|length|k")
FAILURES = (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError, OverflowError, MemoryError)


def attempted(overload, given):
    """The results as a list; None if PyTorch refuses the call, or lets the memory of a result be anything."""
    try:
        results = overload(**copy.deepcopy(given))
    except FAILURES:
        return None
    return list(results) if isinstance(results, (tuple, list)) else [results]


def calls(name, overload):
    """A drawn call, and its variants with one integer replaced."""
    draws = random.Random(name)
    for _ in range(20):
        given = draw(overload, draws, torch.float32)
        if attempted(overload, given):
            break
    else:
        return
    for argument in overload._schema.arguments:
        kind, value = str(argument.type), given.get(argument.name)
        if not NAMES.fullmatch(argument.name) or not ("int" in kind.lower() and "Tensor" not in kind):
            continue
        for extreme in EXTREMES:
            if "List" not in kind:
                yield given, given | {argument.name: extreme}
            elif isinstance(value, (list, tuple)):
                for i in range(len(value)):
                    yield given, given | {argument.name: [*value[:i], extreme, *value[i + 1:]]}


OVERLOADS = {name: overload for name, overload in overloads()
             if any(NAMES.fullmatch(argument.name) for argument in overload._schema.arguments)}  # fmt: skip


@pytest.mark.parametrize("name", OVERLOADS)
def test_extreme_integers(name):
    overload = OVERLOADS[name]
    for plain, given in calls(name, overload):
        expected = attempted(overload, given)
        try:
            text, inputs = program_of(overload, given, expected[0] if expected and len(expected) == 1 else
                                      tuple(expected or attempted(overload, plain)))  # fmt: skip
            found = interpret(text, [array(each) for each in inputs])
        except (Refused, *FAILURES):
            continue
        shown = {key: value for key, value in given.items() if not isinstance(value, torch.Tensor)}
        if expected is None and name == "roll.default" and -(2**63) in shown["shifts"]:
            continue  # a shift is a number modulo the extent, which PyTorch does not negate without overflow
        assert expected is not None, f"{name}: PyTorch refuses {shown}"
        for each, own in zip(found, expected, strict=True):
            assert "empty" in name or difference(each, array(own)) == "", f"{name}: {shown}"
