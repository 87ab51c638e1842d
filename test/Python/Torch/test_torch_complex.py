"""Complex tensors of PyTorch in compiled modules: rotary positions as models write them, operators on complex numbers,
complex buffers and arguments."""

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional as F

import saccade
import saccade.torch

pytestmark = pytest.mark.filterwarnings("ignore")

OPEN = torch.export.Dim.DYNAMIC
torch.manual_seed(0)
x, y = torch.randn(2, 3, 4, 2), torch.randn(3, 4, 2)
z, w = torch.view_as_complex(x).clone(), torch.view_as_complex(y).clone()
places = torch.tensor([2, 0])


class Call(nn.Module):
    """A function of complex tensors; complex results as their parts."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        result = self.function(*inputs)
        return torch.view_as_real(result) if result.is_complex() else result


OPERATORS = {
    "product": lambda a, b: a * b, "product with real": lambda a, b: a * b.real, "real product": lambda a, b: b.imag * a,
    "product with number": lambda a, b: a * 2.5 - b, "quotient": lambda a, b: a / b, "quotient by real": lambda a, b: a / b.real,
    "sum": lambda a, b: a + b, "sum with real": lambda a, b: a + b.real, "sum with number": lambda a, b: 1.5 + a,
    "difference from number": lambda a, b: 2 - a, "negative": lambda a, b: -a, "conjugate": lambda a, b: a * b.conj(),
    "absolute value": lambda a, b: a.abs() + b.abs(), "parts": lambda a, b: a.real * a.imag,
    "sum over": lambda a, b: a.sum(1), "mean": lambda a, b: (a * b).mean((0, 2)), "cumulative": lambda a, b: a.cumsum(1),
    "view": lambda a, b: a.view(6, -1) * b.reshape(1, 12)[:, :4], "heads": lambda a, b: a.unflatten(-1, (2, 2)).transpose(1, 2).flatten(2),
    "expand": lambda a, b: b[None].expand(2, -1, -1) + a, "cat": lambda a, b: torch.cat([a, b[None]], 0),
    "cat with real": lambda a, b: torch.cat([a[0], b.real], -1), "stack": lambda a, b: torch.stack([a[0], b], 1),
    "split": lambda a, b: torch.cat(a.split((1, 3), -1)[::-1], -1), "slice": lambda a, b: a[:, 1:, ::2],
    "select": lambda a, b: a[:, -1] * b[0], "index": lambda a, b: a[:, places] * b[places], "gather": lambda a, b: b.index_select(1, places),
    "where": lambda a, b: torch.where(a.real > 0, a, b), "masked": lambda a, b: a.masked_fill(a.imag > 0, 3.0),
    "where with numbers": lambda a, b: torch.where(a.real > 0, 1.5, a) * torch.where(a.imag > 0, a, 2),
    "precision of one number": lambda a, b: a * b[0, 0].to(torch.complex128).sum() / b.to(torch.complex128).sum(),
    "real zeros": lambda a, b: torch.zeros_like(a, dtype=torch.float32) + torch.ones_like(a, dtype=torch.int64),
    "scattered": lambda a, b: b.scatter(0, places[:, None].expand(2, 4), a[:, 0], reduce="add"),
    "repeat": lambda a, b: b.repeat(2, 1, 1).repeat_interleave(2, 0), "flip": lambda a, b: a.flip(1) * a.roll(1, 2),
    "precision": lambda a, b: a.to(torch.complex128) * b, "from real": lambda a, b: a.real.to(torch.complex64) * b,
    "complex": lambda a, b: torch.complex(a.real, b.imag.expand(2, -1, -1)), "zeros": lambda a, b: torch.zeros_like(a) + b,
    "polar": lambda a, b: torch.polar(a.abs(), a.imag), "put": lambda a, b: a.index_copy(1, places, b[None, :2].expand(2, -1, -1)),
    "written": lambda a, b: _written(a, b), "pad": lambda a, b: F.pad(a, (1, 2)), "tril": lambda a, b: (a * b).tril(),
}  # fmt: skip


def _written(a, b):
    a = a.clone()
    a[:, 1:] = b[1:]
    return a


def expect_near(found, expected, tolerance=2e-6):
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance), f"found\n{found}\nexpected\n{expected}"


class All(nn.Module):
    """All functions in one program."""

    def forward(self, a, b):
        return [Call(function)(a, b) for function in OPERATORS.values()]


@pytest.fixture(scope="module")
def pairs():
    expected = All()(z, w)
    found = saccade.torch.compile(All(), (z, w))(z, w)
    return dict(zip(OPERATORS, zip(found, expected, strict=True), strict=True))


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_agrees_with_torch(pairs, name):
    expect_near(*pairs[name])


class Rotary(nn.Module):
    """Causal attention with rotary positions by complex factors, a buffer or a plain attribute, of which a call reads the
    first rows (Llama, DeepSeek-V3)."""

    def __init__(self, is_buffer=True, dtype=torch.float32, rows=64):
        super().__init__()
        angles = torch.outer(torch.arange(rows, dtype=dtype), 1e4 ** -torch.arange(0, 8, 2, dtype=dtype).div(8))
        factors = torch.polar(torch.ones_like(angles), angles)
        if is_buffer:
            self.register_buffer("factors", factors)
        else:
            self.factors = factors

    def turned(self, x):
        factors = self.factors[: x.shape[1]].view(1, x.shape[1], 1, -1)
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * factors).flatten(3)

    def forward(self, q, k, v):
        q, k, v = (each.transpose(1, 2) for each in (self.turned(q), self.turned(k), v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


@pytest.mark.parametrize("is_buffer", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rotary_attention_with_open_lengths(is_buffer, dtype):
    model = Rotary(is_buffer, dtype)
    example = tuple(torch.randn(2, 7, 3, 8, dtype=dtype) for _ in range(3))
    compiled = saccade.torch.compile(model, example, dynamic_shapes=({0: OPEN, 1: OPEN},) * 3)
    assert compiled.module.ir("transforms").count("= attn.attention") == 1
    for b, n in ((2, 7), (1, 1), (3, 20), (1, 64)):
        given = tuple(torch.randn(b, n, 3, 8, dtype=dtype) for _ in range(3))
        expect_near(compiled(*given), model(*given), 2e-5 if dtype == torch.float32 else 1e-11)


@pytest.mark.parametrize("rows", [8, 64])
def test_changed_factors_are_read_again(rows):
    model = Rotary(rows=rows)
    given = tuple(torch.randn(1, 5, 2, 8) for _ in range(3))
    compiled = saccade.torch.compile(model, given)
    model.factors.mul_(0.5)
    expect_near(compiled(*given), model(*given), 2e-5)
    model.factors = model.factors.conj().clone()
    expect_near(compiled(*given), model(*given), 2e-5)


class Factors(nn.Module):
    def forward(self, q, factors):
        q = torch.view_as_real(torch.view_as_complex(q.unflatten(-1, (-1, 2))) * factors[:, None]).flatten(-2).transpose(1, 2)
        return F.scaled_dot_product_attention(q, q, q)


def test_factors_as_an_argument():
    make = lambda b, n: (torch.randn(b, n, 2, 8), torch.polar(torch.ones(n, 4), torch.randn(n, 4)))
    compiled = saccade.torch.compile(Factors(), make(2, 6), dynamic_shapes=({0: OPEN, 1: OPEN}, {0: OPEN}))
    for b, n in ((2, 6), (1, 3), (3, 11)):
        given = make(b, n)
        expect_near(compiled(*given), Factors()(*given), 2e-5)
    conjugated = (given[0], given[1].conj())
    expect_near(compiled(*conjugated), Factors()(*conjugated), 2e-5)


def test_whole_graph_of_torch_compile():
    torch._dynamo.reset()
    model = Rotary()
    compiled = torch.compile(model, backend="saccade", fullgraph=True, options={"whole_graph": True})
    with torch.no_grad():
        for n in (7, 12, 30):
            given = tuple(torch.randn(2, n, 3, 8) for _ in range(3))
            expect_near(compiled(*given), model(*given), 2e-5)


@pytest.mark.parametrize(("function", "message"), [
    (lambda a, b: (a @ b.mT).real, r"test_torch_complex.py:\d+:0: error: torch.aten.matmul '.*': complex numbers are not supported by this op"),
    (lambda a, b: a.exp().real, r"torch.aten.exp '.*': complex numbers are not supported by this op"),
])  # fmt: skip
def test_other_operators_are_refused(function, message):
    with pytest.raises(saccade.CompileError, match=message):
        saccade.torch.compile(Call(function), (z, w))


def test_complex_results_are_refused():
    class Module(nn.Module):
        def forward(self, a):
            return torch.view_as_complex(a) * 2

    with pytest.raises(saccade.torch.ExportError, match=r"the type torch\.complex64 is not supported"):
        saccade.torch.compile(Module(), (x,))


@pytest.mark.parametrize("function", [
    lambda a: a.to(torch.bool), lambda a: a.type_as(a.real > 0),
    lambda a: a.scatter(0, places[:1, None, None].expand(1, 3, 4), a[1:], reduce="multiply"),
    lambda a: a.sum(1, dtype=torch.float32),
])  # fmt: skip
def test_operators_that_parts_cannot_compute_are_refused(function):
    with pytest.raises(saccade.CompileError, match="complex numbers are not supported by this op"):
        saccade.torch.compile(Call(function), (z,))
