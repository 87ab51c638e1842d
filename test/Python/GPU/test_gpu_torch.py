"""torch tensors on a GPU are called through the same functions, on torch's current stream. torch is built without CUDA, so
the tensors are those of Inputs/gpu_torch.py, which lie on a fake GPU."""

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gpu_arrays
import programs
from gpu_arrays import asarray
from gpu_torch import OnGPU, moved
from programs import expected_attention, refused

import saccade
import saccade.torch
from saccade import _arrays, _gpu

generator = torch.Generator().manual_seed(1)
host = torch.randn(3, 2, 3, 7, 16, generator=generator)
expected = expected_attention(*host.numpy())


@pytest.fixture
def double(build):
    loaded = gpu_arrays.start(build)
    loaded.set(devices=1, capability=80)
    loaded.log()
    return loaded


@pytest.fixture
def tensors(double):
    return [moved(x) for x in host]


@pytest.fixture
def current(monkeypatch):
    """torch's current stream is 0x50 on the GPU of the tensors."""
    streams = {torch.device("cuda:0"): types.SimpleNamespace(cuda_stream=0x50)}
    monkeypatch.setattr(torch.cuda, "current_stream", streams.__getitem__)


@pytest.fixture
def attend(double):
    return saccade.compile(programs.attention(), target="sm_80").attend


def launches(double):
    """The streams of the launches since the last log."""
    return [detail.split()[-1] for name, detail in double.log() if name == "cuLaunchKernel"]


def close(result):
    return type(result) is OnGPU and np.abs(result.get() - expected).max() < 1e-5


def test_a_call_runs_on_torch_s_current_stream(double, tensors, attend, current):
    assert close(attend.bind(k=tensors[1])(q=tensors[0], v=tensors[2]))  # a bound function does not use TVM-FFI
    assert launches(double) == ["stream=80"]
    assert close(attend(tensors[0], asarray(host[1].numpy()), tensors[2]))  # nor does one of tensors of two libraries
    assert launches(double) == ["stream=80"]
    out = torch.empty_like(tensors[0])
    attend.into(*tensors, out)
    assert close(out)
    assert launches(double) == ["stream=80"]


def test_a_stream_of_the_caller_comes_before_the_current_one(double, tensors, attend, current):
    stream = types.SimpleNamespace(cuda_stream=0x60)
    assert close(attend(*tensors, stream=stream))
    assert close(saccade.attention(*tensors, stream=stream))
    out = torch.empty_like(tensors[0])
    version = out._version
    assert saccade.attention(*tensors, stream=stream, out=out) is out
    assert close(out)
    assert out._version == version + 1
    assert attend(*tensors, stream=stream, out=out) is out
    assert out._version == version + 2
    assert launches(double) == ["stream=96"] * 4


def test_a_call_by_tvm_ffi_runs_on_its_stream(double, tensors, attend):
    tvm_ffi = pytest.importorskip("tvm_ffi")
    arrays = [asarray(x.numpy()) for x in host]
    out = gpu_arrays.empty(host[0].shape)
    with tvm_ffi.use_raw_stream(tvm_ffi.device("cuda:0"), 0x70):
        attend.tvm_ffi(*arrays, out)
    assert launches(double) == ["stream=112"]
    assert np.abs(out.get() - expected).max() < 1e-5


def test_functions_read_tensors_of_the_gpu(double, tensors):
    table = torch.arange(7).float()
    on_gpu = moved(table)
    result = saccade.attention(*tensors, stream=5, score=lambda s, b, h, i, j: s + on_gpu[j])
    reference = saccade.attention(*host, score=lambda s, b, h, i, j: s + table[j])
    assert np.abs(result.get() - reference.numpy()).max() < 1e-5
    words = ["'table', captured by the score function, is on cpu, expected cuda"]
    refused(TypeError, words, saccade.attention, *tensors, stream=5, score=lambda s, b, h, i, j: s + table[j])
    words = ["'on_gpu', captured by the score function, is on cuda:0, expected cpu"]
    refused(TypeError, words, saccade.attention, *host, score=lambda s, b, h, i, j: s + on_gpu[j])


