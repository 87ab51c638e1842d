"""A stand-in for PyTorch on a GPU, for tests of ./dev device: tensors in the memory of the driver double, no results.

SDPA has FlashAttention, whose results have a small difference from any other, and no cuDNN; FlexAttention is missing.
"""

import contextlib
import ctypes
import math
import sys
import types

__version__ = "stand-in"
version, backends = types.SimpleNamespace(cuda="13.0"), types.SimpleNamespace(cudnn=types.SimpleNamespace(version=lambda: 1))
float16, bfloat16, float32, int32 = "f16", "bf16", "f32", "i32"
driver = ctypes.CDLL("libcuda.so.1")


class Tensor:
    def __init__(self, shape):
        self.shape, address = tuple(shape), ctypes.c_uint64()
        assert driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(4 * math.prod(shape))) == 0
        self.data_ptr = lambda: address.value

    def same(self, *_):
        return self

    requires_grad_ = detach = double = norm = __matmul__ = __sub__ = __truediv__ = same

    def item(self):
        return 0.125 / 64


def empty(shape, dtype, device):
    return Tensor(shape)


def randn(*shape, device, dtype):
    return Tensor(shape)


class Graph:
    def replay(self):
        pass


def attend(q, k, v, is_causal, enable_gqa):
    if attention.backend == "cuDNN":
        raise RuntimeError("No available kernel.")
    return q


@contextlib.contextmanager
def select(backend):
    attention.backend = backend
    yield


def nothing(*_, **__):
    return contextlib.nullcontext()


cuda = types.SimpleNamespace(is_available=lambda: True, ExternalStream=str, stream=nothing, synchronize=nothing,
                             CUDAGraph=Graph, graph=nothing)
autograd = types.SimpleNamespace(grad=lambda output, inputs, *_, **__: tuple(inputs))
nn = types.ModuleType("torch.nn")
nn.functional = types.SimpleNamespace(linear=lambda x, w, bias: x, scaled_dot_product_attention=attend)
attention = types.ModuleType("torch.nn.attention")
attention.SDPBackend = types.SimpleNamespace(FLASH_ATTENTION="flash", CUDNN_ATTENTION="cuDNN")
attention.sdpa_kernel = select
sys.modules.update({"torch.nn": nn, "torch.nn.attention": attention})
