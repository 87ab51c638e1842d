"""Powers of integers, products whose bias does not count, and Einstein sums agree with PyTorch, integers to the last
bit.
"""

import math

import pytest

torch = pytest.importorskip("torch")

import saccade.torch

generator = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=generator)


x, y, wide = normal(3, 4, 5), normal(4, 1), normal(2, 3, 4, 6)
half, square = normal(3, 4, 5).bfloat16(), normal(2, 4, 4)
nothing = torch.full((4, 4), math.nan)
bases = torch.tensor([3, -3, 2, -1, 1, 0, 10, 3037000499, -7])
powers = torch.tensor([35, 39, 63, 3, -9, 0, 19, 3, 64])
small, bytes_ = torch.tensor([-3, 3, 2, -1], dtype=torch.int32), torch.tensor([5, -3, 2, 7], dtype=torch.int8)

CASES = {
    # Beyond what 53 bits hold, and modulo 2^64.
    "pow tensors": (torch.pow, bases, powers), "pow all": (lambda a, b: a[:, None] ** b, bases, powers.abs()),
    "pow 35": (lambda a: a ** 35, bases), "pow 64": (lambda a: a ** 64, bases), "pow 0": (lambda a: a ** 0, bases),
    "pow 1": (lambda a: a ** 1, bases), "pow base": (lambda a: 3 ** a, powers),
    "pow wraps": (lambda a: 2 ** a, torch.arange(60, 70)), "pow 32": (torch.pow, small, small.flip(0)),
    "pow 8": (torch.pow, bytes_, bytes_.abs()), "pow mixed": (torch.pow, small, torch.tensor([40, 2, -1, 3])),
    "pow inverse": (torch.pow, torch.tensor([1, -1, -1, 2, -2, 0]), torch.tensor([-2, -2, -3, -1, -63, -1])),
    # 0 · NaN is NaN.
    "addmm": (lambda c, a, b: torch.addmm(c, a, b, beta=0), nothing, x[0], x[1].T),
    "addmm alpha": (lambda c, a, b: torch.addmm(c, a, b, beta=0, alpha=0.5), nothing[0], x[0], x[1].T),
    "addmm half": (lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), half[2, :, :4], half[0], half[1].T),
    "baddbmm": (lambda c, a, b: torch.baddbmm(c, a, b, beta=0), nothing[None], x, x.mT),
    "baddbmm all": (lambda c, a, b: torch.baddbmm(c, a, b, beta=-2, alpha=0.5), square[:1, :1], x, x.mT),
    # Extents of 1 broadcast; letters may repeat; letters absent from the output are reduced.
    "stretch": (lambda a, b: torch.einsum("ab,bc->ac", a, b), y, x[0]),
    "stretch kept": (lambda a, b: torch.einsum("ab,cb->abc", a, b), x[0], x[1, :, :1]),
    "stretch three": (lambda a, b, c: torch.einsum("ab,b,b->a", a, b, c), y, x[0, 0, :1], x[0, 0]),
    "stretch dots": (lambda a, b: torch.einsum("...ij,...jk", a, b), wide, wide[:, :1].mT),
    "diagonal": (lambda a: torch.einsum("bii->bi", a), square), "trace": (lambda a: torch.einsum("bii", a), square),
    "diagonals": (lambda a, b: torch.einsum("bii,bij->j", a, b), square, square + 1),
    "sum dots": (lambda a: torch.einsum("...i->i", a), wide), "sum all": (lambda a: torch.einsum("ij->", a), y),
    "turned": (lambda a: torch.einsum("ij k -> kij", a), half), "same": (lambda a: torch.einsum("ij->ij", a), y),
    "integers": (lambda a, b: torch.einsum("i,j->ij", a, b), bases, powers),
    "outer": (torch.outer, x[0, 0], x[0, :, 0]),
    "half": (lambda a, b, c: torch.einsum("bij,bkj,k->bi", a, b, c), half, half, half[0, :, 0]),
}


class All(torch.nn.Module):
    """Every case in one program."""

    def forward(self, *inputs):
        results, at = [], 0
        for function, *own in CASES.values():
            results.append(function(*inputs[at:at + len(own)]))
            at += len(own)
        return results


@pytest.fixture(scope="module")
def results():
    """What the compiled program and PyTorch give, by case."""
    inputs = tuple(tensor.clone() for _, *own in CASES.values() for tensor in own)
    module = All()
    compiled = saccade.torch.compile(module, inputs)
    return dict(zip(CASES, zip(compiled(*inputs), module(*inputs), strict=True), strict=True))


@pytest.mark.parametrize("name", CASES)
def test_case_agrees_with_torch(results, name):
    found, expected = results[name]
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.is_floating_point():
        tolerance = 2e-2 if expected.dtype == torch.bfloat16 else 2e-5
        assert torch.allclose(found, expected, rtol=tolerance, atol=tolerance), f"{found}\nexpected {expected}"
    else:
        assert torch.equal(found, expected), f"{found}\nexpected {expected}"
