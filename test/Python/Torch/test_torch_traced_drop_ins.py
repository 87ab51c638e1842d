"""The drop-in functions under torch.compile refuse and accept the calls that they do eagerly."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch.autograd import forward_ad
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import saccade
import saccade.torch
from saccade.torch.backend import saccade as backend

Q, K, V = (torch.randn(2, 2, 8, 16) for _ in range(3))

pytestmark = pytest.mark.usefixtures("dynamo", "no_grad")


def eager_inner(graph, inputs):
    return backend(graph, inputs, options={"inner": "eager"})


def compiled(function, backend="eager"):
    return torch.compile(function, backend=backend)


def test_the_backend_is_found_by_its_name_alone(run_script):
    run_script("backend_by_name.py")


def test_a_plain_call_has_few_guards():
    """Each call of a compiled function evaluates a guard for every name that the traced code looked up."""
    counts = []
    for function in (F.scaled_dot_product_attention, saccade.torch.scaled_dot_product_attention):
        guards = []

        def keep(found, guards=guards):
            guards.extend(found)
            return [True] * len(found)

        torch._dynamo.reset()
        torch.compile(lambda q, k, v, f=function: f(q, k, v), backend="eager", fullgraph=True,
                      options={"guard_filter_fn": keep})(Q, K, V)
        counts.append(len(guards))
    assert counts[1] - counts[0] < 30


@pytest.mark.parametrize("call", [
    lambda: saccade.torch.flex_attention(Q, K, V, lambda s, b, h, i, j: torch.erfinv(s)),
    lambda: saccade.torch.scaled_dot_product_attention(Q, K, V, scale="x"),
    lambda: saccade.torch.scaled_dot_product_attention(Q, K, V, torch.zeros(5, 1, 8, 8)),
    lambda: saccade.torch.flex_attention(Q, K, V, block_mask=create_block_mask(
        lambda b, h, i, j: i >= j, None, None, 256, 256, device="cpu")),
    lambda: saccade.attention(Q, K, V, out=torch.empty(3, 2, 2, 8, 16, dtype=torch.float64)),
], ids=["untraceable function", "scale", "mask of other batches", "mask of other lengths", "out"])  # fmt: skip
def test_mistakes_are_those_of_eager_calls(call):
    with pytest.raises((TypeError, ValueError, RuntimeError)) as eager:
        call()
    with pytest.raises(type(eager.value)):
        compiled(call)()


def test_a_mask_of_other_batches_is_refused_by_the_backend():
    mask = torch.zeros(5, 1, 8, 8)
    with pytest.raises(Exception, match="5"):
        compiled(lambda: F.scaled_dot_product_attention(Q, K, V, mask), eager_inner)()


def test_functions_that_saccade_cannot_trace_are_computed_by_pytorch():
    def score(s, b, h, i, j):
        return torch.erfinv(s / 100)

    expected = flex_attention(Q, K, V, score)
    with saccade.torch.enabled(), pytest.warns(saccade.Warning, match="computed by PyTorch"):
        assert torch.equal(flex_attention(Q, K, V, score), expected)


def test_captured_parameters_are_given_to_pytorch():
    bias = torch.nn.Parameter(torch.randn(8))
    call = lambda: saccade.torch.flex_attention(Q, K, V, lambda s, b, h, i, j: s + bias[j])
    with torch.enable_grad():
        found = compiled(call)()
    assert found.requires_grad
    assert torch.allclose(found.detach(), call(), atol=1e-5)


def test_multi_head_attention_under_autocast():
    module, x = torch.nn.MultiheadAttention(32, 4, batch_first=True).eval(), torch.randn(2, 5, 32)

    def call():
        with torch.autocast("cpu", torch.bfloat16):
            return module(x, x, x, need_weights=False)[0]

    assert torch.allclose(compiled(call, eager_inner)().float(), call().float(), atol=2e-2)


def test_forward_gradients_are_kept():
    with forward_ad.dual_level(), sdpa_kernel(SDPBackend.MATH):
        dual = forward_ad.make_dual(Q, torch.ones_like(Q))
        expected = forward_ad.unpack_dual(F.scaled_dot_product_attention(dual, K, V)).tangent
        found = forward_ad.unpack_dual(saccade.torch.scaled_dot_product_attention(dual, K, V)).tangent
        with saccade.torch.enabled():
            inside = forward_ad.unpack_dual(F.scaled_dot_product_attention(dual, K, V)).tangent
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(inside, expected)


@pytest.mark.parametrize("n", [4, 1000000])
def test_captured_indices_are_checked(n):
    table = torch.randn(4, 8)
    with pytest.raises(ValueError, match="too small"):
        saccade.attention(Q, K, V, score=lambda s, b, h, i, j: s + table[n, j])
    array = table.numpy()
    with pytest.raises(ValueError, match="too small"):
        saccade.attention(Q.numpy(), K.numpy(), V.numpy(), score=lambda s, b, h, i, j: s + array[n, j])
