"""What `saccade.attention` should give: the formula in float64, over whole matrices of scores."""

import math

import torch

# How far from the formula a result may lie, for values of about 1.
TOLERANCES = {torch.float64: 1e-12, torch.float32: 5e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2}


def plain_attention(q, k, v, *, score=None, mask=None, weight=None, scale=None, causal=None, window=None, kv_len=None,
                    sink=None, layout="bhsd"):  # fmt: skip
    """(output in q's layout, log-sum-exp), both float64."""
    q, k, v = (canonical(x, layout).double() for x in (q, k, v))
    batch, heads, queries, depth = q.shape
    keys = k.shape[2]
    k, v = (x.repeat_interleave(heads // max(x.shape[1], 1), dim=1) for x in (k, v))
    b, h, i, j = torch.meshgrid(*map(torch.arange, (batch, heads, queries, keys)), indexing="ij")
    length = torch.as_tensor(keys if kv_len is None else kv_len).reshape(-1, 1, 1, 1).clamp(0, keys)
    scores = q @ k.transpose(2, 3) * (1 / math.sqrt(depth) if scale is None else scale)
    if score is not None:
        scores = score(scores, b, h, i, j)
    sees = (j < length).expand(batch, heads, queries, keys)
    own = i + (length - queries if causal == "bottom_right" else _near(causal) if isinstance(causal, int) else 0)
    if causal is not None:
        sees = sees & (j <= own)
    if isinstance(window, int):
        sees = sees & (own - window < j) & (j <= own)
    elif window is not None:
        left, right = (math.inf if side in (None, -1) else _near(side) for side in window)
        sees = sees & (own - left <= j) & (j <= own + right)
    if mask is not None:
        sees = sees & mask(b, h, i, j)
    scores = scores.masked_fill(~sees, -math.inf)
    sinks = torch.as_tensor(-math.inf if sink is None else sink, dtype=torch.float64).reshape(1, -1, 1, 1)
    lse = torch.logsumexp(torch.cat([scores, sinks.expand(batch, heads, queries, 1)], -1), -1)
    weights = torch.where(sees, (scores - lse[..., None]).exp(), 0)
    if weight is not None:
        weights = torch.where(sees, weight(weights, b, h, i, j), 0)
    # What lies beyond the length does not count, be it NaN.
    within = torch.arange(keys).reshape(-1, 1) < length
    output = weights @ v.where(within, 0)
    missing = [axis for axis, dim in enumerate("bhs") if dim not in layout]
    for axis in reversed(missing):
        output, lse = output.squeeze(axis), lse.squeeze(axis)
    kept = [dim for dim in "bhsd" if dim in layout]
    return output.permute([kept.index(dim) for dim in layout]), lse


def _near(number):
    """The number, or one that is as good and fits into a tensor of integers."""
    return max(-(10**9), min(10**9, number))


def canonical(x, layout):
    """x with all four dimensions in the order b, h, s, d."""
    kept = [dim for dim in "bhsd" if dim in layout]
    x = x.permute([layout.index(dim) for dim in kept])
    for axis, dim in enumerate("bhsd"):
        if dim not in layout:
            x = x.unsqueeze(axis)
    return x


def expect_close(found, expected, what=""):
    """AssertionError where a result is not what the formula gives, in shape and element by element, NaN and infinity
    included."""
    assert found.shape == expected.shape, (what, found.shape, expected.shape)
    found, tolerance = found.double(), TOLERANCES[found.dtype]
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance, equal_nan=True,
                               msg=lambda text: f"{what}: {text}")  # fmt: skip
