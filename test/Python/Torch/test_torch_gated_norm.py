"""`saccade.gated_rms_norm` agrees with the formula in float64 and with the classes of Transformers: results, gradients,
element types, groups, strides and `out`; and what it refuses, by name."""

import numpy as np
import pytest
import torch
from torch.nn import functional

import saccade

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2, torch.float16: 3e-3}


def expected_of(x, gate, weight, activation, norm_before_gate, size):
    active = functional.silu(gate) if activation == "silu" else torch.sigmoid(gate)
    entering = (x if norm_before_gate else x * active).unflatten(-1, (-1, size))
    normed = (entering / (entering.square().mean(-1, keepdim=True) + 1e-5).sqrt()).flatten(-2) * weight
    return normed * active if norm_before_gate else normed


@pytest.mark.parametrize("norm_before_gate", [True, False])
@pytest.mark.parametrize(("dtype", "gate_dtype", "activation", "size", "shape"), [
    (torch.float32, torch.float32, "silu", 48, (2, 5, 48)),
    (torch.float32, torch.bfloat16, "sigmoid", 16, (2, 5, 48)),
    (torch.bfloat16, torch.bfloat16, "silu", 16, (3, 32)),
    (torch.float16, torch.float32, "silu", 7, (1, 3, 7)),
    (torch.float64, torch.float64, "sigmoid", 1, (40,)),
], ids=str)
def test_results_and_gradients_agree_with_the_formula(norm_before_gate, dtype, gate_dtype, activation, size, shape):
    torch.manual_seed(1)
    tensors = [torch.randn(shape).to(dtype), torch.randn(shape).to(gate_dtype), torch.randn(shape[-1]).to(dtype)]
    options = {"eps": 1e-5, "activation": activation, "norm_before_gate": norm_before_gate, "group_size": size}
    plain = saccade.gated_rms_norm(*tensors, **options)
    wide = [x.double().clone().requires_grad_() for x in tensors]
    expected = expected_of(*wide, activation, norm_before_gate, size)
    tensors = [x.requires_grad_() for x in tensors]
    found = saccade.gated_rms_norm(*tensors, **options)
    assert found.dtype == dtype
    assert torch.equal(found, plain)
    tolerance = max(TOLERANCE[dtype], TOLERANCE[gate_dtype])
    assert (found - expected).abs().max() <= tolerance * (1 + expected.abs().max())
    up = torch.randn(shape).to(dtype)
    for own, other in zip(torch.autograd.grad(found, tensors, up), torch.autograd.grad(expected, wide, up.double())):
        assert (own - other).abs().max() <= 4 * tolerance * (1 + other.abs().max())


def test_out_strides_and_no_elements():
    x, gate, weight = torch.randn(4, 6, 32)[..., ::2], torch.randn(6, 4, 16).transpose(0, 1), torch.randn(16)
    expected = saccade.gated_rms_norm(x.contiguous(), gate.contiguous(), weight)
    for out in (torch.empty(4, 6, 16), torch.empty(6, 4, 16).transpose(0, 1)):
        assert saccade.gated_rms_norm(x, gate, weight, out=out) is out
        assert torch.allclose(out, expected, atol=1e-6)  # sums have another order
    assert saccade.gated_rms_norm(x[:0], gate[:0], weight).shape == (0, 6, 16)
    found = saccade.gated_rms_norm(*[each.numpy() for each in (x, gate, weight)])
    assert np.allclose(found, expected.numpy(), atol=1e-6)


def test_graphs_have_the_operator():
    torch._dynamo.reset()
    x, gate, weight = torch.randn(3, 16, requires_grad=True), torch.randn(3, 16), torch.randn(16)
    compiled = torch.compile(saccade.gated_rms_norm, backend="aot_eager", fullgraph=True)
    found, expected = [call(x, gate, weight) for call in (compiled, saccade.gated_rms_norm)]
    assert torch.equal(found, expected)
    assert torch.allclose(*[torch.autograd.grad(each.sum(), x)[0] for each in (found, expected)], atol=1e-6)


@pytest.mark.parametrize(("given", "message"), [
    ({"gate": torch.randn(2, 5)}, r"gate has shape \(2, 5\), expected \(2, 6\)"),
    ({"weight": torch.randn(5)}, r"weight has shape \(5,\), expected \(6,\)"),
    ({"weight": torch.randn(6).double()}, "weight has elements of type float64"),
    ({"group_size": 4}, "group_size is 4, expected a divisor of 6"),
    ({"group_size": 0}, "group_size"),
    ({"activation": "relu"}, "activation is 'relu'"),
    ({"eps": -1.0}, "eps is -1.0"),
    ({"out": torch.empty(2, 5)}, r"out has shape \(2, 5\)"),
], ids=lambda given: "" if isinstance(given, dict) else given)
def test_bad_input_is_refused_by_name(given, message):
    given = {"x": torch.randn(2, 6), "gate": torch.randn(2, 6), "weight": torch.randn(6)} | given
    with pytest.raises((TypeError, ValueError), match=message):
        saccade.gated_rms_norm(**given)
