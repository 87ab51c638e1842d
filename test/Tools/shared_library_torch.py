# REQUIRES: torch
# RUN: %python %s %S/Inputs %t
"""Calls a shared library with PyTorch tensors through TVM-FFI; tensors without CPU memory are refused."""

import pathlib
import sys
import threading

import torch
import tvm_ffi
from torch._subclasses.fake_tensor import FakeTensorMode

sys.path.insert(0, sys.argv[1])
from artifact import attention, compile_artifact, expect, finish, refused

inputs, folder = map(pathlib.Path, sys.argv[1:3])
folder.mkdir(parents=True, exist_ok=True)
compile_artifact(inputs / "artifact.mlir", folder / "artifact.so")
module = tvm_ffi.load_module(str(folder / "artifact.so"))
torch.manual_seed(7)
q, k, v = torch.randn(2, 4, 33, 16), torch.randn(2, 2, 50, 16), torch.randn(2, 2, 50, 8)
scale, length = 0.25, 45


def check(what, q, k, v, o=None):
    """Calls attend and compares with NumPy's float64."""
    expected, lse = (torch.from_numpy(x) for x in attention(q.numpy(), k.numpy(), v.numpy(), scale, length))
    o = torch.full(expected.shape, torch.nan) if o is None else o
    l = torch.full(lse.shape, torch.nan)
    module.attend(q, k, v, scale, length, o, l)
    torch.testing.assert_close(o.double(), expected, rtol=1e-5, atol=1e-6, msg=lambda text: f"{what}: {text}")
    torch.testing.assert_close(l.double(), lse, rtol=1e-5, atol=1e-6, msg=lambda text: f"{what}: {text}")


check("compact", q, k, v)
check("transposed", q.transpose(1, 2).contiguous().transpose(1, 2), k.mT.contiguous().mT, v.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0))
check("slices, whose elements begin anywhere", torch.randn(2, 4, 40, 17)[:, :, 3:36, 1:], torch.randn(3, 2, 101, 16)[1:, :, 1::2], v)
check("one head for all", q, k[:, :1].expand(2, 2, 50, 16), v[:1].expand(2, 2, 50, 8))
check("a parameter", torch.nn.Parameter(q, requires_grad=False), k, v)
check("a result in another order", q, k, v, torch.empty(33, 2, 8, 4).permute(1, 3, 0, 2))
with torch.inference_mode():
    check("tensors of inference mode", q * 1, k * 1, v * 1)

half = [torch.randn(n, 8, dtype=torch.bfloat16) for n in (5, 9, 9)]
out = torch.empty(5, 8)
module.attend_bf16(*half, out)
wide = [x.double() for x in half]
torch.testing.assert_close(out.double(), torch.softmax(wide[0] @ wide[1].T / 8**0.5, -1) @ wide[2], rtol=1e-2, atol=1e-2)

# Concurrent calls with separate results.
workers = [threading.Thread(target=lambda: [check("in a thread", q, k, v) for _ in range(20)]) for _ in range(4)]
errors = []
threading.excepthook = lambda arguments: errors.append(arguments.exc_value)
for worker in workers:
    worker.start()
for worker in workers:
    worker.join()
expect(not errors, f"threads may call at once: {errors}")

o, l = torch.empty(2, 4, 33, 8), torch.empty(2, 4, 33)


def attend(q=q, k=k, v=v, scale=scale, length=length, o=o, l=l):
    module.attend(q, k, v, scale, length, o, l)


fake_mode = FakeTensorMode()
fake = fake_mode.from_tensor(k)
refused(ValueError, "attend: argument 'k' (tensor<?x?x?x16xf32>): is NULL", attend, q, fake)
refused(ValueError, "result 'output'", lambda: attend(o=fake_mode.from_tensor(o)))
# TVM-FFI itself refuses these.
refused(Exception, "", attend, q, k.to("meta"))
refused(Exception, "", attend, q, k.to_sparse())
refused(TypeError, "argument 'q' (tensor<?x?x?x16xf32>): found element type bf16, expected f32", attend, q.bfloat16())
refused(TypeError, "argument 'q' (tensor<?x?x?x16xf32>): found 5 dimensions, expected 4", attend, q[None])
refused(TypeError, "argument 'v' (tensor<?x?x?x8xf32>): found an integer, expected a tensor", lambda: attend(v=3))
refused(TypeError, "argument 'v' (tensor<?x?x?x8xf32>): found None, expected a tensor", lambda: attend(v=None))
refused(TypeError, "argument 'keys' (index): found a tensor", lambda: attend(length=torch.tensor(3)))
refused(ValueError, "argument 'k' (tensor<?x?x?x16xf32>): found extent 15 in dimension 3, expected 16", attend, q, k[..., 1:])
refused(ValueError, "heads", attend, q[:, :3])
refused(ValueError, "result 'output' (tensor<?x?x?x8xf32>): found stride 0", lambda: attend(o=o[:, :1].expand(2, 4, 33, 8)))
refused(ValueError, "result 'lse' (tensor<?x?x?xf32>): overlaps with result 'output'", lambda: attend(l=o.flatten()[:264].view(2, 4, 33)))
check("after all those", q, k, v)
sys.exit(finish())
