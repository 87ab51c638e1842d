"""The drop-in functions of `saccade.torch` take tensors on a GPU, which are those of Inputs/gpu_torch.py."""

import types

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import gpu_arrays
import torch.nn.functional as F
from gpu_torch import OnGPU, moved

import saccade
import saccade.torch
from saccade.function import Function

generator = torch.Generator().manual_seed(1)
host = torch.randn(3, 2, 3, 7, 16, generator=generator)
mask = torch.randn(2, 3, 7, 7, generator=generator)
bias = torch.randn(7, 7, generator=generator)


@pytest.fixture
def double(build, monkeypatch):
    loaded = gpu_arrays.start(build)
    loaded.set(devices=1, capability=80)
    loaded.log()
    streams = {torch.device("cuda:0"): types.SimpleNamespace(cuda_stream=0x50)}
    monkeypatch.setattr(torch.cuda, "current_stream", streams.__getitem__)
    # TVM-FFI would read the memory that torch knows.
    monkeypatch.setattr(Function, "tvm_ffi", property(lambda self: self.into))
    saccade.cache_clear()  # plans of other tests call by TVM-FFI
    return loaded


def close(found, expected):
    assert type(found) is OnGPU
    assert np.abs(found.get() - expected.numpy()).max() < 1e-5


def test_calls_run_on_torch_s_current_stream(double):
    tensors = [moved(x) for x in host]
    ours, pytorchs = saccade.torch.scaled_dot_product_attention, F.scaled_dot_product_attention
    close(ours(*tensors), pytorchs(*host))
    close(ours(*tensors, is_causal=True, scale=0.3), pytorchs(*host, is_causal=True, scale=0.3))
    close(ours(*tensors, moved(mask > 0)), pytorchs(*host, mask > 0))
    close(ours(*tensors, moved(mask)), pytorchs(*host, mask))
    launches = [detail.split()[-1] for name, detail in double.log() if name == "cuLaunchKernel"]
    assert set(launches) == {"stream=80"}


def test_flex_attention_reads_tensors_of_the_gpu(double):
    tensors, on_gpu = [moved(x) for x in host], moved(bias)
    found = saccade.torch.flex_attention(*tensors, lambda s, b, h, i, j: s + on_gpu[i, j], lambda b, h, i, j: i >= j)
    close(found, F.scaled_dot_product_attention(*host, bias.masked_fill(torch.ones(7, 7).tril() == 0, -torch.inf)))


def test_tensors_on_two_devices_are_refused_by_pytorch(double):
    q, k, v = moved(host[0]), *host[1:]
    with pytest.raises(Exception, match=r"device|cuda|CUDA"):
        saccade.torch.scaled_dot_product_attention(k, q, v)
