"""Tensors that a module makes itself, and what it cannot make: numbers of elements, random numbers, other types."""

import pytest

torch = pytest.importorskip("torch")

import saccade
import saccade.torch

X = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))


class Made(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.parametrize("function", [
    lambda x: x + torch.eye(4), lambda x: x[:, :3] + torch.eye(4, 3), lambda x: x + torch.eye(x.shape[1], dtype=torch.float64),
    lambda x: x.masked_fill(torch.eye(4, dtype=torch.bool), 0.0), lambda x: x.masked_fill(torch.eye(4).bool(), 0.0),
    lambda x: torch.eye(300)[:4, :4] + x,
], ids=["square", "rectangle", "double", "bool", "as bool", "more than 255 rows"])  # fmt: skip
def test_identity_matrix_of_known_size(function):
    compiled = saccade.torch.compile(Made(function), (X,))
    torch.testing.assert_close(compiled(X), function(X))


@pytest.mark.parametrize(("words", "function"), [
    (["'_local_scalar_dense'", "keep the tensor, or pass the number as an argument"], lambda x: x * x.sum().item()),
    (["random numbers are not supported", "call eval()"], lambda x: x + torch.rand(4, 4)),
    (["random numbers are not supported", "pass them as an argument"], lambda x: torch.bernoulli(x.sigmoid())),
    (["torch.uint8", "a program has float32", "int64, bool"], lambda x: x.to(torch.uint8).float()),
], ids=["item", "rand", "bernoulli", "uint8"])  # fmt: skip
def test_refusal_says_why_and_what_to_do(words, function):
    with pytest.raises((saccade.CompileError, saccade.torch.ExportError)) as error:
        saccade.torch.compile(Made(function), (X,))
    for word in words:
        assert word in str(error.value)
