"""However a function reaches an array, the array is captured, and the region is the same as if the array were read
directly. Tensors that compiled code cannot read are refused, as for arguments of saccade.attention.
"""

import functools
import random
import sys
import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from node_values import evaluate
from programs import refused
from torch._subclasses.fake_tensor import FakeTensorMode

from saccade.regions import TraceError, trace
from saccade.regions.traced_function import variables

NAMES = ["%s", "%b", "%h", "%i", "%j"], ["%c0"]
everyone = None  # what the function `by_name` reads
TABLES = {"torch": lambda: torch.rand(8), "numpy": lambda: np.random.rand(8).astype(np.float32)}


class Bias:
    def __init__(self, table):
        self.table, self.scale = table, 1

    def __call__(self, s, b, h, i, j):
        return s + self.table[h]

    def method(self, s, b, h, i, j):
        return s + self.table[h]


def ways(table, index=lambda x, h: x[h]):
    """Functions that all add table[h] to the score."""
    module = types.ModuleType("tables")
    module.table, module.read = table, lambda h: table[h]
    holder, bias = types.SimpleNamespace(table=table), Bias(table)
    tables, named = (None, [table]), {"table": table}

    def read(h):
        return table[h]

    def countdown(n, h):
        return table[h] if n == 0 else countdown(n - 1, h)

    def default(s, b, h, i, j, x=table, *, y=table):
        return s + x[h]

    def keyword(s, b, h, i, j, *, x=table):
        return s + x[h]

    def with_unbound(s, b, h, i, j):
        return s + table[h] if s is not None else later

    if table is module:
        later = None

    def inner(s, b, h, i, j):
        def add():
            return s + table[h]

        return add()

    return {
        "helper": lambda s, b, h, i, j: s + read(h),
        "recursive helper": lambda s, b, h, i, j: s + countdown(2, h),
        "sequences": lambda s, b, h, i, j: s + tables[1][0][h],
        "dict": lambda s, b, h, i, j: s + named["table"][h],
        "module": lambda s, b, h, i, j: s + module.table[h],
        "function of a module": lambda s, b, h, i, j: s + module.read(h),
        "attribute": lambda s, b, h, i, j: s + holder.table[h],
        "argument": lambda s, b, h, i, j: s + index(table, h),
        "global of a helper": lambda s, b, h, i, j: s + by_name(h),
        "comprehension": lambda s, b, h, i, j: sum((x[h] for x in [table]), start=s),
        "callable object": bias, "method": bias.method, "default": default, "inner function": inner,
        "keyword default": keyword, "unbound name beside": with_unbound,
        "keyword of partial": functools.partial(added_by_name, x=table),
        "partial": functools.partial(default), "argument of partial": functools.partial(added, table),
    }  # fmt: skip


def added(x, s, b, h, i, j):
    return s + x[h]


def added_by_name(s, b, h, i, j, *, x):
    return s + x[h]


def by_name(h):
    return everyone[h]


@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("way", list(ways(None)))
def test_array_is_captured_however_it_is_reached(library, way, monkeypatch):
    table = TABLES[library]()
    monkeypatch.setattr(sys.modules[__name__], "everyone", table)
    expected = trace(lambda s, b, h, i, j: s + table[h], "score", "f32")
    assert expected.captures[0] is table
    assert expected.capture_types == ("tensor<?xf32>",)
    region = trace(ways(table)[way], "score", "f32")
    assert region.captures[0] is table
    assert len(region.captures) == 1
    assert region.body(*NAMES) == expected.body(*NAMES), region.body(*NAMES)


def test_tracing_leaves_what_a_function_reaches_as_it_was():
    array = np.ones(8)
    bias = Bias(array)
    trace(bias, "score", "f64")
    assert bias.table is array
    for name, way in ways(array).items():
        if name != "global of a helper":
            trace(way, "score", "f64")
    module = types.ModuleType("tables")
    module.table, holders = array, [array]
    trace(lambda s, b, h, i, j: s + module.table[h] + holders[0][h], "score", "f64")
    assert module.table is array
    assert holders[0] is array
    assert type(bias.table[0]) is np.float64


@pytest.mark.parametrize("library", TABLES)
def test_attributes_of_a_function_are_numbers_of_the_region(library):
    table = TABLES[library]()

    def read(h):
        return table[h] * read.factor

    read.factor = 2
    region = trace(lambda s, b, h, i, j: s + read(h), "score", "f32")
    assert region.body(*NAMES) == trace(lambda s, b, h, i, j: s + table[h] * 2, "score", "f32").body(*NAMES)


def reader(x):
    return lambda s, b, h, i, j: s + x[h]


with FakeTensorMode():
    fake = torch.rand(8)
