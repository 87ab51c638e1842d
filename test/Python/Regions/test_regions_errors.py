"""Functions that cannot be traced are refused with what is wrong, where, and what to write instead."""

import functools
import math
import pickle
import random
import re

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

from saccade.regions import TraceError, trace

table = torch.rand(4, 8)
vector = torch.rand(8)
array, point = table.numpy().copy(), np.array(2.0)
holder = [torch.rand(2, 2)]
bytes_ = torch.ones(8, dtype=torch.uint8)
scale, parameter = torch.tensor(2.0), torch.nn.Parameter(torch.rand(8))


def named_branch(b, h, i, j):
    if i > j:
        return True
    return False


def whole_number(b, h, i, j):
    return np.bitwise_and(i, j)


def mutates_capture(s, b, h, i, j):
    vector[0] = 1.0
    return s + vector[h]


def store(s, b, h, i, j):
    array[h] = s
    return s


def grow(s, b, h, i, j):
    x = array
    x += 1
    return s + x[h, j]


def one_of_many(s, b, h, i, j):
    x = torch.zeros(3)
    x[1] = s
    return x[1]


def swallows(s, b, h, i, j):
    try:
        if i > j:
            return s * b
        return s
    except Exception:
        return s - 1


def swallows_capture(s, b, h, i, j):
    try:
        return s + parameter[h]
    except Exception:
        return s


def raises_instead(s, b, h, i, j):
    try:
        return [s][int(j)]
    except TypeError:
        raise KeyError("no such key") from None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.ones(2, 2), requires_grad=False)
        self.inner = torch.nn.Module()
        self.inner.register_buffer("table", torch.ones(2, 2))

    def score(self, s, b, h, i, j):
        return s + self.table[h]

    def inner_score(self, s, b, h, i, j):
        return s + self.inner.table[h]

    def forward(self, s, b, h, i, j):
        return s + self.table


def no_number(s, b, h, i, j):
    return s, s

def line(function, offset, text):
    """What messages say of a line of a function of this file."""
    return f"test_regions_errors.py, line {function.__code__.co_firstlineno + offset}: {text}"


