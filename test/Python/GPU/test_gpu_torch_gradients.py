"""Gradients of attention with tensors on a GPU: the functions of Saccade, and PyTorch's in `enabled()`, call the gradient
function that is compiled for that GPU. torch is built without CUDA, so its dispatcher takes the tensors, which are those of
Inputs/gpu_torch.py, for tensors on the CPU: the kernels for CUDA are registered for them."""

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gpu_arrays
import torch.nn.functional as F
from gpu_torch import OnGPU, located, moved
from torch._subclasses import FakeTensorMode

import saccade
import saccade.torch
from saccade.function import Function
from saccade.torch import differentiated, gradients, recorded
from saccade.torch.rewriting import replace_attention

pytestmark = pytest.mark.filterwarnings("ignore:Warning only once for all operators")

generator = torch.Generator().manual_seed(1)
host = torch.randn(3, 1, 2, 19, 16, generator=generator)
gradient = torch.randn(1, 2, 19, 16, generator=generator)
table = torch.randn(2, 19, 19, generator=generator)


def _attention(tensors, program, integers=None, floats=(), layout="bhsd", target="host"):
    """The forward operators, which are part of libsaccade and read the memory that torch knows."""
    q = tensors[0]
    results = [torch.empty_like(q), *(q.new_empty(q.shape[:3], dtype=torch.float32) for _ in range(2))]
    if type(q) is OnGPU:
        results = [x.as_subclass(OnGPU) for x in results]
    function = saccade.compile(program, target=differentiated.target_of(q, target)).attention
    function.into(*differentiated.in_order(program, tensors, integers, floats), *results)
    return tuple(results)


def _backward(output_gradient, lse_gradient, output, lse, lse_low, *others):
    output_gradient, output, lse, lse_low = map(located, (output_gradient, output, lse, lse_low))
    return gradients._compute(output_gradient, lse_gradient, output, lse, lse_low, *others)


@pytest.fixture
def double(build, monkeypatch):
    loaded = gpu_arrays.start(build)
    loaded.set(devices=1, capability=80)
    streams = {torch.device("cuda:0"): types.SimpleNamespace(cuda_stream=0x50)}
    monkeypatch.setattr(torch.cuda, "current_stream", streams.__getitem__)
    # TVM-FFI would read the memory that torch knows.
    monkeypatch.setattr(Function, "tvm_ffi", property(lambda self: self.into))
    saccade.cache_clear()  # plans of other tests call by TVM-FFI
    library = torch.library.Library("saccade", "IMPL")
    for operator in ("attention.lse_low", "attention_forward.lse_low"):
        library.impl(operator, _attention, "CPU", allow_override=True)
    library.impl("attention_backward", _backward, "CPU", allow_override=True)
    make = gradients._empty_results
    monkeypatch.setattr(gradients, "_empty_results", lambda tensors, *others: [
        x.as_subclass(OnGPU) if type(tensors[0]) is OnGPU else x for x in make(tensors, *others)])
    loaded.log()
    yield loaded
    library._destroy()
    saccade.cache_clear()


def launched(double):
    """The kernels of gradients that were launched since the last log."""
    names = [detail.split()[0] for name, detail in double.log() if name == "cuLaunchKernel"]
    return [name for name in names if "attention_gradient" in name]


def check(double, call, *tensors, tolerance=1e-4):
    """Compares the gradients of `call` with tensors on the GPU with those on the CPU, and that the former were
    computed there without a warning."""
    inputs = [x.clone().requires_grad_() for x in tensors]
    output = call(*inputs)
    expected = torch.autograd.grad(output, inputs, gradient)
    inputs = [moved(x).requires_grad_() for x in tensors]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("saccade.torch.fallback.warn_once", lambda *reason: pytest.fail(str(reason)))
        output = call(*inputs)
    found = torch.autograd.grad(output, inputs, moved(gradient))
    assert launched(double)
    for one, other in zip(found, expected):
        assert np.abs(located(one).get() - other.numpy()).max() < tolerance


def test_attention(double):
    check(double, lambda q, k, v: saccade.attention(q, k, v), *host)
    cases = {"causal": "bottom_right"}, {"window": 3, "causal": "top_left"}, {"scale": 0.3}, {"dropout_p": 0.3, "seed": 5}
    for options in cases:
        check(double, lambda q, k, v: saccade.attention(q, k, v, **options), *host)


def test_tensors_that_functions_read(double):
    def call(q, k, v, bias):
        return saccade.attention(q, k, v, score=lambda s, b, h, i, j: torch.tanh(s) + bias[h, i, j])

    check(double, call, *host, table)


def test_functions_in_place_of_pytorch_s(double):
    ours, flex = saccade.torch.scaled_dot_product_attention, saccade.torch.flex_attention
    check(double, lambda q, k, v: ours(q, k, v, is_causal=True), *host)
    check(double, lambda q, k, v, mask: ours(q, k, v, mask), *host, table[None])
    check(double, lambda q, k, v: flex(q, k, v, lambda s, b, h, i, j: s - (i - j) * 0.1), *host)


def test_pytorch_s_functions(double, monkeypatch):
    def attend(*tensors, **options):
        return saccade.attention(*map(located, tensors), **options)

    def call(q, k, v):
        with saccade.torch.enabled():
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    monkeypatch.setattr(recorded, "attention", attend)
    check(double, call, *host)


def test_transformers(double):
    transformers = pytest.importorskip("saccade.transformers")
    module = types.SimpleNamespace(is_causal=True)

    def call(q, k, v):
        output, _ = transformers.attention_forward(module, q, k, v, None, softcap=5.0)
        return output.transpose(1, 2)

    check(double, call, *host)


def test_torch_compile_makes_the_operator():
    """A graph of tensors on a GPU, without elements: Dynamo cannot make one here."""
    with FakeTensorMode():
        q, k, v, output = (torch.empty(1, 2, 19, 16, device="cuda", requires_grad=True) for _ in range(4))
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(name) for name in "qkv"]
    call = graph.call_function(F.scaled_dot_product_attention, tuple(inputs))
    for node, example in zip((*inputs, call), (q, k, v, output)):
        node.meta["example_value"] = example
    graph.output(call)
    module = torch.fx.GraphModule({}, graph)
    replaced, kept = replace_attention(module)
    assert len(replaced) == 1 and not kept
    assert "torch.ops.saccade.attention" in module.code