UNREADABLE = {
    "requires grad": (torch.rand(8, requires_grad=True), ValueError, ["'x'", "requires grad", "torch.no_grad()"]),
    "parameter": (torch.nn.Parameter(torch.rand(8)), ValueError, ["'x'", "requires grad"]),
    "fake": (fake, TypeError, ["'x'", "FakeTensor"]),
    "expanded meta": (torch.ones((), device="meta").expand(8), TypeError, ["'x'", "expected cpu"]),
    "meta": (torch.rand(8, device="meta"), TypeError, ["'x'", "meta", "expected cpu"]),
    "negative bit": (torch.rand(8, dtype=torch.complex64).conj().imag, ValueError, ["'x'", "negative bit"]),
    "sparse": (torch.rand(8).to_sparse(), TypeError, ["'x'", "sparse"]),
    "complex64": (torch.rand(8).to(torch.complex64), TraceError, ["'x'", "complex64", "float32"]),
    "float8": (torch.rand(8).to(torch.float8_e4m3fn), TraceError, ["'x'", "float8_e4m3fn"]),
    "masked": (np.ma.masked_array(np.ones(8)), TypeError, ["'x'", "masked"]),
    "complex128": (np.ones(8, np.complex128), TypeError, ["'x'", "complex128"]),
    "uint32": (np.ones(8, np.uint32), TraceError, ["'x'", "uint32", "int64"]),
    "big-endian": (np.ones(8, ">f4"), TypeError, ["'x'", "byte order"]),
}  # fmt: skip


@pytest.mark.parametrize(("x", "exception", "words"), UNREADABLE.values(), ids=UNREADABLE)
def test_tensor_that_compiled_code_cannot_read_is_refused(x, exception, words):
    before = random.getstate()
    error = refused(exception, [], trace, reader(x), "score", "f32")
    said = str(error).partition("(test_regions_captures.py, line ")[0]  # not the words of the line itself
    assert not [word for word in words if word not in said], said
    assert random.getstate() == before


def test_without_grad_mode_a_tensor_that_requires_grad_is_captured():
    x = UNREADABLE["requires grad"][0]
    with torch.no_grad():
        assert trace(reader(x), "score", "f32").captures == (x,)


# --- names of variables, as errors give them


@pytest.mark.parametrize("library", TABLES)
def test_variables_have_the_names_by_which_a_function_reads_them(library):
    x = TABLES[library]()
    holder = types.SimpleNamespace(own=x, by_name={"key": [x]}, inner=types.SimpleNamespace(own=x))

    def function(b, h, i, j, given=x, *, named=x):
        return holder, x

    found = {name for name, value in variables(functools.partial(function, x, h=x)) if value is x}
    assert found == {"args[0]", "h", "given", "named", "holder.own", "holder.by_name['key'][0]", "holder.inner.own", "x"}


def test_parameters_buffers_and_modules_have_the_names_of_attributes():
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    module.register_buffer("table", torch.zeros(2))
    found = dict(variables(lambda b, h, i, j: module))
    assert found["module.table"] is module.table
    assert found["module.0.weight"] is module[0].weight


# --- lists, and arrays beside tensors ---------------------------------------------------------------------------------


def mixed(library):
    """Functions that add table[h][j] for a table [2, 3], and one that also reads a tensor."""
    rows = [[0.5, -1.0, 2.0], [4, 0.25, -3]]
    array, zeros = np.array(rows), torch.zeros(3)
    x = {"torch": torch, "numpy": np}[library]
    found = {"nested list": lambda s, b, h, i, j: s + rows[h][j] + x.sin(s) * 0, "inner list": lambda s, b, h, i, j:
             s + x.where(h == 0, rows[0][j], rows[1][j]), "from the end": lambda s, b, h, i, j: s + rows[h][j - 3] + x.sin(s) * 0}  # fmt: skip
    if library == "torch":
        found["array beside a tensor"] = lambda s, b, h, i, j: s + array[h, j] + zeros[j]
        table = torch.from_numpy(array)
        found["tensor of the array's memory"] = lambda s, b, h, i, j: s + table[h, j]
    return rows, found


@pytest.mark.parametrize(("library", "name"), [(library, name) for library in ("torch", "numpy") for name in mixed(library)[1]])
def test_lists_and_arrays_are_read_at_positions(library, name):
    rows, found = mixed(library)
    region = trace(found[name], "score", "f64")
    assert region.is_reusable
    captures = {key: np.asarray(value) for key, value in zip(region.names, region.captures)}
    for h, j in np.ndindex(2, 3):
        assert evaluate(region.root, (1.0, 0, h, 0, j), captures) == 1 + rows[h][j]


def test_array_beside_a_tensor_is_captured_itself():
    array, tensor = np.ones(3), torch.ones(3)
    region = trace(lambda s, b, h, i, j: s + array[i] * tensor[j], "score", "f64")
    assert {id(capture) for capture in region.captures} == {id(array), id(tensor)}
