"""Numbers that the tracer computes itself: constants that fold, the ends of integer types, the largest float of a type,
and the parameters that a function of NumPy takes."""

import itertools
import math
import operator
import re
import struct
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from node_values import evaluate
from programs import refused

from saccade.regions import TraceError, trace
from saccade.regions.expression import Builder


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
    "1 * i": lambda s, b, h, i, j: s + (1 * i), "abs(i)": lambda s, b, h, i, j: s + abs(i),
    "max(i, i)": lambda s, b, h, i, j: s + torch.where(j > 3, i, i),
}  # fmt: skip


@pytest.mark.parametrize("name", NOTHING)
def test_neutral_integers_leave_no_op(name):
    assert body(NOTHING[name]) == body(lambda s, b, h, i, j: s + i)


@pytest.mark.parametrize("shared", [lambda x: x + x, lambda x: torch.where(x > 0, x, -x), lambda x: torch.maximum(x, x * 2)],
                         ids=["sum", "select", "maximum"])
def test_a_value_that_is_used_again_is_computed_once(shared):
    def repeated(count):
        def function(s, b, h, i, j):
            for _ in range(count):
                s = shared(s)
            return s

        text = body(function)
        names = re.findall(r"^\s*(%\w+) =", text, re.M)
        assert len(set(names)) == len(names)
        return len(names)

    few, more, many = map(repeated, (1, 2, 12))
    assert more - few > 0 and many - more == 10 * (more - few)


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


RANGES = [(0, 7), (0, 3), (2, 5), (-3, 4), (-6, -1), (1, 1)]
EXACT = {
    "arith.addi": lambda a, b: a + b, "arith.subi": lambda a, b: a - b, "arith.muli": lambda a, b: a * b,
    "arith.minsi": min, "arith.maxsi": max, "arith.floordivsi": lambda a, b: a // b, "arith.divui": lambda a, b: a // b,
    "arith.remui": lambda a, b: a % b, "arith.andi": lambda a, b: a & b,
}  # fmt: skip
ANY = (-(2**63), 2**63 - 1)


@pytest.mark.parametrize("op", EXACT)
def test_ranges_of_integers_are_exact(op):
    """The least and the greatest result for operands of two ranges. A remainder and a conjunction may begin at 0."""
    builder = Builder("float32", ValueError)
    for left, right in itertools.product(RANGES, RANGES):
        is_unsigned = op in ("arith.divui", "arith.remui", "arith.andi")
        if is_unsigned and min(*left, *right) < 0 or op in ("arith.floordivsi", "arith.divui", "arith.remui") and right[0] <= 0:
            continue
        x, y = (builder.make("argument", (), (op, side, limits), "int64", limits) for side, limits in enumerate((left, right)))
        node = builder.arithmetic(op, x, y)
        results = [EXACT[op](a, b) for a in range(left[0], left[1] + 1) for b in range(right[0], right[1] + 1)]
        least, greatest = min(results), max(results)
        if op in ("arith.remui", "arith.andi"):
            assert node.low == 0 or (node.low, node.high) == (least, greatest)
            least, greatest = node.low, min(left[1], right[1] - (op == "arith.remui")) if node.low == 0 else greatest
        assert (node.low, node.high) == (least, greatest), (op, left, right)


@pytest.mark.parametrize(("text", "low", "high"), [
    ("i", 0, 2**30), ("i % 7", 0, 6), ("7 % (i + 1)", 0, 7), ("i // 4", 0, 2**28), ("i & 7", 0, 7), ("7 & i", 0, 7), ("abs(i - 3)", -3, 2**30 - 3),
    ("i - j", -(2**30), 2**30), ("(i - j) % 5", 0, 4), ("(j - i) // 2", -(2**29), 2**29), ("(i - j).clamp(-2, 9)", -2, 9),
    ("torch.where(i > j, 3, -1)", -1, 3), ("(i > j).long()", 0, 1), ("torch.minimum(i, j) + 1", 1, 2**30 + 1), ("i.int()", 0, 2**30),
    ("-i", -(2**30), 0), ("i * j", 0, 2**60), ("i * i * i", *ANY), ("~i", *ANY), ("i - (2**63 - 1) - 2", *ANY), ("i.to(torch.uint8)", 0, 255),
    ("torch.fmod(i, 5)", 0, 4), ("i % (j + 1)", 0, 2**30), ("(i % 4) * -3", -9, 0), ("longs[i] % 9", 0, 8), ("longs[j] & 3", *ANY),
])  # fmt: skip
def test_ranges_of_expressions(text, low, high):
    function = eval(f"lambda s, b, h, i, j: torch.where(({text}) != 0, s, 0.5)", {"torch": torch, "longs": torch.arange(9) * 2**40})
    node = trace(function, "score", "f32").root.operands[0].operands[0]
    node = node.operands[0] if node.op == "arith.index_cast" and node.operands[0].dtype != "int64" else node
    assert (node.low, node.high) == (low, high)


