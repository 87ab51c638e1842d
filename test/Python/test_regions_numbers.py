"""Numbers that the tracer computes itself: constants that fold, the ends of integer types, the largest float of a type,
and the parameters that a function of NumPy takes."""

import re
import struct
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from saccade.regions import trace


def text_of(region):
    text = region.body(["%s", "%b", "%h", "%i", "%j"], [f"%c{i}" for i in range(len(region.captures))])
    return text if isinstance(text, str) else "\n".join(text)


def body(function, precision="f32"):
    return text_of(trace(function, "score", precision))


def constants(text):
    """The numbers of a text. Floats are written by their bits."""
    found = []
    for number, element in re.findall(r"constant (\S+) : (\w+)", text):
        kind = {"f32": ("<I", "<f"), "f64": ("<Q", "<d")}.get(element)
        found.append(struct.unpack(kind[1], struct.pack(kind[0], int(number, 16)))[0] if number.startswith("0x") else float(number))
    return found


NOTHING = {
    "i + 0": lambda s, b, h, i, j: s + (i + 0), "0 + i": lambda s, b, h, i, j: s + (0 + i),
    "i - 0": lambda s, b, h, i, j: s + (i - 0), "i * 1": lambda s, b, h, i, j: s + (i * 1),
    "1 * i": lambda s, b, h, i, j: s + (1 * i),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_neutral_integers_leave_no_op(name):
    assert body(NOTHING[name]) == body(lambda s, b, h, i, j: s + i)


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("width", [32, 64])
def test_floats_saturate_at_the_ends_of_integers(precision, width):
    """The bounds of a cast are the least integer and the largest float below the next power of two."""
    dtype = {32: torch.int32, 64: torch.int64}[width]
    text = body(lambda s, b, h, i, j: s + s.to(dtype), precision)
    real = {"f32": np.float32, "f64": np.float64}[precision]
    # The largest one that the type holds; an integer of 32 bits is one of f64.
    highest = min(float(np.nextafter(real(2.0 ** (width - 1)), real(0))), float(2 ** (width - 1) - 1))
    assert {-(2.0 ** (width - 1)), highest} <= set(constants(text)), text


@pytest.mark.parametrize("precision", ["f32", "f64"])
def test_infinities_become_the_largest_floats(precision):
    largest = float(np.finfo({"f32": np.float32, "f64": np.float64}[precision]).max)
    for function in (lambda s, b, h, i, j: torch.nan_to_num(s), lambda s, b, h, i, j: np.nan_to_num(s)):
        text = body(function, precision)
        assert {largest, -largest} <= set(constants(text)), text


def by_default(table):
    def score(s, b, h, i, j, x=table):
        return s + x[h]

    return score


def by_nested_code(table):
    module = types.ModuleType("tables")
    module.table = table

    def score(s, b, h, i, j):
        def read():
            return module.table[h]

        return s + read()

    return score


@pytest.mark.parametrize("make", [by_default, by_nested_code])
@pytest.mark.parametrize("table", [torch.rand(8), np.arange(8, dtype=np.float32)], ids=["torch", "numpy"])
def test_the_library_of_an_array_that_is_bound_once(make, table):
    """The array tells whether the function is traced with torch or NumPy, however the function reaches it."""
    region = trace(make(table), "score", "f32")
    assert len(region.captures) == 1
    assert region.captures[0] is table


# Pairs of the same: the type of a result is that of the first argument, or the given one; arguments by name and position.
SAME = {
    "integers": (lambda s, b, h, i, j: s + np.full_like(i, 2.7), lambda s, b, h, i, j: s + 2),
    "floats": (lambda s, b, h, i, j: s + np.full_like(s, 2.5), lambda s, b, h, i, j: s + 2.5),
    "given type": (lambda s, b, h, i, j: s + np.full_like(s, 2.7, dtype=np.int64), lambda s, b, h, i, j: s + 2),
    "zeros": (lambda s, b, h, i, j: s + np.where(i > j, np.zeros_like(i), i),
              lambda s, b, h, i, j: s + np.where(i > j, i * 0, i)),
    "clip": (lambda s, b, h, i, j: s + np.clip(a=i, a_min=0, a_max=5), lambda s, b, h, i, j: s + np.clip(i, 0, 5)),
    "round": (lambda s, b, h, i, j: np.round(a=s), lambda s, b, h, i, j: np.round(s)),
    "around": (lambda s, b, h, i, j: np.around(a=s), lambda s, b, h, i, j: np.around(s)),
    "ones": (lambda s, b, h, i, j: s + np.ones_like(a=i), lambda s, b, h, i, j: s + np.ones_like(i)),
    "full": (lambda s, b, h, i, j: s + np.full_like(a=i, fill_value=3), lambda s, b, h, i, j: s + np.full_like(i, 3)),
    "largest": (lambda s, b, h, i, j: np.nan_to_num(x=s), lambda s, b, h, i, j: np.nan_to_num(s)),
}  # fmt: skip


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("name", SAME)
def test_arguments_of_numpy(name, precision):
    first, second = SAME[name]
    assert body(first, precision) == body(second, precision)


def test_constants_of_numpy_are_computed_and_positions_captured():
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    for index in (slice(1, 3), [2, 0], np.array([1, 2]), (slice(None), 1), ..., None):
        captured = trace(lambda s, b, h, i, j, index=index: s + array[index].sum(), "score", "f32")
        assert not captured.captures, index
        assert float(array[index].sum()) in constants(text_of(captured))
    region = trace(lambda s, b, h, i, j: s + array[2][j] + array[h, 1] + array[h][j], "score", "f32")
    assert len(region.captures) == 1
    assert region.captures[0] is array


def test_bits_of_numbers_that_may_be_negative_are_computed():
    """x & 7 is from 0 to 7, but not from 0 to the largest x if x may be negative."""
    for function in (lambda s, b, h, i, j: s + ((-i) & 7), lambda s, b, h, i, j: s + (7 & (-i)),
                     lambda s, b, h, i, j: s + ((i - j) & -8), lambda s, b, h, i, j: s + (j & -8)):  # fmt: skip
        assert "arith.andi" in body(function)