# The role, a function, and what the message must say.
VALUES = [
    ("mask", named_branch, ["mask function 'named_branch'", "uses the value", "torch.where", "&, |, ~",
                            line(named_branch, 1, "if i > j:")]),
    ("mask", lambda b, h, i, j: i > j and h > 0, ["uses the value", "torch.where"]),
    ("mask", lambda b, h, i, j: not i > j, ["uses the value"]),
    ("score", lambda s, b, h, i, j: s * [1, 2][int(h)], ["score function uses the value", "int()"]),
    ("score", lambda s, b, h, i, j: s * math.exp(h), ["uses the value", "functions of math"]),
    ("score", lambda s, b, h, i, j: s * h.item(), ["uses the value", ".item()"]),
    ("score", lambda s, b, h, i, j: s * h.tolist(), ["uses the value"]),
    ("score", lambda s, b, h, i, j: s * sum(range(h)), ["uses the value"]),
    ("score", lambda s, b, h, i, j: vector[h] * np.exp(s),
     ["passes <score of query i and key j> to NumPy", "torch.tanh"]),
    ("score", lambda s, b, h, i, j: s * np.tanh(vector[0]), ["passes <float32, computed", "to NumPy"]),
    ("score", lambda s, b, h, i, j: s * np.tanh(scale), ["passes 'scale', a torch tensor, to NumPy"]),
    ("score", lambda s, b, h, i, j: torch.minimum(s, s) * min(i, j), ["uses the value", "torch.minimum"]),
    ("mask", lambda b, h, i, j: array[i, j] > 0 and True, ["uses the value", "np.where"]),
    ("mask", lambda b, h, i, j: array[int(i), j] > 0, ["uses the value", ".astype(dtype)"]),
    ("mask", lambda b, h, i, j: array[i, 0] > 0 if i > j else False, ["uses the value"]),
    ("mask", lambda b, h, i, j: (np.arange(9)[i] > 0) & (array[0, 0] > 0), ["by name instead of creating"]),
]  # fmt: skip
CAUGHT = [
    ("score", swallows, TraceError, ["uses the value", line(swallows, 2, "if i > j:")]),
    ("score", lambda s, b, h, i, j: swallows(s, vector[h], h, i, j), TraceError, ["uses the value"]),
    ("score", lambda s, b, h, i, j: swallows(s, array[h, j], h, i, j), TraceError, ["uses the value", "np.where"]),
    ("score", swallows_capture, ValueError, ["'parameter'", "requires grad"]),
    ("score", raises_instead, TraceError, ["uses the value", "int()"]),
]  # fmt: skip
READS = [
    ("score", lambda s, b, h, i, j: vector + s, ["'vector'", "which has 1 dimension:", "vector[b]"]),
    ("score", Model().score, ["'self.table'", "1 index,"]),
    ("score", Model().inner_score, ["'self.inner.table'", "1 index,"]),
    ("score", Model(), ["'self.table'", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + table[h], ["'table'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: table[h], ["'table'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + vector[h, j], ["'vector'", "2 indices", "1 dimension"]),
    ("score", lambda s, b, h, i, j: s + vector[h][j], ["indexes a number"]),
    ("score", lambda s, b, h, i, j: s + holder[0][h], ["'holder[0]'", "1 index", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + table[h, :], ["'table'", "a slice", "2 integers"]),
    ("score", lambda s, b, h, i, j: s + table[:, j][h], ["'table'", "a slice"]),
    ("score", lambda s, b, h, i, j: s + table[None, h], ["'table'", "None"]),
    ("score", lambda s, b, h, i, j: s + table[h, s], ["'table'", "float32", "an integer"]),
    ("score", lambda s, b, h, i, j: s + table[h, i > j], ["'table'", "bool", "an integer"]),
    ("score", lambda s, b, h, i, j: s + table, ["'table'", "2 dimensions", "table[b, h]"]),
    ("score", lambda s, b, h, i, j: s * s[0], ["indexes a number"]),
    ("score", lambda s, b, h, i, j: s + array[h], ["'array'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + array[h, j, i], ["'array'", "3 indices", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + array[:, j], ["'array'", "a slice"]),
    ("score", lambda s, b, h, i, j: s + array[h, s], ["'array'", "float32"]),
    ("score", lambda s, b, h, i, j: s + array, ["'array'", "all of", "e.g. array[b, h]", "2 dimensions"]),
    ("score", one_of_many, ["writes a position or a score into an element", "torch.where", "x[1] = s"]),
    ("score", lambda s, b, h, i, j: torch.zeros(1).add_(s)[0], ["writes a position or a score"]),
]  # fmt: skip
CALLS = [
    ("score", lambda s, b, h, i, j: torch.lgamma(s), ["calls 'lgamma'", "regions do not support"]),
    ("score", lambda s, b, h, i, j: torch.stack([s, s]).sum(), ["calls 'stack'"]),
    ("score", lambda s, b, h, i, j: s.reshape(1), ["calls 'view'"]),
    ("score", lambda s, b, h, i, j: torch.round(s, decimals=2), ["calls 'round'"]),
    ("score", lambda s, b, h, i, j: s + torch.rand(()), ["draws random numbers"]),
    ("score", lambda s, b, h, i, j: torch.rand_like(s), ["calls 'rand_like'"]),
    ("score", lambda s, b, h, i, j: np.i0(s) + array[0, 0], ["np.i0"]),
    ("score", lambda s, b, h, i, j: np.heaviside(s, array[h, j]), ["calls np.heaviside"]),
    ("score", lambda s, b, h, i, j: np.sum([s, array[h, j]]), []),
    ("score", lambda s, b, h, i, j: 3 ** i * s, ["power", "convert one of them to float"]),
    ("score", lambda s, b, h, i, j: s * i ** -1, ["power -1", "write -1.0"]),
    ("score", lambda s, b, h, i, j: s.to(torch.complex64), ["complex64", "float32"]),
    ("mask", lambda b, h, i, j: -(i > j), ["negates a boolean"]),
    ("mask", lambda b, h, i, j: (i > j) - (j > i), ["subtracts booleans"]),
    ("score", lambda s, b, h, i, j: s & 1, ["bit by bit"]),
]  # fmt: skip
WRITES = [
    ("score", mutates_capture, ["changes 'vector'"]),
    ("score", lambda s, b, h, i, j: vector.mul_(2)[h], ["changes 'vector'"]),
    ("score", store, ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: array.fill(3), ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: array[0].sort(), ["changes"]),
    ("score", lambda s, b, h, i, j: np.copyto(array, 3), ["read-only", "it may only read"]),
    ("score", lambda s, b, h, i, j: np.copyto(array[1:, ::2], 3), ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.multiply(array, 2, out=array), ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.add(array, 2, out=s), ["np.add with out"]),
    ("score", lambda s, b, h, i, j: np.add.at(array, (0, 0), 1), ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: np.add.at(array[1:], (0, 0), 1), ["changes"]),
    ("score", lambda s, b, h, i, j: np.put(array, 0, 1), ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.asarray(array).fill(1), ["it may only read"]),
    ("score", lambda s, b, h, i, j: array.T.base.fill(1), ["it may only read"]),
    ("score", lambda s, b, h, i, j: [row.fill(1) for row in array], ["it may only read"]),
    ("score", grow, ["it may only read", line(grow, 2, "x += 1")]),
    ("score", lambda s, b, h, i, j: point.fill(1), ["changes 'point'"]),
]  # fmt: skip
RESULTS = [
    ("mask", lambda b, h, i: True, ["takes (b, h, i)", "expected (b, h, i, j)"]),
    ("score", lambda b, h, i, j: 1.0, ["takes (b, h, i, j)", "expected (s, b, h, i, j)"]),
    ("mask", 3, ["mask is a int", "expected a function of (b, h, i, j)"]),
    ("mask", torch.ones(3, 3, dtype=torch.bool), ["mask is a Tensor", "expected a function"]),
    ("mask", lambda b, h, i, j: None, ["returns None", "expected a boolean"]),
    ("score", lambda s, b, h, i, j: "s", ["returns a str", "a number"]),
    ("score", lambda s, b, h, i, j: (s, s), ["returns a tuple"]),
    ("score", no_number, ["returns a tuple", "(" + line(no_number, 0, "def no_number(")]),
    ("score", functools.partial(no_number), ["returns a tuple", "(" + line(no_number, 0, "def")]),
    ("mask", no_number, ["takes (s, b, h, i, j)", "(" + line(no_number, 0, "def no_number(")]),
    ("score", lambda s, b, h, i, j: torch.ones(3), ["a tensor of 1 dimension,", "expected a number"]),
    ("mask", lambda b, h, i, j: j - i * 0.5, ["returns a float32", "expected a boolean", "use a score function"]),
    ("mask", lambda b, h, i, j: (i + j) % 3, ["returns an int64", "expected a boolean", "!= 0"]),
    ("mask", lambda b, h, i, j: bytes_[h], ["returns a uint8", "expected a boolean", "!= 0"]),
    ("mask", lambda b, h, i, j: 1, ["returns an int64", "expected a boolean", "!= 0"]),
    ("mask", whole_number, ["returns an int64", "(" + line(whole_number, 0, "def whole_number(")]),
    ("score", lambda s, b, h, i, j: i > j, ["returns a boolean", "use a mask function"]),
    ("score", lambda s, b, h, i, j: array[h, j] > 0, ["returns a boolean", "use a mask function"]),
]  # fmt: skip


@pytest.fixture(autouse=True)
def unchanged():
    """No test changes a table."""
    tables = table.numpy(), vector.numpy(), array, point
    before = [x.copy() for x in tables]
    yield
    assert all(map(np.array_equal, tables, before)), "tracing changed a table"


def check(role, function, words, exception=TraceError):
    """The function is refused with all words; random numbers are where they were."""
    before = random.getstate()
    said = str(refused(exception, [], trace, function, role, "f32"))
    if getattr(function, "__name__", "") == "<lambda>":  # its line has the words that are looked for
        said = said.partition("(test_regions_errors.py, line ")[0]
    missing = [word for word in words if word not in said]
    assert not missing, said
    assert random.getstate() == before


def each(cases):
    """One test for each case, named by what its message says."""
    return pytest.mark.parametrize("case", cases, ids=[" ".join([role, *words[:1]]) for role, _, *_, words in cases])


@each(VALUES)
def test_use_of_a_value_is_refused(case):
    check(*case)


@each(CAUGHT)
def test_refusal_that_the_function_catches_is_raised_all_the_same(case):
    role, function, exception, words = case
    check(role, function, words, exception)


@each(READS)
def test_wrong_read_of_a_table_is_refused(case):
    check(*case)


@each(CALLS)
def test_call_that_regions_do_not_support_is_refused(case):
    check(*case)


@each(WRITES)
def test_write_to_a_table_is_refused(case):
    check(*case)


@each(RESULTS)
def test_wrong_arguments_and_results_are_refused(case):
    check(*case)


def test_trace_error_is_a_type_error_with_the_line_at_fault():
    # That line is not the function's first one.
    with pytest.raises(TypeError, match=re.escape(line(named_branch, 1, "if i > j:"))):
        trace(named_branch, "mask", "f32")


def test_error_of_the_function_itself_stays_and_tracing_works_again():
    with pytest.raises(NameError):
        trace(lambda s, b, h, i, j: s + undefined[h], "score", "f32")  # noqa: F821
    assert trace(lambda s, b, h, i, j: s + vector[h], "score", "f32").capture_types == ("tensor<?xf32>",)


@pytest.mark.parametrize(("role", "precision"), [("bias", "f32"), ("score", "bf16")])
def test_unknown_role_or_precision_is_refused(role, precision):
    with pytest.raises(ValueError, match=f"found role '{role}' and precision '{precision}'"):
        trace(named_branch, role, precision)


@pytest.mark.parametrize("x", [table, array], ids=["torch", "numpy"])
def test_printed_stand_ins_say_what_they_are(x, capsys):
    function = lambda s, b, h, i, j: (print(s, f"{s:.3f} {b!r} {h!s}", [i], j, s * 2, x[h]), s + x[h, j])[1]
    trace(function, "score", "f32")
    score, computed = "<score of query i and key j>", "<float32, computed from positions or scores>"
    assert capsys.readouterr().out == (f"{score} {score} <batch index> <head index> [<query index>] <key index> "
                                       f"{computed} <a part of 'x'>\n")


def test_trace_error_is_of_saccade_and_can_be_pickled():
    assert TraceError.__module__ == "saccade"
    assert pickle.loads(pickle.dumps(TraceError("so"))).args == ("so",)