def test_new_tensors_of_scores_and_masks_are_on_the_device_of_the_caller_s(double):
    given = moved(torch.tensor([0, 3, 7], dtype=torch.int32))
    moves = []
    given.cpu = lambda: moves.append("cpu") or torch.tensor([0, 3, 7])

    def to(self, device):
        moves.append(str(device))
        return self

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.Tensor, "to", to)
        saccade.masks.ragged(given)
    assert moves == ["cpu", "cuda:0"]


def test_tensors_on_two_devices_or_of_two_kinds_are_refused(double, tensors, attend, current):
    q, k, v = tensors
    array = asarray(host[0].numpy())
    refused(TypeError, ["k is on cpu, expected cuda"], saccade.attention, q, host[1], v)
    refused(TypeError, ["k is on cuda:0, expected cpu"], saccade.attention, host[0], k, v)
    refused(TypeError, ["k is on cpu, expected cuda"], attend, q, host[1], v)
    refused(TypeError, ["k is on cuda:0, expected cpu"], saccade.compile(programs.attention()).attend, host[0], k, v)
    refused(TypeError, ["v is a tensor of another library, expected a torch tensor"], saccade.attention, q, k, array)
    refused(TypeError, ["k is a torch tensor, expected a tensor of another library"], saccade.attention, array, k, v)
    refused(ValueError, ["q requires grad"], attend, moved(host[0]).requires_grad_(), k, v)


class Exporting:
    """Hands out the memory of a torch tensor on the CPU, whatever the stream."""

    def __init__(self, tensor):
        self.tensor = tensor

    def __dlpack__(self, stream=None, max_version=None):
        return self.tensor.__dlpack__()


@pytest.mark.parametrize("name", _arrays.DTYPES)
def test_element_types_have_the_numbers_of_dlpack(name):
    _, _, fields = _gpu._read_capsule("x", Exporting(torch.zeros(2, dtype=getattr(torch, name))), 0)
    assert fields[4:7] == (*_arrays.DTYPES[name], 1)
    assert _arrays.DTYPE_NAMES[_arrays.DTYPES[name]] == name


@pytest.mark.parametrize("target", ["sm_90a", "cuda"])
def test_models_are_refused_for_gpus(target):
    refused(ValueError, [f"found target='{target}', expected a CPU target"], saccade.torch.compile, torch.nn.Linear(64, 64),
            (torch.ones(48, 64),), target=target)  # fmt: skip


def test_the_program_of_a_model_has_ptx():
    program = saccade.torch.read(torch.export.export(torch.nn.Linear(64, 64).to(torch.bfloat16),
                                                     (torch.ones(48, 64, dtype=torch.bfloat16),)))  # fmt: skip
    module = saccade.compile(program.text, target="sm_90a")
    assert ".visible .entry" in module.ir("ptx")
    assert "sm_90a" in module.explain()


@pytest.mark.parametrize(("capability", "target"), [(80, "sm_80"), (90, "sm_90a")])
def test_statistics_of_weights(double, tensors, capability, target):
    """Arrays of the fake GPU are not read by torch's functions: these statistics are results of the kernel as they are."""
    double.set(devices=1, capability=capability)
    options = {"causal": "bottom_right", "sink": 0.5, "return_max": True}
    chosen = lambda: [saccade.stats.distance(4), saccade.stats.tally(lambda s, b, h, i, j: (j // 3, s), 3, "of_blocks")]
    _, largest, _, found = saccade.attention(*tensors, **options, stream=5, target=target, stats=chosen())
    _, expected_largest, _, exact = saccade.attention(*host, **options, stats=chosen())
    for x, y in ((found.distance, exact.distance), (found.of_blocks, exact.of_blocks), (largest, expected_largest)):
        np.testing.assert_allclose(x.get(), y.numpy(), rtol=1e-4, atol=1e-5)
