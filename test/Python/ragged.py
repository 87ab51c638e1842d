"""cu_seqlens_q and cu_seqlens_k: packed sequences give what each gives alone, for any lengths by one compilation; offsets
that make no sense are refused in the caller's terms.

REQUIRES: numpy, torch
UNSUPPORTED: asan, tsan
RUN: %python %s
"""

import numpy as np
import torch

import saccade

torch.manual_seed(5)


def offsets(lengths, dtype=torch.int32):
    return torch.tensor([0, *lengths]).cumsum(0).to(dtype)


def each(q, k, v, cu_q, cu_k, **options):
    """(output, log-sum-exp) of one call for each sequence."""
    results = []
    for i in range(len(cu_q) - 1):
        queries, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        results.append(saccade.attention(q[queries], k[keys], v[keys], layout="shd", return_lse=True, **options))
    return torch.cat([o for o, _ in results]), torch.cat([lse for _, lse in results], 1)


slopes = torch.tensor([0.5, 0.25, 0.1, 0.05])
ALIBI = lambda s, b, h, i, j: s + slopes[h] * (j - i)
EVEN = lambda b, h, i, j: ((i + j) % 2 == 0) | (j == i)

# Equal to every sequence by itself, also with masks, windows and scores; the lengths do not compile again.
for options in ({}, {"causal": "bottom_right"}, {"causal": "top_left", "window": 40, "score": ALIBI}, {"mask": EVEN, "scale": 0.3}):
    for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 1e-2)):
        compilations = None
        for lengths in ([(70, 70), (0, 5), (1, 1), (33, 200), (9, 0)], [(3, 3)], [(100, 640), (650, 20)], []):
            cu_q, cu_k = offsets([a for a, _ in lengths]), offsets([b for _, b in lengths], torch.int64)
            q = torch.randn(int(cu_q[-1]), 4, 64).to(dtype)
            k, v = (torch.randn(int(cu_k[-1]), 2, size).to(dtype) for size in (64, 32))
            o, lse = saccade.attention(q, k, v, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, return_lse=True, **options)
            count = saccade.cache_info().compilations
            assert compilations in (None, count), "other lengths compiled again"
            assert o.shape == (len(q), 4, 32) and lse.shape == (4, len(q)) and lse.dtype == torch.float32
            if lengths:
                expected, wanted_lse = each(q, k, v, cu_q, cu_k, **options)
                torch.testing.assert_close(o, expected, atol=tolerance, rtol=tolerance)
                torch.testing.assert_close(lse, wanted_lse, atol=1e-4, rtol=1e-4)
            compilations = saccade.cache_info().compilations

# The number of the sequence is b; queries of no sequence give 0; out= takes the output.
cu = offsets([10, 20])
q, k = torch.randn(35, 4, 64), torch.randn(35, 2, 64)
temperature = torch.tensor([1.0, 3.0])
out = torch.full((35, 4, 64), torch.nan)
saccade.attention(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu, score=lambda s, b, h, i, j: s * temperature[b], out=out)
torch.testing.assert_close(out[10:30], saccade.attention(q[10:30], k[10:30], k[10:30], layout="shd", scale=3 / 8))
assert (out[30:] == 0).all()

# A table of distances for each sequence, which a call without packing would tabulate.
near = torch.randn(2, 17)
score = lambda s, b, h, i, j: s + near[b, (j - i).clamp(-8, 8) + 8]
packed = saccade.attention(q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu, score=score)
alone = saccade.attention(q[10:30], k[10:30], k[10:30], layout="shd",
                          score=lambda s, b, h, i, j: s + near[1, (j - i).clamp(-8, 8) + 8])
torch.testing.assert_close(packed[10:30], alone)

# NumPy, and lengths within sequences.
n = [x.numpy() for x in (q, k)]
limits = np.array([4, 20], np.int32)
o = saccade.attention(n[0], n[1], n[1], cu_seqlens_q=cu.numpy(), cu_seqlens_k=cu.numpy(), kv_len=limits)
expected = saccade.attention(n[0][:10], n[1][:10], n[1][:10], layout="shd", kv_len=4)
assert isinstance(o, np.ndarray) and np.allclose(o[:10], expected, atol=1e-6)


def refused(kind, message, *arguments, **options):
    try:
        saccade.attention(*arguments, **options)
    except kind as error:
        assert message in str(error), error
    else:
        raise AssertionError(f"not refused: {message}")


cu_of = lambda *numbers: torch.tensor(numbers, dtype=torch.int32)
for arguments, kind, message in (
    ((cu, None), TypeError, "cu_seqlens_k is None, expected the offsets of k's sequences"),
    ((None, cu), TypeError, "cu_seqlens_q is None, expected the offsets of q's sequences"),
    ((cu.numpy(), cu), TypeError, "cu_seqlens_q is a NumPy array, expected a torch tensor, as q is"),
    ((cu.float(), cu), TypeError, "cu_seqlens_q has element type float32, expected int32 or int64"),
    ((cu[None], cu), TypeError, "cu_seqlens_q has 2 dimensions, expected 1"),
    ((cu, cu[:2]), ValueError, "cu_seqlens_k has 2 offsets, expected 3, as many as cu_seqlens_q"),
    ((cu_of(1, 10, 30), cu), ValueError, "cu_seqlens_q has another first element: found 1, expected 0"),
    ((cu, cu_of(0, 12, 10)), ValueError, "cu_seqlens_k has an element below the one before it: found 10, expected at least 12"),
    ((cu_of(0, 10, 36), cu), ValueError, "cu_seqlens_q exceeds the rows of query: found 36, expected at most 35"),
    ((cu[:0], cu[:0]), ValueError, "cu_seqlens_q has no element: found 0, expected at least 1"),
):
    refused(kind, message, q, k, k, cu_seqlens_q=arguments[0], cu_seqlens_k=arguments[1])
refused(ValueError, "expected one without b", q[None], k[None], k[None], cu_seqlens_q=cu, cu_seqlens_k=cu, layout="bshd")
refused(ValueError, "kv_len has shape (3,), expected (2,)", q, k, k, cu_seqlens_q=cu, cu_seqlens_k=cu, kv_len=cu)
