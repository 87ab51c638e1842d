"""Operators of PyTorch, family by family: a function of tensors, and the random tensors to call it with."""

import itertools
import math

import torch
from torch.nn import functional as F

torch.manual_seed(0)
x, y, z = torch.randn(3, 4, 5), torch.randn(4, 1), torch.randn(3, 1, 5)
half, double, one = torch.randn(3, 4, 5).bfloat16(), torch.randn(4, 5, dtype=torch.float64), torch.tensor(1.7)
i, j, small = torch.randint(-9, 9, (3, 4)), torch.randint(1, 9, (4,), dtype=torch.int32), torch.randint(0, 3, (2, 3))
flags, others = torch.rand(3, 4) > 0.5, torch.rand(4) > 0.5
none, wide = torch.randn(0, 4), torch.randn(2, 3, 4, 6)
# Operands that show in which type numbers are computed beside 16 bits, and how quotients are floored.
tenths = torch.tensor([0.1, 0.3, -0.7, 5.0, -64.0]).bfloat16()
quotients = torch.tensor([1.0, 0.5, -1.0, 0.0, -0.0, 7.25, math.inf, math.nan])

ELEMENTS = {
    "add": (lambda a, b: a + b, x, y), "add alpha": (lambda a, b: torch.add(a, b, alpha=2), x, z),
    "add number": (lambda a: a + 3, x), "add half": (lambda a, b: a + b, half, y[:, 0:1]),
    "add types": (lambda a, b: a + b, i, j), "add real": (lambda a: a + 0.5, i),
    "add flags": (lambda a, b: a + b, flags, others), "add single": (lambda a, b: a + b, half, one),
    "add double": (lambda a, b: a * b, x, double), "sub": (lambda a: 2 - a, x),
    "rsub": (lambda a: torch.rsub(a, 1.5, alpha=2), x), "mul": (lambda a, b: a * b, x, flags[..., None]),
    "div": (lambda a, b: a / b, i, j), "div floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), i, j),
    "div trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), i, j),
    "floor divide": (lambda a, b: a // b, i, j), "floor real": (lambda a: a // 0.75, x),
    "remainder": (lambda a, b: a % b, i, j), "remainder real": (lambda a: a % -0.75, x),
    "fmod": (lambda a: torch.fmod(a, 3), i), "pow": (lambda a: a ** 2, x), "pow 3": (lambda a: a ** 3, i),
    "pow half": (lambda a: a.abs() ** 0.5, x), "pow tensors": (lambda a, b: a.abs() ** b, x, y),
    "pow base": (lambda a: 2.0 ** a, x), "neg": (lambda a: -a, i), "abs": (torch.abs, x), "sign": (torch.sign, i),
    "reciprocal": (lambda a: 1 / a, x), "exp": (torch.exp, i), "log": (lambda a: a.abs().log(), x),
    "log2": (lambda a: a.abs().log2(), x), "log1p": (lambda a: a.abs().log1p(), x),
    "sqrt": (lambda a: a.abs().sqrt(), x), "rsqrt": (lambda a: torch.rsqrt(a.abs()), x), "sin": (torch.sin, x),
    "cos": (torch.cos, half), "tanh": (torch.tanh, x), "erf": (torch.erf, x), "expm1": (torch.expm1, x),
    "exp2": (torch.exp2, x), "sigmoid": (torch.sigmoid, i), "silu": (F.silu, half), "gelu": (F.gelu, x),
    "gelu tanh": (lambda a: F.gelu(a, approximate="tanh"), half), "relu": (F.relu, i),
    "elu": (lambda a: F.elu(a, 0.5), x), "leaky": (F.leaky_relu, x), "softplus": (lambda a: torch.log1p(a.exp()), x),
    "floor": (torch.floor, x), "ceil": (torch.ceil, i), "round": (torch.round, x * 2), "trunc": (torch.trunc, x),
    "square": (torch.square, i), "clamp": (lambda a: a.clamp(-0.5, 0.5), x), "clamp min": (lambda a: a.clamp(min=0), i),
    "clamp max": (lambda a: torch.clamp_max(a, 0.25), x), "clamp tensor": (lambda a, b: torch.clamp(a, max=b), x, y),
    "maximum": (torch.maximum, x, y), "max other": (torch.max, x, y), "minimum": (torch.minimum, i, j),
    "min other": (torch.min, i, j), "eq": (lambda a, b: a == b, i, j), "ne": (lambda a: a != 2, i),
    "lt": (lambda a, b: a < b, x, y), "le": (lambda a: a <= 0.1, x), "gt": (lambda a, b: a > b, flags, others),
    "ge": (lambda a: a >= 0, i), "and": (lambda a, b: a & b, flags, others), "or": (lambda a, b: a | b, i, j),
    "xor": (lambda a, b: a ^ b, flags, others), "not": (lambda a: ~a, i), "not flags": (lambda a: ~a, flags),
    "logical and": (torch.logical_and, i, x[..., 0]), "logical not": (torch.logical_not, x),
    "logical or": (torch.logical_or, flags, i), "isnan": (torch.isnan, torch.tensor([1.0, math.nan, math.inf])),
    "isinf": (torch.isinf, torch.tensor([1.0, -math.inf, math.nan])), "where": (torch.where, flags[..., None], x, z),
    "where number": (lambda c, a: torch.where(c, a, 7), flags, i),
    "where numbers": (lambda c, a: torch.where(c, a, -math.inf), flags, x[..., 0]),
    "masked fill": (lambda a, m: a.masked_fill(m, -1e9), x, flags[..., None]),
    "masked fill int": (lambda a, m: a.masked_fill(m, 2 ** 40), i, flags),
    "addcmul": (lambda a, b, c: torch.addcmul(a, b, c, value=0.5), x, y, z),
    "to half": (lambda a: a.to(torch.float16), x), "to int": (lambda a: (a * 3).to(torch.int32), x),
    "to flag": (lambda a: a.to(torch.bool), i), "to real": (lambda a: a.float(), flags),
    "type as": (lambda a, b: a.type_as(b), i, half), "empty": (lambda a: a * 2 + 1, none),
    "single": (lambda a: a * a - 1, one),
    "round decimals": (lambda a: torch.round(a, decimals=2), x), "round half": (lambda a: a.round(decimals=1), half),
    "round tens": (lambda a: torch.round(a * 99, decimals=-1), x),
    "elu scale": (lambda a: torch.ops.aten.elu(a, 0.5, 1.5, 0.7), x),
    "elu turned": (lambda a: torch.ops.aten.elu(a, 0.5, 1.5, -0.7), x),
    "eq half": (lambda a: a == 0.1, tenths), "le half": (lambda a: a <= 0.1, tenths),
    "sub half": (lambda a: (a - 0.1) * 1000, tenths), "remainder half": (lambda a: a % 0.1, tenths),
    "fmod half": (lambda a: torch.fmod(a, 0.1), tenths), "pow half number": (lambda a: a.abs() ** 3.3, tenths),
    "alpha half": (lambda a: torch.add(a, a, alpha=-0.99), tenths[4:]),
    "mul half": (lambda a: a * 0.1, tenths), "mul half single": (lambda a, b: (a * b - 6.5) * 100, tenths, one),
    "floor whole": (lambda a: a // 0.1, quotients), "floor below": (lambda a: a // -0.1, quotients),
    "floor half": (lambda a: a // 0.1, tenths), "floor by zero": (lambda a, b: a // b, quotients, quotients.flip(0)),
    "floor endless": (lambda a: torch.div(a, -math.inf, rounding_mode="floor"), quotients),
    "floor mode": (lambda a: torch.div(a, 0.1, rounding_mode="floor"), quotients),
    "floor signs": (lambda a: 1 / (a // 3), quotients), "sign real": (torch.sign, quotients),
}
SHAPES = {
    "view": (lambda a: a.view(4, -1), x), "view single": (lambda a: a.view(1, 1), one),
    "reshape": (lambda a: a.transpose(0, 1).reshape(2, 30), x), "flatten": (lambda a: a.flatten(1), x),
    "flatten single": (torch.flatten, one), "unflatten": (lambda a: a.unflatten(-1, (2, -1)), wide),
    "squeeze": (lambda a: a.squeeze(), z), "squeeze dim": (lambda a: a.squeeze(1), z),
    "squeeze none": (lambda a: a.squeeze(0), z), "unsqueeze": (lambda a: a.unsqueeze(-2), x),
    "permute": (lambda a: a.permute(2, 0, -2), x), "t": (lambda a: a.t(), y),
    "transpose": (lambda a: a.transpose(-1, 0), wide), "T": (lambda a: a.mT, x),
    "expand": (lambda a: a.expand(2, -1, 4, -1), z), "expand single": (lambda a: a.expand(2, 3), one),
    "expand as": (lambda a, b: a.expand_as(b), y, x), "repeat": (lambda a: a.repeat(2, 1, 3), y),
    "repeat interleave": (lambda a: a.repeat_interleave(3, dim=1), x), "tile": (lambda a: torch.tile(a, (2, 2)), y),
    "slice": (lambda a: a[1:, ::2, -3:-1], x), "slice outside": (lambda a: a[:99, 5:2], x),
    "select": (lambda a: a[:, -1], x), "narrow": (lambda a: a.narrow(1, 1, 2), x),
    "chunk": (lambda a: torch.chunk(a, 2, dim=-1), x), "split": (lambda a: torch.split(a, 2, dim=2), x),
    "split sizes": (lambda a: torch.split(a, (1, 3), dim=1), x), "unbind": (lambda a: torch.unbind(a, 1), x),
    "cat": (lambda a, b: torch.cat([a, b.expand(-1, 2, -1)], 1), x, z),
    "cat types": (lambda a, b: torch.cat([a[0], b]), i, j), "stack": (lambda a: torch.stack([a, -a], -1), x),
    "stack single": (lambda a: torch.stack([a, a + 1]), one), "roll": (lambda a: torch.roll(a, (1, -2), (0, 2)), x),
    "roll flat": (lambda a: torch.roll(a, 5), x), "flip": (lambda a: a.flip(0, -1), x),
    "pad": (lambda a: F.pad(a, (1, 2, 0, 1), value=3), x), "pad cut": (lambda a: F.pad(a, (-1, 1)), x),
    "pad flags": (lambda a: F.pad(a, (1, 0), value=True), flags), "tril": (lambda a: a.tril(1), x),
    "triu": (lambda a: a.triu(-1), i), "diff": (torch.diff, x),
    "diff prepend": (lambda a: torch.diff(a, dim=0, prepend=a[:1]), i), "zeros": (lambda a: torch.zeros(2, 3) + a, one),
    "ones like": (lambda a: torch.ones_like(a) + a, i), "full": (lambda a: torch.full((2, 2), 7) + a, one),
    "full like": (lambda a: torch.full_like(a, 2.5) * a, x),
    "new ones": (lambda a: a.new_ones((), dtype=torch.bool) & (a > 0), x), "arange": (lambda a: torch.arange(4) + a, i),
    "arange step": (lambda a: torch.arange(9, 1, -2) + a, j),
    "arange real": (lambda a: torch.arange(0, 1, 0.25) * a, i),
    "slice scatter": (lambda a, b: torch.slice_scatter(a, b, 2, 1, 4), x, x[..., :3]),
    "select scatter": (lambda a, b: torch.select_scatter(a, b, 1, -1), x, x[:, 0]),
    "slice scatter few": (lambda a: _shifted(a), torch.randint(0, 9, (2, 5))),
    "slice scatter nothing": (lambda a: torch.slice_scatter(a, a[:0], 0, 3, 3), x),
    "slice scatter step": (lambda a, b: torch.slice_scatter(a, b, 2, 0, 5, 2), x, x[..., :3]),
    "narrow end": (lambda a: a.narrow(2, -3, 2), x), "narrow nothing": (lambda a: a.narrow(1, 4, 0), x),
    "squeeze no dims": (lambda a: a.squeeze(()), z),
    "assign": (lambda a: _assigned(a), x), "empty": (lambda a: a.reshape(2, 0), none),
    "copy": (lambda a, b: a.clone().copy_(b), i, others), "embedding": (lambda a, b: F.embedding(b, a), y, small),
    "index": (lambda a, b: a[b], x, small), "index two": (lambda a, b: a[b[:, None], :, b], x, small[0]),
    "index middle": (lambda a, b: a[:, b, b[:, None]], x, small[1]),
    "index negative": (lambda a, b: a[:, -1 - b], x, small[0]),
    "index select": (lambda a, b: a.index_select(-1, b), x, small[0]),
    "gather": (lambda a, b: a.gather(1, b), i, small),
    "index put": (lambda a, m: a.masked_fill(m, 0).index_put((m,), torch.tensor(5.0)), x[..., 0], flags),
}
SUMS = {
    "sum": (torch.sum, i), "sum dims": (lambda a: a.sum((0, -1), keepdim=True), x),
    "sum flags": (lambda a: a.sum(-1), flags), "sum half": (lambda a: a.sum(-1), half),
    "sum type": (lambda a: a.sum(0, dtype=torch.float32), half), "mean": (lambda a: a.mean(1), half),
    "mean all": (torch.mean, x), "amax": (lambda a: a.amax(-1), x), "amin": (lambda a: a.amin((0, 1), keepdim=True), i),
    "max": (torch.max, x), "max dim": (lambda a: torch.max(a, 1), x),
    "min dim": (lambda a: torch.min(a, -1, keepdim=True), i), "argmax": (lambda a: a.argmax(-1), x),
    "argmax all": (torch.argmax, x), "argmin": (lambda a: a.argmin(0, keepdim=True), i), "any": (torch.any, flags),
    "any no dims": (lambda a: a.any(()), x[0] > 0), "sum no dims": (lambda a: a.sum(()), x),
    "any dim": (lambda a: a.any(-1), flags), "all": (lambda a: a.all(0), i), "prod": (lambda a: a.prod(-1), j[None]),
    "var": (lambda a: a.var(-1), x), "var biased": (lambda a: a.var((0, 1), unbiased=False, keepdim=True), x),
    "std": (lambda a: a.std(1), x), "norm": (lambda a: torch.linalg.vector_norm(a, dim=-1), x),
    "logsumexp": (lambda a: torch.logsumexp(a * 99, 1), x), "cumsum": (lambda a: a.cumsum(-1), x),
    "cumsum flags": (lambda a: a.cumsum(0), flags), "cumsum half": (lambda a: a.cumsum(1), half),
    "softmax": (lambda a: a.softmax(1), x), "softmax half": (lambda a: a.softmax(-1), half),
    "softmax type": (lambda a: a.softmax(-1, dtype=torch.float32), half),
    "log softmax": (lambda a: a.log_softmax(-1), x),
    "layer norm": (lambda a, b: F.layer_norm(a, (5,), b, b), x, x[0, 0]),
    "layer norm two": (lambda a: F.layer_norm(a, (4, 5)), x),
    "layer norm half": (lambda a, b: F.layer_norm(a, (5,), b), half, half[0, 0]),
    "rms norm": (lambda a, b: F.rms_norm(a, (5,), b), x, x[0, 0]),
    "rms norm eps": (lambda a: F.rms_norm(a, (5,), eps=0.1), x), "empty": (lambda a: a.sum(0), none),
    "pool": (lambda a: F.adaptive_avg_pool1d(a, 1), x), "single": (lambda a: a.sum(-1), one),
    "rms norm half": (lambda a: F.rms_norm(a, (5,)), half * 0.05),
    "rms norm f16": (lambda a: F.rms_norm(a, (5,)), half.half() * 0.01),
    "var of one": (lambda a: a[:1].var(0, correction=2), x), "std of two": (lambda a: a[:2].std(0, correction=3), x),
}
PRODUCTS = {
    "matmul": (torch.matmul, x, wide[0, 0].T[:5, :]), "batches": (lambda a, b: a @ b.mT, x, z),
    "rows": (lambda a, b: a @ b, x[0, 0], x.mT), "columns": (lambda a, b: a @ b, x, x[0, 0]),
    "dot": (torch.dot, x[0, 0], x[1, 0]), "mm": (torch.mm, y, y.T), "bmm": (lambda a: torch.bmm(a, a.mT), x),
    "bmm half": (lambda a: torch.bmm(a, a.mT), half), "mv": (torch.mv, x[0], x[0, 0]),
    "addmm": (lambda a, b, c: torch.addmm(c, a, b, beta=0.5, alpha=2), x[0], x[1].T, y),
    "baddbmm": (lambda a: torch.baddbmm(a @ a.mT, a, a.mT, alpha=0.5), x),
    "linear": (F.linear, x, wide[0, :, :, :5].flatten(0, 1), torch.randn(12)), "linear row": (F.linear, x[0, 0], x[1]),
    "linear half": (F.linear, half, half[0], half[0, :, 0]), "linear vector": (F.linear, x, x[0, 0], one),
    "linear vector half": (F.linear, half, half[0, 0], half[0, 0, 0]),
    "conv": (lambda a, b, c: F.conv2d(a, b, c, stride=2), wide, torch.randn(7, 3, 2, 2), torch.randn(7)),
    "conv same": (lambda a, b, c: F.conv2d(a, b, c, padding="same", dilation=2), wide, torch.randn(7, 3, 3, 3), torch.randn(7)),
    "conv groups": (lambda a, b: F.conv1d(a, b, stride=2, padding=2, groups=3), wide[:, :, 0], torch.randn(6, 1, 5)),
    "conv half": (lambda a, b: F.conv1d(a.mT, b, padding=1), half, torch.randn(4, half.shape[-1], 3).to(half.dtype)),
    "conv transposed": (lambda a, b: F.conv_transpose2d(a, b, stride=3, padding=1, output_padding=1), wide, torch.randn(3, 5, 4, 2)),
    "conv volume": (lambda a, b: F.conv3d(a, b, padding=1), wide, torch.randn(4, wide.shape[0], 3, 3, 3)),
    "einsum": (lambda a, b: torch.einsum("bij,bkj->bik", a, b), x, x),
    "einsum order": (lambda a, b: torch.einsum("i j, k i -> k", a, b), x[0], x[:, :, 0]),
    "einsum dots": (lambda a, b: torch.einsum("...ij,jk->...ik", a, b), wide, wide[0, 0].T),
    "einsum implied": (lambda a, b: torch.einsum("ij,jk", a, b), x[0], x[1].T),
    "einsum one": (lambda a: torch.einsum("ijk->kj", a), x),
    "einsum three": (lambda a, b, c: torch.einsum("ij,jk,kl->il", a, b, c), x[0], x[1].T, x[2]),
    "outer": (torch.outer, x[0, 0], x[0, :, 0]),
    "einsum half": (lambda a, b: torch.einsum("bij,bkj->bki", a, b), half, half),
}
# What PyTorch writes in simpler operators first.
COMPOSED = {
    "hstack": (lambda a: torch.hstack([a, a]), i), "movedim": (lambda a: a.movedim(0, -1), x),
    "tensor split": (lambda a: torch.tensor_split(a, 3, -1), x), "var mean": (lambda a: torch.var_mean(a, -1), x),
    "glu": (lambda a: F.glu(a, 1), x), "mish": (F.mish, x), "hard swish": (F.hardswish, x), "relu6": (F.relu6, x),
    "selu": (F.selu, x), "celu": (F.celu, x), "softplus": (F.softplus, x), "log sigmoid": (F.logsigmoid, x),
    "hard tanh": (lambda a: F.hardtanh(a, -0.5, 0.25), x), "addcdiv": (lambda a: torch.addcdiv(a, a, a.abs() + 1), x),
    "tensordot": (lambda a: torch.tensordot(a, a, ([2], [2])), x), "lerp": (lambda a: torch.lerp(a, a + 1, 0.3), x),
    "cosine": (lambda a: F.cosine_similarity(a, a + 1), x), "normalize": (F.normalize, x), "prelu": (F.prelu, x, one),
    "cross entropy": (F.cross_entropy, x[0], (j % 5).long()), "one hot": (lambda a: F.one_hot(a, 4), small),
    "linspace": (lambda a: torch.linspace(0, 1, 5) * a, x), "meshgrid": (lambda a: _grid(a), j),
}
# Called with other extents than those of the export: the first one is open.
OPEN = {
    "alpha": (lambda a: torch.add(a, a, alpha=a.shape[0]), y), "sub": (lambda a: torch.sub(a, 1, alpha=a.shape[0]), y),
    "rsub": (lambda a: torch.rsub(a, a + 1, alpha=a.shape[0]), i), "power": (lambda a: a.abs() ** a.shape[0], y),
    "addcmul": (lambda a: torch.addcmul(a, a, a, value=a.shape[0]), x), "times": (lambda a: a * a.shape[0], half),
    "mean": (lambda a: a.sum(0) / a.shape[0], x), "roll": (lambda a: torch.roll(a, 5, 0), x),
    "roll back": (lambda a: torch.roll(a, (-7, 3), (0, 1)), i), "roll flat": (lambda a: torch.roll(a, 41), y),
    "arange": (lambda a: torch.arange(a.shape[0])[:, None] + a, i), "slice": (lambda a: a[1:], x),
    "view": (lambda a: a.view(-1, 2), x), "cat": (lambda a: torch.cat([a, a[:2]]), i), "var": (lambda a: a.var(0), x),
    "pad": (lambda a: F.pad(a, (0, 0, 1, a.shape[0])), i), "masked": (lambda a: a.masked_fill(a > 0, a.shape[0]), x),
    "cumsum": (lambda a: a.cumsum(0), x), "flip": (lambda a: a.flip(0), x), "argmax": (lambda a: a.argmax(0), x),
    "softmax": (lambda a: a.softmax(0), x), "expand": (lambda a: a[None].expand(2, -1, -1), y),
    "repeat": (lambda a: a.repeat(2, 1), i), "triu": (lambda a: a.triu(1), i), "split": (lambda a: a.split(1, 1), i),
    "matmul": (lambda a: a @ a.mT, x), "full": (lambda a: torch.full((a.shape[0], 2), 7.0), x),
    "every second": (lambda a: a[::2], x), "every third after one": (lambda a: a[1::3], i),
    "every second to the last": (lambda a: a[:-1:2], y), "every second of the last": (lambda a: a[-2::2], x),
    "every fifth of half": (lambda a: a[a.shape[0] // 2 :: 5], i),
    "write every second": (lambda a: torch.slice_scatter(a, a[::2] * 2, 0, 0, a.shape[0], 2), x),
    "range by two": (lambda a: torch.arange(0, a.shape[0], 2), x),
    "range by three": (lambda a: torch.arange(1, 4 * a.shape[0], 3, dtype=torch.float32), x),
    "range down": (lambda a: torch.arange(a.shape[0] - 1, -1, -1), x),
    "range down by two": (lambda a: torch.arange(a.shape[0], -2, -2), x),
    "windows": (lambda a: a.unfold(0, 2, 1), x), "windows apart": (lambda a: F.pad(a, (0, 0, 1, 2)).unfold(0, 3, 2), i),
    "images of windows": (lambda a: F.unfold(a[None], 3, padding=1, stride=2), x[:, None].expand(-1, 4, 4, 5)[:, 0]),
    "diagonal": (lambda a: (a @ a.mT).diagonal(dim1=-2, dim2=-1), x), "diagonal above": (lambda a: a.diagonal(1), i),
    "topk": (lambda a: (a + 10 * torch.arange(a.shape[0])[:, None, None]).topk(2, 0), x), "smallest": (lambda a: a.topk(2, largest=False), x),
    "sort": (lambda a: a.sort(0, descending=True), x), "order": (lambda a: a.sort(stable=True, dim=0), i),
    "scatter": (lambda a: torch.zeros_like(a).scatter(1, a.abs() % 4, 1), i),
    "scatter rows": (lambda a: a.scatter(0, (a.abs() + 1) % 2, a * 2), i),
    "scatter add": (lambda a: a.scatter_add(1, a.abs() % 4, a), i),
    "scatter largest": (lambda a: a.scatter_reduce(0, a.abs() % 2, a, "amax", include_self=False), i),
    "scatter mean": (lambda a: a.scatter_reduce(1, a.long().abs() % 4, a * 3, "mean"), torch.randn(3, 4)),
    "index copy": (lambda a: a.index_copy(0, torch.tensor([1, 0]), a[:2] * 2), x),
    "index copy inner": (lambda a: a.index_copy(1, torch.tensor([2, 0]), a[:, 2:]), x),
    "index add": (lambda a: a.index_add(0, torch.tensor([1, 1]), a[:2], alpha=-2), x),
    "index fill": (lambda a: a.index_fill(0, torch.tensor([-1, 0]), 9), i),
    "put rows": (lambda a: _put(a, (torch.tensor([1, 0]),), a[:2] + 1), x),
    "put pairs": (lambda a: _put(a, (torch.tensor([1, 0]), torch.tensor([0, 3])), -1.0), x),
    "put last": (lambda a: _put(a, (slice(None), torch.arange(2)[:, None], torch.tensor([4, 1])), a[:, :2, :2]), x),
    "put flags": (lambda a: _put(a, (slice(None), a[0] > 0), 7), i),
    "put row by flags": (lambda a: _put(a, (a[..., 0] > 0,), a[0, 0]), x),
    "repeat by lengths": (lambda a: a.repeat_interleave(torch.tensor([2, 0, 1, 3]), dim=1, output_size=6), x),
    "turned": (lambda a: _turned(a, torch.arange(a.shape[0])[:, None, None]), wide[:, :, :, :4]),
}
q, k, v = torch.randn(2, 4, 6, 8), torch.randn(2, 4, 9, 8), torch.randn(2, 4, 9, 5)
hidden = torch.rand(6, 9) > 0.3
hidden[2] = False
ATTENTION = {
    "plain": (F.scaled_dot_product_attention, q, k, v),
    "causal": (lambda a, b, c: F.scaled_dot_product_attention(a, b, c, is_causal=True), q, k, v),
    "scale": (lambda a, b, c: F.scaled_dot_product_attention(a, b, c, scale=0.5), q, k, v),
    "mask": (lambda a, b, c, m: F.scaled_dot_product_attention(a, b, c, m), q, k, v, hidden),
    "bias": (lambda a, b, c, m: F.scaled_dot_product_attention(a, b, c, m), q, k, v, torch.randn(2, 1, 6, 9)),
    "groups": (lambda a, b, c, m: F.scaled_dot_product_attention(a, b[:, :2], c[:, :2], m, enable_gqa=True), q, k, v,
        torch.randn(1, 4, 6, 9)),
    "three": (lambda a, b, c: F.scaled_dot_product_attention(a[0], b[0], c[0]), q, k, v),
    "half": (lambda a, b, c: F.scaled_dot_product_attention(a, b, c), q.bfloat16(), k.bfloat16(), v.bfloat16()),
    "five": (lambda a, b, c: F.scaled_dot_product_attention(a, b, c), *(each.view(2, 2, 2, -1,
        each.shape[-1]) for each in (q, k, v))),
    "two": (lambda a, b, c: F.scaled_dot_product_attention(a[0, 0], b[0, 0], c[0, 0]), q, k, v),
    "written": (lambda a, b, c: (a @ b.mT / math.sqrt(8)).softmax(-1) @ c, q, k, v),
}
# Tensors that begin at another place of their storage: a part, transposed or not. A place counts from the storage.
PARTS = {"whole": (lambda a: a, 0), "rows": (lambda a: a[1:], 20), "row": (lambda a: a[2], 40), "last": (lambda a: a[2, 3], 55),
         "transposed": (lambda a: a[1:].transpose(0, 2), 20), "row transposed": (lambda a: a[1].mT, 20)}
for (name, (part, first)), more in itertools.product(PARTS.items(), [None, 0, 1]):
    place = None if more is None else first + more
    SHAPES[f"strided {name} {place}"] = (
        lambda a, part=part, place=place: part(a).as_strided((2, 2), (2, 1), place), x)
# The number of KV heads and the size of their groups differ, and masks have or lack the dimensions of scores.
for kv_heads, shape in itertools.chain(itertools.product([2, 3], [(2, 6, 6, 9), (6, 1, 9), (1, 6, 6, 1)]),
                                       [(2, (2, 1, 6, 9)), (3, (6, 9)), (3, (1, 1, 9)), (6, (6, 6, 9)), (1, (6, 6, 9))]):
    ATTENTION[f"{kv_heads} KV heads of 6, mask {shape}"] = (
        lambda a, b, c, m: F.scaled_dot_product_attention(a, b, c, m, enable_gqa=True),
        torch.randn(2, 6, 6, 8), torch.randn(2, kv_heads, 9, 8), torch.randn(2, kv_heads, 9, 8), torch.randn(shape))


def _put(a, indices, values):
    a = a.clone()
    a[indices] = values
    return a


def _turned(a, positions):
    """Rotary positions by complex numbers, as Llama has them."""
    angles = positions * 100.0 ** -torch.arange(0, a.shape[-1], 2).div(a.shape[-1])
    factors = torch.polar(torch.ones_like(angles), angles)
    return torch.view_as_real(torch.view_as_complex(a.reshape(*a.shape[:-1], -1, 2)) * factors[:, :, None]).flatten(-2)


def _grid(a):
    return torch.meshgrid(a, a + 1, indexing="ij")


def _shifted(tokens):
    shifted = torch.zeros(2, 5, dtype=torch.int64)
    shifted[:, 1:] = tokens[:, :-1]
    return shifted + tokens


def _assigned(a):
    a = a.clone()
    a[1:, :2] = 0
    a[0, :, 1] += 1
    return a
