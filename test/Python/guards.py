"""What compiled code would read wrongly is an exception that names the argument, what was found and what was expected.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: %python -W ignore %s %S/Inputs
"""

import sys

sys.path.append(sys.argv[1])

import numpy as np
import programs
import torch
from programs import refused
from torch._subclasses.fake_tensor import FakeTensorMode

import saccade

attend = saccade.compile(programs.attention()).attend
q, k, v = torch.randn(3, 2, 3, 7, 16)
array = q.numpy()
expected = attend(q, k, v)


def refuses(exception, words, wrong):
    """Every argument, and `out`, in every kind of call."""
    refused(exception, ["q is " if words[0].startswith("is ") else "q ", *words], attend, wrong, k, v)
    refused(exception, ["k ", *words], attend, q, wrong, v)
    refused(exception, ["v ", *words], attend, array, k, wrong)
    refused(exception, ["v ", *words], attend.result_shapes, q, k, wrong)
    refused(exception, ["out ", *words], attend, q, k, v, out=wrong)


# --- gradients
leaf = q.clone().requires_grad_()
grown = leaf * 1
for tensor in (leaf, grown, torch.nn.Parameter(q)):
    refuses(ValueError, ["requires grad", "no backward yet", "torch.no_grad()", ".detach()"], tensor)
    with torch.no_grad():
        assert torch.equal(attend(tensor, k, v), expected)
    assert torch.equal(attend(tensor.detach(), k, v), expected)

# --- bits that say that memory is not what it seems
negative = q._neg_view()
refuses(ValueError, ["is a view with the negative bit set", ".resolve_neg()"], negative)
assert torch.equal(attend(negative.resolve_neg(), k, v), attend(-q, k, v))
imaginary = torch.randn(2, 3, 7, 16, dtype=torch.complex64).conj().imag
refuses(ValueError, ["negative bit"], imaginary)
conjugate = torch.randn(2, 3, 7, 16, dtype=torch.complex64).conj()
refused(TypeError, ["q has dtype torch.complex64"], attend, conjugate, array, v)
refused(TypeError, ["argument 'q'", "complex64, expected f32"], attend, conjugate, k, v)

# --- no memory of one's own
with FakeTensorMode():
    fake = torch.empty(2, 3, 7, 16)
refuses(TypeError, ["is a FakeTensor", "it has no memory"], fake)
refuses(TypeError, ["is on meta, expected cpu"], torch.empty(2, 3, 7, 16, device="meta"))
refuses(TypeError, ["is a sparse_coo tensor, expected a dense one"], q.to_sparse())
refuses(TypeError, ["is a nested tensor"], torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
refuses(TypeError, ["has no memory to read"], torch._efficientzerotensor((2, 3, 7, 16)))


class Wrapper(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        raise NotImplementedError

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)


refuses(TypeError, ["is a Wrapper", "expected a plain torch.Tensor"], Wrapper((2, 3, 7, 16)))


def inside(x):
    refuses(TypeError, ["has no memory to read", "torch.func"], x)
    return x.sum()


torch.vmap(inside)(torch.randn(4, 2, 3, 7, 16))
torch.func.grad(inside)(q)

# --- NumPy
refuses(TypeError, ["has dtype >f4", "other byte order", "expected native float32"], array.astype(">f4"))
refuses(TypeError, ["has dtype complex64", "expected one of float64, float32"], array.astype(np.complex64))
refuses(TypeError, ["has dtype object"], array.astype(object))
refuses(TypeError, ["has dtype <U"], array.astype(str))
refuses(TypeError, ["is a masked array"], np.ma.masked_array(array, array > 0))
shifted = np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view(np.float32).reshape(array.shape)
refuses(ValueError, ["not aligned in memory"], shifted)
packed = np.zeros(array.shape, [("x", "f4"), ("tag", "u2")])["x"]
refuses(ValueError, ["not aligned in memory"], packed)
pairs = np.zeros((*array.shape, 6), np.uint8).view(np.float16)[..., :2]
halves = saccade.compile(programs.attention("f16")).attend
assert halves(*[pairs[..., 0]] * 3).shape == array.shape
crooked = np.lib.stride_tricks.as_strided(np.zeros(4000, np.float32), array.shape, (1344, 448, 64, 6))
refused(ValueError, ["aligned"], attend, crooked, k, v)

# --- no arrays
refuses(TypeError, ["is a list, expected a torch CPU tensor or a NumPy array"], q.tolist())
refuses(TypeError, ["is a float, expected"], 1.5)
refuses(TypeError, ["is a numpy.float32, expected"], np.float32(3))
refused(TypeError, ["k is None, expected a torch CPU tensor or a NumPy array"], attend, q, None, v)

# The function object of TVM-FFI does not know what only torch knows, but touches no memory that is not there.
refused(ValueError, ["argument 'k'", "a fake tensor has no data"], attend.tvm_ffi, q, fake, v, torch.empty_like(q))
assert torch.equal(attend(q, k, v), expected)
