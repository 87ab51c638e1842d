"""Gradients of linear attention, Performer and Linformer: differences in float64, PyTorch's own gradients of the recurrence in
16 bits and over several chunks, decays from 1 to 0.
"""

import math

import numpy as np
import pytest
import torch

import saccade

DOUBLE = torch.float64


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def leaf(*shape, dtype=DOUBLE):
    return torch.randn(*shape, dtype=dtype).requires_grad_()


def operands(length, heads=2, kv_heads=2, width=3, width_v=2, keys=None, batch=2, dtype=DOUBLE):
    keys = length if keys is None else keys
    return [leaf(batch, heads, length, width, dtype=dtype), leaf(batch, kv_heads, keys, width, dtype=dtype),
            leaf(batch, kv_heads, keys, width_v, dtype=dtype)]  # fmt: skip


def log_decay(*shape, strength=1.0, dtype=DOUBLE):
    return (-torch.rand(*shape, dtype=dtype) * strength).requires_grad_()


# By name: the operands, the decay, the initial state, and the options.
CALLS = {
    "all keys": lambda: (operands(5, keys=7), None, None, {"scale": 0.3}),
    "all keys of grouped heads with states": lambda: (
        operands(5, heads=6, keys=7), None, leaf(2, 2, 3, 2), {"return_state": True}),
    "all keys, normalized": lambda: (operands(5, keys=7), None, None, {"feature_map": "elu+1", "normalize": True}),
    "causal": lambda: (operands(5), None, None, {"causal": True}),
    "one position": lambda: (operands(1), log_decay(2, 2, 1), leaf(2, 2, 3, 2), {"causal": True, "return_state": True}),
    "two chunks": lambda: (operands(66, 1, 1, 2, 2, batch=1), log_decay(1, 1, 66), leaf(1, 1, 2, 2),
                           {"causal": True, "return_state": True, "scale": 0.5}),
    "grouped heads": lambda: (operands(5, heads=4), log_decay(2, 2, 5), None, {"causal": True}),
    "decay of rows": lambda: (operands(18, 2, 1, batch=1), log_decay(1, 1, 18, 3), leaf(1, 1, 3, 2),
                              {"causal": True, "return_state": True, "feature_map": "elu+1"}),
    "normalized with decay and states": lambda: (
        operands(5, heads=4), log_decay(2, 2, 5), leaf(2, 2, 3, 3).detach().abs().requires_grad_(),
        {"causal": True, "return_state": True, "feature_map": "elu+1", "normalize": True}),
    "delta rule": lambda: (operands(18), log_decay(2, 2, 18), leaf(2, 2, 3, 2),
                           {"causal": True, "return_state": True, "beta": torch.rand(2, 2, 18, dtype=DOUBLE)}),
    "delta rule with decay of rows and norms": lambda: (
        operands(5, heads=4), log_decay(2, 2, 5, 3), leaf(2, 2, 3, 2),
        {"causal": True, "return_state": True, "beta": torch.rand(2, 2, 5, dtype=DOUBLE), "l2norm": 1e-6}),
    "erase": lambda: (operands(5), log_decay(2, 2, 5), None, {"causal": True, "erase": torch.randn(2, 2, 5, 3, dtype=DOUBLE)}),
    "normalized with decay of rows": lambda: (
        operands(5), log_decay(2, 2, 5, 3), None, {"causal": True, "feature_map": "elu+1", "normalize": True}),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_gradients_are_limits_of_differences(name):
    tensors, decay, state, options = CALLS[name]()
    factors = {key: value for key, value in (("decay", decay), ("state", state)) if value is not None}

    def call(*tensors):
        q, k, v, *more = tensors
        return saccade.linear_attention(q, k, v, **dict(zip(factors, more)), **options)

    assert torch.autograd.gradcheck(call, (*tensors, *factors.values()))


@pytest.mark.parametrize("causal", [False, True], ids=["all keys", "causal"])
def test_gradients_of_performer_are_limits_of_differences(causal):
    def call(q, k, v, w):
        return saccade.performer(q, k, v, projection=w, causal=causal)

    assert torch.autograd.gradcheck(call, (*operands(5, heads=4), leaf(5, 3)))


def test_gradients_of_linformer_are_limits_of_differences():
    def call(q, k, v, e, f):
        return saccade.linformer(q, k, v, key_projection=e, value_projection=f)

    assert torch.autograd.gradcheck(call, (*operands(6, heads=4), leaf(4, 6), leaf(4, 6)))


def test_results_with_and_without_recording_agree():
    q, k, v = operands(20, dtype=torch.float32)
    w, e = leaf(8, 3, dtype=torch.float32), leaf(4, 20, dtype=torch.float32)
    calls = [lambda: saccade.linear_attention(q, k, v, causal=True, decay=-torch.ones(2, 2, 20)),
             lambda: saccade.performer(q, k, v, projection=w),
             lambda: saccade.linformer(q, k, v, key_projection=e, value_projection=e)]  # fmt: skip
    for call in calls:
        recorded = call()
        assert recorded.requires_grad
        with torch.no_grad():
            torch.testing.assert_close(recorded.detach(), call(), rtol=1e-5, atol=1e-5)


def recurrence(q, k, v, decay):
    """The causal outputs with a scale of 0.25, position after position, in float64."""
    q, k, v, decay = (x.to(DOUBLE) for x in (q, k, v, decay))
    factors = decay.exp()
    factors = factors if decay.ndim == 4 else factors[..., None]
    state, outputs = torch.zeros(*k.shape[:2], k.shape[-1], v.shape[-1], dtype=DOUBLE), []
    for i in range(q.shape[2]):
        state = state * factors[:, :, i, :, None] + k[:, :, i, :, None] * v[:, :, i, None, :]
        own = state.repeat_interleave(q.shape[1] // k.shape[1], 1)
        outputs.append(0.25 * torch.einsum("bhdm,bhd->bhm", own, q[:, :, i]))
    return torch.stack(outputs, 2)


def compare(tensors, decay, tolerance):
    """Compares all gradients with those of the recurrence; the error is relative to the largest element."""
    found = saccade.linear_attention(*tensors, causal=True, decay=decay, scale=0.25)
    seed = torch.randn(found.shape).to(found.dtype)
    gradients = torch.autograd.grad(found, (*tensors, decay), seed)
    expected = torch.autograd.grad(recurrence(*tensors, decay), (*tensors, decay), seed.to(DOUBLE))
    for one, other, of in zip(gradients, expected, "qkvg"):
        assert one.dtype == other.dtype
        assert one.isfinite().all()
        error = (one.double() - other.double()).abs().max() / other.double().abs().max()
        assert error < tolerance, (of, error)
    return gradients


@pytest.mark.parametrize("rows", [False, True], ids=["decay of heads", "decay of rows"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.bfloat16, 2e-2), (torch.float16, 2e-3)])
def test_gradients_over_several_chunks_agree_with_the_recurrence(dtype, tolerance, rows):
    tensors = operands(150, heads=4, width=16, width_v=24, dtype=dtype)
    decay = log_decay(2, 2, 150, *([16] * rows), strength=0.1, dtype=torch.float32)
    compare(tensors, decay, tolerance)


@pytest.mark.parametrize("rows", [False, True], ids=["decay of heads", "decay of rows"])
@pytest.mark.parametrize("strength", [30.0, 3000.0, np.inf])
def test_strong_decays_have_finite_gradients(strength, rows):
    tensors = operands(100, width=16, width_v=16, dtype=torch.float32)
    decay = torch.rand(2, 2, 100, *([16] * rows)) * -0.1
    decay = torch.where(torch.rand(decay.shape) < 0.2, -strength, decay).requires_grad_()
    gradients = compare(tensors, decay, 5e-6)
    if strength == np.inf:
        assert (gradients[3][decay.isinf()] == 0).all()


def test_only_needed_gradients_are_computed():
    q, k, v = operands(5)
    found = saccade.linear_attention(q, k.detach(), v.detach(), causal=True)
    found.sum().backward()
    assert q.grad is not None
    assert k.grad is None


def test_second_derivatives_are_refused():
    q, k, v = operands(5)
    gradient, = torch.autograd.grad(saccade.linear_attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        gradient.sum().backward()


def test_transforms_of_torch_func_agree_with_autograd():
    q, k, v = operands(5, heads=4)
    decay = log_decay(2, 2, 5)

    def loss(q, k, decay):
        return saccade.linear_attention(q, k, v.detach(), causal=True, decay=decay).square().sum()

    expected = torch.autograd.grad(loss(q, k, decay), (q, k, decay))
    leaves = q.detach(), k.detach(), decay.detach()
    for found, other in zip(torch.func.grad(loss, (0, 1, 2))(*leaves), expected):
        torch.testing.assert_close(found, other)
    doubled = torch.func.vmap(torch.func.grad(loss), (0, None, None))(torch.stack([leaves[0], 2 * leaves[0]]), *leaves[1:])
    torch.testing.assert_close(doubled[0], expected[0])
    torch.testing.assert_close(doubled[1], torch.func.grad(loss)(2 * leaves[0], *leaves[1:]))
    _, tangent = torch.func.jvp(lambda q: loss(q, *leaves[1:]), (leaves[0],), (leaves[0],))
    torch.testing.assert_close(tangent, (expected[0] * leaves[0]).sum())


@pytest.mark.parametrize("options", [{"l2norm": 1e-6}, {"feature_map": "elu+1", "normalize": True}, {}], ids=["norm", "feature", "plain"])
@pytest.mark.parametrize("batch", ["lengths", "ragged"])
def test_positions_that_are_not_read_have_gradients_of_zero(batch, options):
    torch.manual_seed(0)
    if batch == "ragged":
        q, k, v = (torch.randn(9, 2, 4) for _ in range(3))
        given, unread = {"cu_seqlens": torch.tensor([0, 2, 6])}, [(slice(6, None),)]
    else:
        q, k, v = (torch.randn(2, 2, 5, 4) for _ in range(3))
        given, unread = {"kv_len": torch.tensor([2, 4])}, [(0, slice(None), slice(2, None)), (1, slice(None), slice(4, None))]
    tensors = [q, k, v]
    finite = [x.clone().requires_grad_() for x in tensors]
    saccade.linear_attention(*finite, causal=True, **given, **options).square().sum().backward()
    for x in tensors:
        for place in unread:
            x[place] = math.nan
        x.requires_grad_()
    saccade.linear_attention(*tensors, causal=True, **given, **options).square().sum().backward()
    for x, y in zip(tensors, finite):
        assert torch.equal(x.grad, y.grad)
        for place in unread:
            assert not x.grad[place].any()
