"""Functions that cannot be traced are refused with what is wrong, where, and what to write instead.

REQUIRES: numpy, torch
RUN: %python %s
"""

import contextlib
import functools
import io
import math
import pickle
import random

import numpy as np
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from saccade.regions import TraceError, trace

table = torch.rand(4, 8)
vector = torch.rand(8)
array, point = table.numpy().copy(), np.array(2.0)
holder = [torch.rand(2, 2)]
scale, parameter = torch.tensor(2.0), torch.nn.Parameter(torch.rand(8))
with FakeTensorMode():
    fake = torch.rand(8)


def named_branch(b, h, i, j):
    if i > j:
        return True
    return False


def in_place(s, b, h, i, j):
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


# (role, function, exception, what the message must say)
CASES = [
    # Values of positions.
    ("mask", named_branch, TraceError, ["mask function 'named_branch'", "uses the value", "torch.where", "&, |, ~",
                                        "regions_errors.py, line 30: if i > j:"]),
    ("mask", lambda b, h, i, j: i > j and h > 0, TraceError, ["uses the value", "torch.where"]),
    ("mask", lambda b, h, i, j: not i > j, TraceError, ["uses the value"]),
    ("score", lambda s, b, h, i, j: s * [1, 2][int(h)], TraceError, ["score function uses the value", "int()"]),
    ("score", lambda s, b, h, i, j: s * math.exp(h), TraceError, ["uses the value", "functions of math"]),
    ("score", lambda s, b, h, i, j: s * h.item(), TraceError, ["uses the value", ".item()"]),
    ("score", lambda s, b, h, i, j: s * h.tolist(), TraceError, ["uses the value"]),
    ("score", lambda s, b, h, i, j: s * sum(range(h)), TraceError, ["uses the value"]),
    ("score", lambda s, b, h, i, j: vector[h] * np.exp(s), TraceError, ["passes <score of query i and key j> to NumPy", "torch.tanh"]),
    ("score", lambda s, b, h, i, j: s * np.tanh(vector[0]), TraceError, ["passes <float32, computed", "to NumPy"]),
    ("score", lambda s, b, h, i, j: s * np.tanh(scale), TraceError, ["passes 'scale', a torch tensor, to NumPy"]),
    ("score", lambda s, b, h, i, j: torch.minimum(s, s) * min(i, j), TraceError, ["uses the value", "torch.minimum"]),
    ("mask", lambda b, h, i, j: array[i, j] > 0 and True, TraceError, ["uses the value", "np.where"]),
    ("mask", lambda b, h, i, j: array[int(i), j] > 0, TraceError, ["uses the value", ".astype(dtype)"]),
    ("mask", lambda b, h, i, j: array[i, 0] > 0 if i > j else False, TraceError, ["uses the value"]),
    ("mask", lambda b, h, i, j: (np.arange(9)[i] > 0) & (array[0, 0] > 0), TraceError, ["by name instead of creating"]),
    # Caught by the function, or by what it calls.
    ("score", swallows, TraceError, ["uses the value", "line 59: if i > j:"]),
    ("score", lambda s, b, h, i, j: swallows(s, vector[h], h, i, j), TraceError, ["uses the value"]),
    ("score", lambda s, b, h, i, j: swallows(s, array[h, j], h, i, j), TraceError, ["uses the value", "np.where"]),
    ("score", swallows_capture, ValueError, ["'parameter'", "requires grad"]),
    ("score", raises_instead, TraceError, ["uses the value", "int()"]),
    # Reads.
    ("score", lambda s, b, h, i, j: vector + s, TraceError, ["'vector'", "which has 1 dimension:", "vector[b]"]),
    ("score", Model().score, TraceError, ["'self.table'", "1 index,"]),
    ("score", Model().inner_score, TraceError, ["'self.inner.table'", "1 index,"]),
    ("score", Model(), TraceError, ["'self.table'", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + table[h], TraceError, ["'table'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: table[h], TraceError, ["'table'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + vector[h, j], TraceError, ["'vector'", "2 indices", "1 dimension"]),
    ("score", lambda s, b, h, i, j: s + vector[h][j], TraceError, ["indexes a number"]),
    ("score", lambda s, b, h, i, j: s + holder[0][h], TraceError, ["'holder[0]'", "1 index", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + table[h, :], TraceError, ["'table'", "a slice", "2 integers"]),
    ("score", lambda s, b, h, i, j: s + table[:, j][h], TraceError, ["'table'", "a slice"]),
    ("score", lambda s, b, h, i, j: s + table[None, h], TraceError, ["'table'", "None"]),
    ("score", lambda s, b, h, i, j: s + table[h, s], TraceError, ["'table'", "float32", "an integer"]),
    ("score", lambda s, b, h, i, j: s + table[h, i > j], TraceError, ["'table'", "bool", "an integer"]),
    ("score", lambda s, b, h, i, j: s + table, TraceError, ["'table'", "2 dimensions", "table[b, h]"]),
    ("score", lambda s, b, h, i, j: s * s[0], TraceError, ["indexes a number"]),
    ("score", lambda s, b, h, i, j: s + array[h], TraceError, ["'array'", "1 index,", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + array[h, j, i], TraceError, ["'array'", "3 indices", "2 dimensions"]),
    ("score", lambda s, b, h, i, j: s + array[:, j], TraceError, ["'array'", "a slice"]),
    ("score", lambda s, b, h, i, j: s + array[h, s], TraceError, ["'array'", "float32"]),
    ("score", lambda s, b, h, i, j: s + array, TraceError, ["'array'", "0 indices", "2 dimensions"]),
    ("score", one_of_many, TraceError, ["writes a position or a score into an element", "torch.where", "x[1] = s"]),
    ("score", lambda s, b, h, i, j: torch.zeros(1).add_(s)[0], TraceError, ["writes a position or a score"]),
    # What is called.
    ("score", lambda s, b, h, i, j: torch.lgamma(s), TraceError, ["calls 'lgamma'", "regions do not support"]),
    ("score", lambda s, b, h, i, j: torch.stack([s, s]).sum(), TraceError, ["calls 'stack'"]),
    ("score", lambda s, b, h, i, j: s.reshape(1), TraceError, ["calls 'view'"]),
    ("score", lambda s, b, h, i, j: torch.round(s, decimals=2), TraceError, ["calls 'round'"]),
    ("score", lambda s, b, h, i, j: s + torch.rand(()), TraceError, ["draws random numbers"]),
    ("score", lambda s, b, h, i, j: torch.rand_like(s), TraceError, ["calls 'rand_like'"]),
    ("score", lambda s, b, h, i, j: np.i0(s) + array[0, 0], TraceError, ["np.i0"]),
    ("score", lambda s, b, h, i, j: np.heaviside(s, array[h, j]), TraceError, ["calls np.heaviside"]),
    ("score", lambda s, b, h, i, j: np.sum([s, array[h, j]]), TraceError, []),
    ("score", lambda s, b, h, i, j: 3 ** i * s, TraceError, ["power", "convert one of them to float"]),
    ("score", lambda s, b, h, i, j: s * i ** -1, TraceError, ["power -1", "write -1.0"]),
    ("score", lambda s, b, h, i, j: s.to(torch.complex64), TraceError, ["complex64", "float32"]),
    ("mask", lambda b, h, i, j: -(i > j), TraceError, ["negates a boolean"]),
    ("mask", lambda b, h, i, j: (i > j) - (j > i), TraceError, ["subtracts booleans"]),
    ("score", lambda s, b, h, i, j: s & 1, TraceError, ["bit by bit"]),
    ("score", in_place, TraceError, ["changes 'vector'"]),
    ("score", lambda s, b, h, i, j: vector.mul_(2)[h], TraceError, ["changes 'vector'"]),
    ("score", store, TraceError, ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: array.fill(3), TraceError, ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: array[0].sort(), TraceError, ["changes"]),
    ("score", lambda s, b, h, i, j: np.copyto(array, 3), TraceError, ["read-only", "it may only read"]),
    ("score", lambda s, b, h, i, j: np.copyto(array[1:, ::2], 3), TraceError, ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.multiply(array, 2, out=array), TraceError, ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.add(array, 2, out=s), TraceError, ["np.add with out"]),
    ("score", lambda s, b, h, i, j: np.add.at(array, (0, 0), 1), TraceError, ["changes 'array'"]),
    ("score", lambda s, b, h, i, j: np.add.at(array[1:], (0, 0), 1), TraceError, ["changes"]),
    ("score", lambda s, b, h, i, j: np.put(array, 0, 1), TraceError, ["it may only read"]),
    ("score", lambda s, b, h, i, j: np.asarray(array).fill(1), TraceError, ["it may only read"]),
    ("score", lambda s, b, h, i, j: array.T.base.fill(1), TraceError, ["it may only read"]),
    ("score", lambda s, b, h, i, j: [row.fill(1) for row in array], TraceError, ["it may only read"]),
    ("score", grow, TraceError, ["it may only read", "regions_errors.py, line 47: x += 1"]),
    ("score", lambda s, b, h, i, j: point.fill(1), TraceError, ["changes 'point'"]),
    ("score", lambda s, b, h, i, j: s + vector[h] + array[h, j], TraceError, ["both", "'vector'", "'array'"]),
    # Arguments and results.
    ("mask", lambda b, h, i: True, TraceError, ["takes (b, h, i)", "expected (b, h, i, j)"]),
    ("score", lambda b, h, i, j: 1.0, TraceError, ["takes (b, h, i, j)", "expected (s, b, h, i, j)"]),
    ("mask", 3, TraceError, ["mask is a int", "expected a function of (b, h, i, j)"]),
    ("mask", torch.ones(3, 3, dtype=torch.bool), TraceError, ["mask is a Tensor", "expected a function"]),
    ("mask", lambda b, h, i, j: None, TraceError, ["returns None", "a boolean or an integer"]),
    ("score", lambda s, b, h, i, j: "s", TraceError, ["returns a str", "a number"]),
    ("score", lambda s, b, h, i, j: (s, s), TraceError, ["returns a tuple"]),
    ("score", no_number, TraceError, ["returns a tuple", "(regions_errors.py, line 97: def no_number("]),
    ("score", functools.partial(no_number), TraceError, ["returns a tuple", "(regions_errors.py, line 97: def"]),
    ("mask", no_number, TraceError, ["takes (s, b, h, i, j)", "(regions_errors.py, line 97: def no_number("]),
    ("score", lambda s, b, h, i, j: torch.ones(3), TraceError, ["a tensor of 1 dimension,", "expected a number"]),
    ("mask", lambda b, h, i, j: j - i * 0.5, TraceError, ["returns a float32", "a boolean or an integer", "use a score function"]),
    ("score", lambda s, b, h, i, j: i > j, TraceError, ["returns a boolean", "use a mask function"]),
    ("score", lambda s, b, h, i, j: array[h, j] > 0, TraceError, ["returns a boolean", "use a mask function"]),
]  # fmt: skip


def captured(x):
    return lambda s, b, h, i, j: s + x[h]


# Captured tensors that compiled code cannot read: as for arguments of saccade.attention.
CAPTURES = [
    (torch.rand(8, requires_grad=True), ValueError, ["'x'", "requires grad", "torch.no_grad()"]),
    (torch.nn.Parameter(torch.rand(8)), ValueError, ["'x'", "requires grad"]),
    (fake, TypeError, ["'x'", "FakeTensor"]),
    (torch.ones((), device="meta").expand(8), TypeError, ["'x'", "expected cpu"]),
    (torch.rand(8, device="meta"), TypeError, ["'x'", "meta", "expected cpu"]),
    (torch.rand(8, dtype=torch.complex64).conj().imag, ValueError, ["'x'", "negative bit"]),
    (torch.rand(8).to_sparse(), TypeError, ["'x'", "sparse"]),
    (torch.rand(8).to(torch.complex64), TypeError, ["'x'", "complex64", "float32"]),
    (torch.rand(8).to(torch.float8_e4m3fn), TypeError, ["'x'", "float8_e4m3fn"]),
    (np.ma.masked_array(np.ones(8)), TypeError, ["'x'", "masked"]),
    (np.ones(8, np.complex128), TypeError, ["'x'", "complex128"]),
    (np.ones(8, np.uint32), TypeError, ["'x'", "uint32", "int64"]),
    (np.ones(8, ">f4"), TypeError, ["'x'", "byte order"]),
]


def refused(role, function, kind, words):
    before = random.getstate()
    try:
        trace(function, role, "f32")
    except kind as error:
        said = str(error)
        if getattr(function, "__name__", "") == "<lambda>":  # its line has the words that are looked for
            said = said.partition("(regions_errors.py, line ")[0]
        missing = [word for word in words if word not in said]
        return f"{error!r} does not say {missing}" if missing else None
    except Exception as error:
        return f"{error!r}, expected {kind.__name__} with {words}"
    finally:
        assert random.getstate() == before
    return f"was not refused, expected {kind.__name__} with {words}"


wrong = []
unchanged = [x.copy() for x in (table.numpy(), vector.numpy(), array, point)]
for role, function, kind, words in CASES + [("score", captured(x), kind, words) for x, kind, words in CAPTURES]:
    if problem := refused(role, function, kind, words):
        wrong.append(f"{getattr(function, '__code__', None)}: {problem}")
assert not wrong, "\n".join(wrong)
assert all(map(np.array_equal, (table.numpy(), vector.numpy(), array, point), unchanged)), "tracing changed a table"

# Without grad mode a parameter is a tensor like any other, and reading it is no matter of autograd.
with torch.no_grad():
    assert trace(captured(CAPTURES[0][0]), "score", "f32").captures == (CAPTURES[0][0],)
# The line that is at fault is not that of the function.
try:
    trace(named_branch, "mask", "f32")
except TraceError as error:
    assert isinstance(error, TypeError) and "line 30" in str(error), error
# What the function itself gets wrong stays its own exception, and tracing works again afterwards.
try:
    trace(lambda s, b, h, i, j: s + undefined[h], "score", "f32")  # noqa: F821
except NameError:
    pass
else:
    raise AssertionError("a name that does not exist was found")
assert trace(captured(vector), "score", "f32").capture_types == ("tensor<?xf32>",)
for role, precision in (("bias", "f32"), ("score", "bf16")):
    try:
        trace(named_branch, role, precision)
    except ValueError:
        continue
    raise AssertionError((role, precision))

# What is printed meanwhile is no mistake: stand-ins say what they are.
def prints(x):
    return lambda s, b, h, i, j: (print(s, f"{s:.3f} {b!r} {h!s}", [i], j, s * 2, x[h]), s + x[h, j])[1]


for x in (table, array):
    with contextlib.redirect_stdout(io.StringIO()) as said:
        trace(prints(x), "score", "f32")
    score, computed = "<score of query i and key j>", "<float32, computed from positions or scores>"
    assert said.getvalue() == (f"{score} {score} <batch index> <head index> [<query index>] <key index> {computed} "
                          "<a part of 'x'>\n"), said.getvalue()
assert TraceError.__module__ == "saccade" and pickle.loads(pickle.dumps(TraceError("so"))).args == ("so",)
