"""`saccade.attention` on torch tensors equals the formula in float64, for every option, layout, type and stride.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import itertools
import sys

import torch

import saccade

sys.path.insert(0, sys.argv[1])
from plain_attention import expect_close, plain_attention

torch.manual_seed(4)


def operands(layout="bhsd", dtype=torch.float32, batch=2, heads=4, key_heads=2, queries=13, keys=21, depth=16,
             value_depth=16):  # fmt: skip
    def normal(heads, length, depth):
        size = {"b": batch, "h": heads, "s": length, "d": depth}
        return torch.randn([size[dim] for dim in layout], dtype=torch.float64).to(dtype)

    return normal(heads, queries, depth), normal(key_heads, keys, depth), normal(key_heads, keys, value_depth)


def check(q, k, v, **options):
    """The call, without and with the log-sum-exp."""
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    assert output.dtype == q.dtype and lse.dtype == (torch.float64 if q.dtype == torch.float64 else torch.float32)
    expected, wanted_lse = plain_attention(q, k, v, **{key: value for key, value in options.items() if key != "target"})
    expect_close(output, expected, options)
    expect_close(lse, wanted_lse, options)
    expect_close(saccade.attention(q, k, v, **options), expected, options)


# Every option, and all pairs of them.
lengths = torch.tensor([21, 8])
choices = {
    "causal": [None, "top_left", "bottom_right", 0, 5, -3, 10**30, -(10**30)],
    "window": [None, 4, (3, 2), (None, 1), (5, -1), (None, None), (0, 10**30)],
    "scale": [None, 0.3, -0.5, 0],
    "kv_len": [None, 17, 0, 21, lengths, lengths.int()],
}
for first, second in itertools.combinations(choices, 2):
    for one, other in itertools.product(choices[first], choices[second]):
        check(*operands(), **{first: one, second: other})

# Every layout, with and without options that name positions; heads in groups, values of another size.
for layout in ["bhsd", "bshd", "sbhd", "dbhs", "hsd", "shd", "bsd", "sbd", "sd", "ds"]:
    grouped = {} if "h" in layout else {"heads": 1, "key_heads": 1}
    batch = 2 if "b" in layout else 1
    for kv_len in (19, torch.tensor([12, 20])[:batch]):
        check(*operands(layout, value_depth=24, **grouped), layout=layout, causal="bottom_right", kv_len=kv_len)

for dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16):
    for heads, key_heads in ((1, 1), (6, 6), (6, 3), (6, 1)):
        check(*operands(dtype=dtype, heads=heads, key_heads=key_heads), causal="bottom_right", scale=0.2)
check(*operands(), target="portable", window=(4, 4))

# Nothing to read, nothing to write.
for sizes in (
    {"keys": 0}, {"queries": 0}, {"queries": 0, "keys": 0}, {"batch": 0}, {"heads": 0}, {"heads": 0, "key_heads": 0}
):  # fmt: skip
    check(*operands(**sizes))
    check(*operands(**sizes), causal="bottom_right", window=3)
q, k, v = operands(keys=0)
output, lse = saccade.attention(q, k, v, return_lse=True)
assert not output.any() and (lse == -torch.inf).all()

# Any strides: views of transposed, padded, reversed-order, broadcast and every-other-element memory.
q, k, v = operands()
expected = saccade.attention(q, k, v, causal=2)
padded = torch.full((3, 5, 25, 20), torch.nan)
padded[1:, 1:3, 2:23, 3:19] = k
spread = torch.full((*v.shape, 2), torch.nan)
spread[..., 0] = v
views = [
    (q.transpose(1, 2).contiguous().transpose(1, 2), k.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), v),
    (q, padded[1:, 1:3, 2:23, 3:19], spread[..., 0]),
]
for view in views:
    assert torch.equal(saccade.attention(*view, causal=2), expected)
check(q[:1, :1].expand_as(q), k[:1, :1, :, :1].expand_as(k), v[:, :1].expand_as(v))

# NaN beyond the length counts for nothing.
k[0, :, 9:], v[0, :, 9:], k[1, :, 4:], v[1, :, 4:] = (torch.nan,) * 4
check(q, k, v, kv_len=torch.tensor([9, 4]))

# The caller's own memory, of whatever strides.
q, k, v = operands(value_depth=24)
expected = saccade.attention(q, k, v)
memory = torch.full((2, 13, 4, 30), 7.0)
out = memory.transpose(1, 2)[..., 3:27]
version = out._version
assert saccade.attention(q, k, v, out=out) is out and torch.equal(out, expected)
assert out._version > version and (memory[..., :3] == 7).all() and (memory[..., 27:] == 7).all()
result, lse = saccade.attention(q, k, v, out=out, return_lse=True)
assert result is out and torch.equal(lse, saccade.attention(q, k, v, return_lse=True)[1])
outs = (out.fill_(0), torch.full((13, 2, 4), 7.0).permute(1, 2, 0))
versions = [x._version for x in outs]
results = saccade.attention(q, k, v, out=outs, return_lse=True)
assert all(x is y for x, y in zip(results, outs, strict=True)) and all(x._version > n for x, n in zip(outs, versions))
for found, new in zip(outs, saccade.attention(q, k, v, return_lse=True)):
    assert torch.equal(found, new)
found, new = saccade.attention(q, k, v, out=out.fill_(0), return_lse=True)  # of the two only the output
assert found is out and torch.equal(out, expected) and torch.equal(new, outs[1])
halves = torch.zeros(2, 4, 13, 32)
halves[..., :16] = q
assert torch.equal(saccade.attention(halves[..., :16], k, v[..., :16], out=halves[..., 16:]), expected[..., :16])

# What has a gradient may pass where none is asked for.
with torch.no_grad():
    assert torch.equal(saccade.attention(q.requires_grad_(), k, torch.nn.Parameter(v)), expected)
