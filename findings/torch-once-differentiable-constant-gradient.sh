#!/usr/bin/env bash
# torch 2.13.0: once_differentiable is no guard against second derivatives. A backward pass with this decorator raises when
# it is differentiated only if an incoming gradient requires grad. For a sum of the results the incoming gradient is a
# constant: then the result of the backward pass has no graph, and a penalty on it adds nothing, without an error.
#
# Seen, for y = x^3 at x = 2 (first derivative 12, second 12): the gradient with create_graph=True does not require grad, and
# the derivative of gradient^2 + x^2 is 4, not 292. With y multiplied by a weight that requires grad, RuntimeError. Fails if
# that changes.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check torch==2.13.0 numpy==2.3.5
"$folder/venv/bin/python" - <<'PYTHON'
import torch
from torch.autograd.function import once_differentiable


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        x, = ctx.saved_tensors
        return gradient * 3 * x**2


x = torch.tensor([2.0], requires_grad=True)
gradient, = torch.autograd.grad(Cube.apply(x).sum(), x, create_graph=True)
penalty, = torch.autograd.grad((gradient**2 + x**2).sum(), x)
exact, = torch.autograd.grad((torch.autograd.grad((x**3).sum(), x, create_graph=True)[0] ** 2 + x**2).sum(), x)
print(f"gradient {gradient.item()}, requires grad {gradient.requires_grad}, penalty {penalty.item()}, exact {exact.item()}")
assert (gradient.item(), gradient.requires_grad, penalty.item(), exact.item()) == (12.0, False, 4.0, 292.0)

weight = torch.tensor([1.0], requires_grad=True)
gradient, = torch.autograd.grad((Cube.apply(x) * weight).sum(), x, create_graph=True)
try:
    (gradient**2).sum().backward()
except RuntimeError as error:
    print(f"with a weight: RuntimeError: {error}")
    assert "once_differentiable" in str(error)
else:
    raise SystemExit("with a weight: no error")
PYTHON
