"""`score` and `mask` of `saccade.attention` are Python functions of index scalars; what they close over is read anew at
each call, and a function made anew is compiled again only where it computes something else.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s %S/Inputs
"""

import gc
import math
import sys
import weakref

import numpy as np
import torch

import saccade

sys.path.insert(0, sys.argv[1])
from plain_attention import expect_close, plain_attention

torch.manual_seed(6)
q, k, v = torch.randn(2, 4, 13, 16), torch.randn(2, 2, 21, 16), torch.randn(2, 2, 21, 16)


def check(**options):
    output, lse = saccade.attention(q, k, v, return_lse=True, **options)
    expected, wanted_lse = plain_attention(q, k, v, **options)
    expect_close(output, expected, options)
    expect_close(lse, wanted_lse, options)


slopes, documents = torch.tensor([0.5, 0.25, 0.125, 0.0625]), torch.randint(0, 3, (2, 21))
bias, cap = torch.randn(4, 13, 21), 5.0
alibi = lambda s, b, h, i, j: s + slopes[h] * (j - i)
capped = lambda s, b, h, i, j: cap * torch.tanh(s / cap)
same_document = lambda b, h, i, j: documents[b, i] == documents[b, j]
dilated = lambda b, h, i, j: (j - i) % 3 == 0
nothing = lambda b, h, i, j: j < 0

for score in (None, alibi, capped, lambda s, b, h, i, j: s + bias[h, i, j]):
    for mask in (None, same_document, dilated, nothing):
        check(score=score, mask=mask)
# Scale, score, mask, softmax, with all that masks at once.
check(scale=0.4, score=capped, mask=dilated, causal="bottom_right", window=(9, 3), kv_len=torch.tensor([20, 15]))
check(scale=0.4, score=alibi, mask=same_document, causal=4, window=5, kv_len=17)

# In float64 the score is float64, constants too.
wide = [x.double() for x in (q, k, v)]
third = lambda s, b, h, i, j: s * (1 / 3) + math.pi * 1e-9
output = saccade.attention(*wide, score=third)
assert output.dtype == torch.float64
expect_close(output, plain_attention(*wide, score=third)[0])

# Functions made anew: the same code on other tensors is the same kernel, another number another one.
def biased(table, factor):
    return lambda s, b, h, i, j: s + factor * table[h]

check(score=biased(slopes, 2.0))
before = saccade.cache_info()
for _ in range(5):
    table = torch.randn(4)
    check(score=biased(table, 2.0))
table.fill_(3.0)
check(score=biased(table, 2.0))
assert saccade.cache_info() == before, (saccade.cache_info(), before)
check(score=biased(slopes, 3.0))
assert saccade.cache_info().compilations == before.compilations + 1
table = torch.randn(4)
check(score=biased(table, 3.0))
gone = weakref.ref(table)
del table
gc.collect()
assert gone() is None, "a captured tensor is kept after the call"
# Another element type or rank is another kernel too.
check(score=biased(slopes.double(), 3.0))
assert saccade.cache_info().compilations == before.compilations + 2
# A number is compiled in, but not one in a tensor.
check(score=biased(slopes, torch.tensor(2.0)))
before = saccade.cache_info()
for factor in (0.5, 3.0):
    check(score=biased(slopes, torch.tensor(factor)))
assert saccade.cache_info() == before

# An array of NumPy's will do, too, in a kernel that torch's tensors use.
def added(table):
    return lambda s, b, h, i, j: s + table[h]

constant = slopes.numpy().copy()
constant.flags.writeable = False
expected = saccade.attention(q, k, v, score=added(slopes))
assert torch.equal(saccade.attention(q, k, v, score=added(constant)), expected)


# What cannot be told without tracing is traced at each call, and compiled again only where it gives something else.
class Slopes:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, s, b, h, i, j):
        return s + slopes[h] * self.factor


scorer = Slopes(2.0)
check(score=scorer)
before = saccade.cache_info().compilations
check(score=scorer)
assert saccade.cache_info().compilations == before
scorer.factor = 4.0
check(score=scorer)
assert saccade.cache_info().compilations == before + 1

# Random numbers are drawn anew at each call.
drawn = lambda s, b, h, i, j: s + np.random.uniform(1, 9) * (j % 3)
assert not torch.equal(saccade.attention(q, k, v, score=drawn), saccade.attention(q, k, v, score=drawn))

# A number that is read of a tensor while the function is traced is a number of that call.
def shifted(table):
    return lambda s, b, h, i, j: s * float(table[0]) + table.shape[0]

for table in (torch.tensor([2.0]), torch.tensor([3.0]), torch.tensor([2.0, 0.0])):
    check(score=shifted(table))

# A table too short for the keys is refused where all of it is read.
short = torch.randn(4, 13, 20)
try:
    saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + short[h, i, j])
except ValueError as error:
    assert "20" in str(error) and "21" in str(error), error
else:
    raise AssertionError("a table too short was not refused")
# So is one whose places stand in another table, wherever they leave it.
slope, kinds = torch.ones(3), torch.zeros(21, dtype=torch.int32)
kinds[11] = 3
try:
    saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slope[kinds[j]])
except ValueError as error:
    assert "'slope', which score reads by an index out of 'kinds'" in str(error), error
    assert "found 3, expected at least 4" in str(error), error
else:
    raise AssertionError("a place outside of a table was not refused")
# Unless no query sees that key.
saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slope[kinds[j]], mask=lambda b, h, i, j: j < 11)
padding = torch.ones(2, 20).bool()
try:
    saccade.attention(q, k, v, mask=lambda b, h, i, j: padding[b, j])
except ValueError as error:
    assert "'padding', which mask reads" in str(error) and "20" in str(error) and "21" in str(error), error
else:
    raise AssertionError("a mask's table too short was not refused")
