"""Derivatives of weights without a sum in all that PyTorch offers for those of the softmax: torch.func, batched
gradients, forward mode and torch.compile, against plain PyTorch in float64."""

import math

import pytest
import torch
import torch.nn.functional as F

import saccade

NAMED = {"sigmoid": torch.sigmoid, "silu": F.silu, "relu_squared": lambda s: s.relu() ** 2}
torch.manual_seed(0)
BIAS = torch.randn(4, dtype=torch.float64)
OWN = lambda s, b, h, i, j: F.silu(s + BIAS[h]) / (i + 1)
Q, K, V = (torch.randn(2, heads, length, depth, dtype=torch.float64)
           for heads, length, depth in ((4, 7, 8), (2, 11, 8), (2, 11, 5)))  # fmt: skip
TANGENTS = tuple(torch.randn_like(x) for x in (Q, K, V))
LENGTHS = torch.tensor([11, 9])


def attend(q, k, v, normalizer="silu", **options):
    return saccade.attention(q, k, v, normalizer=normalizer, causal="bottom_right", kv_len=LENGTHS, **options)


def plain(q, k, v, normalizer="silu"):
    """The same with all of Q·Kᵀ in memory."""
    k, v = (x.repeat_interleave(2, -3) for x in (k, v))
    s = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    i, j = torch.arange(7)[:, None], torch.arange(11)
    if callable(normalizer):
        weights = F.silu(s + BIAS[:, None, None]) / (i + 1)
    visible = j <= i + LENGTHS[:, None, None, None] - 7
    if normalizer == "stick_breaking":
        parts = torch.where(visible, F.logsigmoid(-s), 0.0)
        weights = (F.logsigmoid(s) + parts.flip(-1).cumsum(-1).flip(-1) - parts).exp()
    elif not callable(normalizer):
        weights = NAMED[normalizer](s)
    return torch.where(visible, weights, 0.0) @ v


def loss(function, *arguments, **options):
    return function(*arguments, **options).sin().sum()


def close(found, expected, tolerance=1e-12):
    found, expected = (torch.utils._pytree.tree_leaves(x) for x in (found, expected))
    assert len(found) == len(expected)
    for one, other in zip(found, expected):
        assert one.shape == other.shape
        assert (one - other).norm() <= tolerance * max(other.norm().item(), 1e-3)


PAIR = tuple(torch.stack([x, x * 0.5]) for x in (Q, K, V))
TRANSFORMS = {
    "grad": lambda f: torch.func.grad(lambda *x: loss(f, *x), (0, 1, 2))(Q, K, V),
    "jvp": lambda f: torch.func.jvp(f, (Q, K, V), TANGENTS),
    "vjp": lambda f: torch.func.vjp(f, Q, K, V)[1](plain(*TANGENTS)),
    "vmap of all": lambda f: torch.vmap(f)(*PAIR),
    "vmap of queries": lambda f: torch.vmap(f, in_dims=(0, None, None))(PAIR[0], K, V),
    "vmap of grad": lambda f: torch.vmap(torch.func.grad(lambda *x: loss(f, *x), (0, 1, 2)))(*PAIR),
    "grad of vmap": lambda f: torch.func.grad(lambda x: loss(torch.vmap(f, in_dims=(0, None, None)), x, K, V))(PAIR[0]),
    "vmap of jvp": lambda f: torch.vmap(lambda *x: torch.func.jvp(f, x, TANGENTS))(*PAIR),
    "jacrev": lambda f: torch.func.jacrev(lambda x: f(Q, x, V).sum((0, 3)))(K),
    "jacfwd": lambda f: torch.func.jacfwd(lambda x: f(Q, K, x).sum((0, 3)))(V),
    "grad of the value of a gradient": lambda f: torch.func.grad(
        lambda k: torch.func.grad_and_value(lambda q: loss(f, q, k, V))(Q)[1])(K),
}


@pytest.mark.parametrize(("transform", "normalizer"), [
    *[("grad", name) for name in [*NAMED, "stick_breaking"]], ("jvp", "relu_squared"), *[(name, OWN) for name in TRANSFORMS],
    *[(name, "stick_breaking") for name in ("vjp", "vmap of all", "vmap of grad", "grad of vmap", "jacrev")],
], ids=lambda x: x if isinstance(x, str) else "function")
def test_transforms_of_torch_func(transform, normalizer):
    close(*[TRANSFORMS[transform](lambda *x, f=f: f(*x, normalizer=normalizer)) for f in (attend, plain)])


def test_tangents_of_sticks_are_refused_by_name():
    with pytest.raises(saccade.CompileError, match="no rule for tangents of the normalizer stick_breaking"):
        TRANSFORMS["jvp"](lambda *x: attend(*x, normalizer="stick_breaking"))


