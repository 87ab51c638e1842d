"""What makes a new kernel of `saccade.attention` and what does not, as the counters of `saccade.cache_info` tell.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import gc
import sys

import torch

import saccade

plans = sys.modules["saccade.attention"]._plans


def operands(batch=1, heads=2, key_heads=1, queries=4, keys=6, depth=8, value_depth=8, dtype=torch.float32):
    shapes = (heads, queries, depth), (key_heads, keys, depth), (key_heads, keys, value_depth)
    return [torch.zeros(batch, *shape, dtype=dtype) for shape in shapes]


def compiles(count, call):
    """The call compiles that many programs, and the second time neither compiles nor looks for any."""
    before = saccade.cache_info()
    call()
    between = saccade.cache_info()
    assert between.compilations - before.compilations == count, (before, between)
    call()
    assert saccade.cache_info() == between, (between, saccade.cache_info())


def calls(**options):
    """The call again with every other batch, head count, length and stride."""
    for sizes in (
        {}, {"batch": 3}, {"heads": 6, "key_heads": 3}, {"queries": 1}, {"queries": 300, "keys": 700}, {"keys": 0}
    ):  # fmt: skip
        saccade.attention(*operands(**sizes), **options)
    q, k, v = operands()
    saccade.attention(q.transpose(1, 2).contiguous().transpose(1, 2), k[:, :, ::2], v[:, :, ::2], **options)


compiles(1, lambda: calls())
compiles(1, lambda: calls(return_lse=True))
compiles(1, lambda: calls(target="portable"))
for alignment in ("top_left", "bottom_right"):
    compiles(1, lambda: calls(causal=alignment))

# Numbers are arguments of the kernel.
compiles(1, lambda: [calls(scale=scale) for scale in (0.5, 2, -1.0)])
compiles(1, lambda: [calls(causal=offset) for offset in (0, 3, -2, 10**20)])
compiles(1, lambda: [calls(causal="top_left", window=window) for window in (1, 4, (3, 0), (2, None), (9, -1))])
compiles(1, lambda: [calls(window=window) for window in (2, (3, 0), (3, 5))])
compiles(0, lambda: calls(window=(None, -1)))
compiles(1, lambda: [saccade.attention(*operands(), kv_len=length) for length in (0, 3, 6)])
compiles(1, lambda: [saccade.attention(*operands(2), kv_len=torch.tensor([length, 4])) for length in (0, 3, 6)])
compiles(1, lambda: saccade.attention(*operands(2), kv_len=torch.tensor([3, 4]).int()))

# Head sizes, element types and layouts are not. The same program is one kernel, for NumPy too.
compiles(1, lambda: saccade.attention(*operands(depth=16)))
compiles(1, lambda: saccade.attention(*operands(value_depth=24)))
compiles(1, lambda: saccade.attention(*operands(dtype=torch.float16)))
compiles(1, lambda: saccade.attention(*operands(queries=6), layout="bshd"))
before = saccade.cache_info()
saccade.attention(*(x.numpy() for x in operands()))
assert saccade.cache_info()[:2] == (before.hits + 1, before.compilations)


def handles():
    """How many compiled modules Python holds."""
    return sum(type(x).__name__ == "Handle" and type(x).__module__ == "saccade.function" for x in gc.get_objects())


# Clearing forgets plans and what was traced, too: kernels go, tables that functions made go, and the same call compiles.
saccade.cache_clear()
assert saccade.cache_info() == (0, 0, 0) and not plans and not sys.modules["saccade.attention"]._regions
for compilations in (1, 2):
    saccade.attention(*operands(), score=lambda s, b, h, i, j: s + torch.tensor([0.5, 0.25])[h])
    assert saccade.cache_info()[1:] == (1, 1), saccade.cache_info()
    assert handles() == 1
    saccade.cache_clear()
    assert handles() == 0, "a kernel is kept after it was forgotten"

# A call that is refused before anything can be compiled costs nothing.
q, k, v = operands(depth=40)
before = saccade.cache_info()
try:
    saccade.attention(q, k[..., :8], v)
except ValueError:
    pass
assert saccade.cache_info() == before

# Plans are bounded in number; those in use stay. To forget one costs a look into the compiler's cache, no compilation.
module = sys.modules["saccade.attention"]
module._MAX_PLANS = 8
plans.clear()
for depth in range(1, 20):
    saccade.attention(*operands(depth=depth, value_depth=1, keys=1))
    before = saccade.cache_info()
    saccade.attention(*operands())
    assert saccade.cache_info() == before or depth == 1, "a plan in use is forgotten"
    assert len(plans) <= 8, len(plans)
plans.clear()
before = saccade.cache_info()
saccade.attention(*operands())
assert saccade.cache_info()[:2] == (before.hits + 1, before.compilations)
