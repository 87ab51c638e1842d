"""A compiled function takes torch tensors as they lie in memory and gives new ones, or writes into those of the caller.

REQUIRES: torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import sys

sys.path.append(sys.argv[1])

import numpy as np
import programs
import torch
from programs import refused

import saccade

torch.manual_seed(3)
attend = saccade.compile(programs.attention()).attend
q, k, v = torch.randn(3, 2, 3, 7, 16)
wanted = attend(q, k, v)
expected = programs.expected_attention(q, k, v)
assert type(wanted) is torch.Tensor and wanted.dtype == torch.float32 and wanted.is_contiguous()
assert np.abs(wanted.numpy() - expected).max() < 1e-5


def same(*inputs, **named):
    found = attend(*inputs, **named)
    assert torch.equal(found, wanted), (found - wanted).abs().max()
    return found


# --- any memory
same(q.transpose(1, 2).contiguous().transpose(1, 2), k.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0), v)
wide = torch.full((2, 3, 9, 20), torch.nan)
wide[..., 1:8, 2:18] = k
same(q, wide[..., 1:8, 2:18], v)
same(torch.nn.Parameter(q, requires_grad=False), k.as_subclass(type("Mine", (torch.Tensor,), {})), v)
expanded = k[:1, :1].expand(k.shape)
assert torch.equal(attend(q, expanded, v), attend(q, expanded.contiguous(), v))
assert not attend(q, k[:, :, :0], v[:, :, :0]).any() and attend(q[:, :, :0], k, v).shape == (2, 3, 0, 16)
assert attend(q[:0], k[:0], v[:0]).shape == (0, 3, 7, 16)
with torch.inference_mode():
    same(q.clone(), k, v)
with torch.no_grad():
    same(q.clone().requires_grad_(), k, v)
torch.set_default_dtype(torch.float64)
same(q, k, v)
torch.set_default_dtype(torch.float32)
with torch.device("meta"):
    same(q, k, v)

# --- types
for dtype, element, bound in (
    (torch.float64, "f64", 1e-12),
    (torch.float16, "f16", 3e-3),
    (torch.bfloat16, "bf16", 3e-2),
):
    tensors = [x.to(dtype) for x in (q, k, v)]
    found = saccade.compile(programs.attention(element)).attend(*tensors)
    exact = programs.expected_attention(*[x.double() for x in tensors])
    assert found.dtype == dtype and np.abs(found.double().numpy() - exact).max() < bound

# --- mixed with NumPy the result is torch's; out decides where it is written
same(q, k.numpy(), v)
same(q.numpy(), k.numpy(), v)
for out in (torch.empty_like(q), torch.full((7, 2, 16, 3), torch.nan).permute(1, 3, 0, 2)):
    version = out._version
    assert same(q, k, v, out=out) is out
    assert out._version > version, "autograd must see that out was written"
array = np.empty(q.shape, np.float32)
assert attend(q, k, v, out=array) is array and np.array_equal(array, wanted.numpy())
out = torch.empty_like(q)
assert same(q.numpy(), k.numpy(), v.numpy(), out=out) is out and out._version == 1

# --- names, scalars, several results, no dimensions
capped = saccade.compile(programs.capped).capped
q1, k1, v1 = q[0, 0], k[0, 0], v[0, 0]
for n, cap, strict in ((5, 2.5, True), (np.int32(7), np.float32(0.5), np.bool_(False)), (torch.tensor(3), 4, 0)):
    output, lse = capped(q1, k1, v1, n, strict=strict, cap=cap)
    for found, exact in zip((output, lse), programs.expected_capped(q1, k1, v1, int(n), cap, strict)):
        assert type(found) is torch.Tensor and np.allclose(found.numpy(), exact, atol=1e-5), (n, cap, strict)
outs = (torch.empty(7, 16), torch.empty(7))
assert capped(q1, k1, v1, 5, 2.5, True, out=outs) is outs
assert torch.equal(outs[1], capped(q1, k1, v1, 5, 2.5, True)[1])
filled = saccade.compile(programs.filled).filled
for length in (3, 3, 5, 0, 5):
    found = filled(torch.tensor(length, dtype=torch.int32), torch.tensor(1.5))
    assert found.shape == (length,) and (found == 1.5).all()
said = ["filled: result 'result' (tensor<?xf32>)", "negative extent -2"]
refused(ValueError, said, filled, torch.tensor(-2, dtype=torch.int32), torch.tensor(1.5))

# --- what the code refuses: the same words as for NumPy arrays
refused(ValueError, ["argument 'q'", "found extent 15 in dimension 3, expected 16"], attend, q[..., 1:], k, v)
refused(TypeError, ["argument 'k'", "found 3 dimensions, expected 4"], attend, q, k[0], v)
refused(TypeError, ["argument 'v'", "found element type i32, expected f32"], attend, q, k, v.int())
refused(ValueError, ["value", "found 6, expected 7"], attend, q, k, v[:, :, 1:])
refused(ValueError, ["value", "found 6, expected 7"], attend, q, k.numpy(), v[:, :, 1:])
refused(ValueError, ["result 'output'", "found extent 6 in dimension 2"], attend, q, k, v, out=torch.empty(2, 3, 6, 16))
refused(TypeError, ["result 'output'", "element type f64"], attend, q, k, v, out=q.double())
refused(ValueError, ["overlap"], attend, q, k, v, out=q)
shared = torch.empty(1, 3, 7, 16).expand(2, -1, -1, -1)
refused(ValueError, ["found stride 0 in dimension 0"], attend, q, k, v, out=shared)

# --- the function object of TVM-FFI: inputs, then results
out = torch.full_like(q, torch.nan)
assert attend.tvm_ffi is attend.tvm_ffi and attend.tvm_ffi(q, k, v, out) is None and torch.equal(out, wanted)
outs[0].fill_(torch.nan)
capped.tvm_ffi(q1, k1, v1, 5, 2.5, True, *outs)
assert torch.equal(outs[0], capped(q1, k1, v1, 5, 2.5, True)[0])
refused(TypeError, ["attend: found 3 arguments, expected 3 inputs and memory for 1 result"], attend.tvm_ffi, q, k, v)
refused(TypeError, ["argument 'k'", "found an integer, expected a tensor"], attend.tvm_ffi, q, 3, v, out)
refused(ValueError, ["argument 'v'", "extent 15"], attend.tvm_ffi, q, k, v[..., 1:], out)
into = torch.full_like(q, torch.nan)
attend.into(q, k, v, into)
assert torch.equal(into, wanted)

# It keeps the code alive by itself.
alone = saccade.compile(programs.attention(name="alone")).alone.tvm_ffi
saccade.cache_clear()
alone(q, k, v, out.zero_())
assert torch.equal(out, wanted)