def test_batched_gradients_and_forward_mode_of_tensors_that_require_grad():
    def batched(function):
        inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
        output = function(*inputs)
        return torch.autograd.grad(output, inputs, torch.stack([output.detach(), output.detach() + 1]),
                                   is_grads_batched=True)

    def both(function):
        inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
        with torch.autograd.forward_ad.dual_level():
            made = function(*map(torch.autograd.forward_ad.make_dual, inputs, TANGENTS))
            value, tangent = torch.autograd.forward_ad.unpack_dual(made)
        return value, tangent, torch.autograd.grad(value.sum(), inputs)

    close(batched(attend), batched(plain))
    close(both(attend), both(plain))


@pytest.mark.parametrize("normalizer", ["sigmoid", "stick_breaking", OWN], ids=["sigmoid", "sticks", "function"])
@pytest.mark.parametrize("backend", ["aot_eager", "saccade"])
def test_graphs_have_gradients_without_a_break(backend, normalizer):
    def run(function):
        inputs = [x.clone().requires_grad_() for x in (Q, K, V)]
        value = function(*inputs)
        return value, torch.autograd.grad(value, inputs)

    torch._dynamo.reset()
    close(run(torch.compile(lambda *x: loss(attend, *x, normalizer=normalizer), backend=backend, fullgraph=True)),
          run(lambda *x: loss(plain, *x, normalizer=normalizer)))  # fmt: skip


def test_graphs_with_open_extents_and_transforms_inside():
    torch._dynamo.reset()

    def push(q, k, v):
        return torch.func.grad(lambda q: saccade.attention(q, k, v, normalizer="sigmoid").sin().sum())(q)

    compiled = torch.compile(push, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (11, 6):
        k, v = K[:, :, :length], V[:, :, :length]
        weights = torch.func.grad(lambda q, k=k, v=v: (
            torch.sigmoid(q @ k.repeat_interleave(2, 1).transpose(2, 3) * 8**-0.5) @ v.repeat_interleave(2, 1)).sin().sum())
        close(compiled(Q, k, v), weights(Q))


def test_gradients_of_captured_tensors_in_transforms():
    def own(bias):
        return saccade.attention(Q, K, V, normalizer=lambda s, b, h, i, j: torch.sigmoid(s + bias[h])).sin().sum()

    def other(bias):
        k, v = (x.repeat_interleave(2, 1) for x in (K, V))
        return (torch.sigmoid(Q @ k.transpose(2, 3) * 8**-0.5 + bias[:, None, None]) @ v).sin().sum()

    close(*[torch.func.grad(f)(BIAS) for f in (own, other)])
    close(*[torch.vmap(torch.func.grad(f))(torch.stack([BIAS, -BIAS])) for f in (own, other)])
    close(*[torch.func.jvp(f, (BIAS,), (BIAS + 1,)) for f in (own, other)])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_ragged_batches_with_hidden_keys(dtype):
    offsets = torch.tensor([0, 3, 3, 8], dtype=torch.int32)
    q, k, v = (torch.randn(8, heads, 8).to(dtype) for heads in (4, 2, 2))
    options = {"cu_seqlens_q": offsets, "cu_seqlens_k": offsets, "normalizer": "relu_squared",
               "score": lambda s, b, h, i, j: torch.where(j == 1, -math.inf, s)}  # fmt: skip

    def other(q, k, v):
        k, v = (x.double().repeat_interleave(2, 1) for x in (k, v))
        parts = [torch.einsum("qhd,khd->hqk", q[a:b].double(), k[a:b]) * 8**-0.5 for a, b in ((0, 3), (3, 8))]
        for part in parts:
            part[:, :, 1] = -math.inf
        return sum((part.relu() ** 2 @ v[a:b].transpose(0, 1)).sin().sum() for part, (a, b) in zip(parts, ((0, 3), (3, 8))))

    found = torch.func.grad(lambda *x: saccade.attention(*x, **options).double().sin().sum(), (0, 1, 2))(q, k, v)
    expected = torch.func.grad(other, (0, 1, 2))(q, k, v)
    close([x.double() for x in found], [x.double() for x in expected], 3e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("function", [
    lambda q: saccade.attention(q, K, V, normalizer="silu"), lambda q: saccade.attention(q, K, V),
    lambda q: saccade.linear_attention(q, K, V), lambda q: saccade.causal_conv1d(q[0], torch.ones(7, 2, dtype=torch.float64)),
    lambda q: saccade.gated_rms_norm(q, q, torch.ones(8, dtype=torch.float64)),
], ids=["normalizer", "softmax", "linear", "conv", "norm"])  # fmt: skip
def test_second_derivatives_by_nested_transforms_are_an_error(function):
    def first(q):
        return (torch.func.grad(lambda x: loss(function, x))(q) ** 2).sum()

    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        torch.func.grad(first)(Q)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        first(Q.clone().requires_grad_()).backward()
    assert first(Q) > 0


def test_a_weight_that_is_no_multiple_has_no_gradient_in_graphs_too():
    with pytest.raises(saccade.CompileError):
        torch.func.grad(lambda q: saccade.attention(q, K, V, weight=lambda p, b, h, i, j: p * p).sum())(Q)
