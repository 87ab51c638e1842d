"""`saccade.linear_attention` as an operator of PyTorch: in graphs of torch.compile and torch.export, without a break, with
gradients, states and `out=`. test/Fuzz/linear_calls.py compares its values with the recurrences of models."""

import re

import pytest
import torch

import saccade

LENGTHS = (30, 17, 65, 1)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(3)
    torch._dynamo.reset()


def operands(length=30, dtype=torch.float32):
    q, k = (torch.randn(2, 2, length, 16, dtype=dtype) for _ in range(2))
    small = torch.float64 if dtype == torch.float64 else torch.float32
    return [q, k, torch.randn(2, 4, length, 8, dtype=dtype), -torch.rand(2, 4, length, dtype=small),
            torch.randn(2, 4, 16, 8, dtype=small)]


def call(q, k, v, decay, state, **options):
    return saccade.linear_attention(q, k, v, causal=True, decay=decay, state=state, return_state=True, l2norm=1e-6,
                                    scale=0.3, **options)


def assert_equal(found, expected, tolerance=1e-5):
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_whole_graphs_agree_with_calls(dynamic, dtype):
    compiled = torch.compile(call, fullgraph=True, dynamic=dynamic)
    for length in LENGTHS:
        given = operands(length, dtype)
        assert_equal(compiled(*given), call(*given), 2e-2 if dtype == torch.bfloat16 else 1e-5)


@pytest.mark.parametrize("backend", ["inductor", "aot_eager"])
def test_gradients_of_whole_graphs_agree_with_calls(backend):
    compiled = torch.compile(call, fullgraph=True, backend=backend)
    leaves = [x.requires_grad_() for x in operands(66)]
    found, expected = ([*torch.autograd.grad(output.square().sum() + state.sum(), leaves)]
                       for output, state in (compiled(*leaves), call(*leaves)))
    assert_equal(found, expected, 1e-4)


def test_a_graph_writes_to_out():
    given = operands()
    output, state = torch.empty(2, 4, 30, 8), torch.empty(2, 4, 16, 8)
    torch.compile(lambda *x: call(*x, out=(output, state)), fullgraph=True)(*given)
    assert_equal((output, state), call(*given))


def test_an_export_has_one_operator():
    class Layer(torch.nn.Module):
        def forward(self, *given):
            return call(*given)

    given = operands()
    exported = torch.export.export(Layer(), tuple(given))
    names = [str(node.target) for node in exported.graph.nodes if node.op == "call_function"]
    assert names.count("saccade.linear_attention.default") == 1
    assert_equal(exported.module()(*given), call(*given))


def test_invalid_calls_break_the_graph_and_raise_the_error_of_the_call():
    q, k, v, *_ = operands()
    function = lambda q, k, v: saccade.linear_attention(q, k, v, causal=True)
    with pytest.raises(ValueError, match=re.escape("v has length 9, expected 30, that of k")):
        torch.compile(function)(q, k, v[:, :, :9])
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="its arguments are invalid"):
        torch.compile(function, fullgraph=True)(q, k, v[:, :, :9])


def test_the_operator_passes_the_checks_of_pytorch():
    given = operands(20)
    seen = []

    class Recorder(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if str(function) == "saccade.linear_attention.default":
                seen.append(args)
            return function(*args, **(kwargs or {}))

    with Recorder():
        call(given[0].requires_grad_(), *given[1:])
    (tensors, *rest), = seen
    torch.library.opcheck(torch.ops.saccade.linear_attention.default, ([x.detach() for x in tensors], *rest))