@pytest.mark.parametrize("number", [-(2**31), 2**31 - 1, 0])
def test_elements_of_32_bits_are_compared_in_32_bits(number):
    words = torch.zeros(9, dtype=torch.int32)
    for function in (lambda b, h, i, j: words[j] >= number, lambda b, h, i, j: words[j].long() >= number):
        text = text_of(trace(function, "mask", "f32"))
        assert ": i32" in text.partition("arith.cmpi")[2].partition("\n")[0], text


@pytest.mark.parametrize("number", [-(2**40), -129, -128, -1, 0, 127, 128, 200, 256, 2**40])
def test_numpy_compares_with_numbers_that_a_type_does_not_have(number):
    for table in (np.array([-128, -1, 0, 5, 127], np.int8), np.array([0, 5, 127, 200, 255], np.uint8)):
        for compare in (operator.lt, operator.le, operator.gt, operator.ge, operator.eq, operator.ne):
            for function in (lambda b, h, i, j: compare(table[j], number), lambda b, h, i, j: compare(number, table[j])):
                region = trace(function, "mask", "f32")
                for j in range(5):
                    assert evaluate(region.root, (0, 0, 0, j), dict(zip(region.names, region.captures))) == function(0, 0, 0, j), (compare, table.dtype, j)


WHOLE = {
    "floor": (math.floor, np.floor), "ceil": (math.ceil, np.ceil), "trunc": (math.trunc, np.trunc), "round": (round, np.rint),
}  # fmt: skip


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_of_python(name):
    of_python, of_numpy = WHOLE[name]
    expected = body(lambda s, b, h, i, j: of_numpy(s).astype(np.int64) * 2)
    assert body(lambda s, b, h, i, j: of_python(np.positive(s)) * 2) == expected


@pytest.mark.parametrize("index", [lambda i, j: True, lambda i, j: i > j, lambda i, j: 1.0, lambda i, j: i * 0.5])
@pytest.mark.parametrize("table", [torch.rand(8, 3), np.random.rand(8, 3)], ids=["torch", "numpy"])
def test_an_index_is_an_integer(table, index):
    refused(TraceError, ["indexes 'table' with"], trace, lambda s, b, h, i, j: s + table[j, index(i, j)], "score", "f32")


def test_unsigned_bytes_are_no_index():
    table, numbers = torch.rand(8), torch.zeros(8, dtype=torch.uint8)
    refused(TraceError, ["indexes 'table' with a uint8"], trace, lambda s, b, h, i, j: s + table[numbers[j]], "score", "f32")


@pytest.mark.parametrize("precision", ["f32", "f64"])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_integers_become_the_nearest_floats(dtype, precision):
    limits = torch.iinfo(dtype)
    table = torch.tensor([limits.min, limits.max, 0, 1, limits.max // 3, limits.min // 3], dtype=dtype)
    real = {"f32": torch.float32, "f64": torch.float64}[precision]
    for function in (lambda s, b, h, i, j: table[j].to(real), lambda s, b, h, i, j: table[j] * 1.0):
        region = trace(function, "score", precision)
        for j, exact in enumerate(table.to(real).tolist()):
            assert evaluate(region.root, (0.0, 0, 0, 0, j), [table.numpy()]) == exact, j


@pytest.mark.parametrize(("dtype", "highest"), [(torch.int32, 2147483520), (torch.int64, 9223371487098961920)], ids=str)
def test_floats_that_are_no_integers_saturate(dtype, highest):
    lowest = torch.iinfo(dtype).min
    region = trace(lambda s, b, h, i, j: torch.where(s.to(dtype) == 5, 1.0, 0.0), "score", "f32")
    comparison = region.root.operands[0]
    node = next(each for each in comparison.operands if each.constant is None)
    for given, expected in ((math.nan, lowest), (math.inf, highest), (-math.inf, lowest), (1e30, highest), (-1e30, lowest), (2.5, 2),
                            (-2.5, -2), (-0.0, 0), (float(highest), highest)):  # fmt: skip
        assert evaluate(node, (given, 0, 0, 0, 0), []) == expected, given


FILLED = {
    "full": (lambda s, b, h, i, j: s + torch.full_like(s, 2.7, dtype=torch.int64), lambda s, b, h, i, j: s + 2),
    "new": (lambda s, b, h, i, j: s + i.new_full((), 2.5, dtype=torch.float32), lambda s, b, h, i, j: s + 2.5),
    "integers": (lambda s, b, h, i, j: s + torch.full_like(i, 2.7), lambda s, b, h, i, j: s + 2),
    "ones": (lambda s, b, h, i, j: s + s.new_ones((), dtype=torch.int64) // 2, lambda s, b, h, i, j: s + 0 * i),
    "zeros": (lambda s, b, h, i, j: s + torch.zeros_like(s, dtype=torch.int64), lambda s, b, h, i, j: s + 0 * i),
}  # fmt: skip


@pytest.mark.parametrize("name", FILLED)
def test_filled_tensors_have_the_given_type(name):
    first, second = FILLED[name]
    assert body(first) == body(second)
