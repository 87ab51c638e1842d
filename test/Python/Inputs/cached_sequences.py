"""What the caches of a batch of sequences must contain, and attention to it computed from scratch."""

import torch
from cache_layers import DEPTH, HEADS, KV_HEADS

DEPTH_V = 24


def lengths(*values, dtype=torch.int32):
    return torch.tensor(values, dtype=dtype)


def drawn(random, *shape):
    return torch.randn(shape, generator=random)


def attend(q, k, v, visible, score=lambda s: s):
    """Attention of one sequence in float64: q [n, heads, depth], k and v [keys, KV heads, depth], visible [n, keys].
    `score` maps scores."""
    k, v = (x.double().repeat_interleave(HEADS // KV_HEADS, 1) for x in (k, v))
    scores = score(torch.einsum("ihd,jhd->hij", q.double(), k) * q.shape[-1] ** -0.5)
    weights = scores.masked_fill(~visible, -torch.inf).softmax(-1)
    return torch.einsum("hij,jhd->ihd", weights, v), scores.masked_fill(~visible, -torch.inf).logsumexp(-1)


class Sequences:
    """What the caches of a batch must contain, and random new rows."""

    def __init__(self, seed, batch):
        self.random = torch.Generator().manual_seed(seed)
        self.k = [torch.zeros(0, KV_HEADS, DEPTH) for _ in range(batch)]
        self.v = [torch.zeros(0, KV_HEADS, DEPTH_V) for _ in range(batch)]

    @property
    def length(self):
        return lengths(*(len(x) for x in self.k))

    def draw(self, count):
        n, batch = max(count), len(self.k)
        rows = [drawn(self.random, batch, n, heads, depth)
                for heads, depth in ((HEADS, DEPTH), (KV_HEADS, DEPTH), (KV_HEADS, DEPTH_V))]
        for b, own in enumerate(count):  # padding is not read
            for x in rows:
                x[b, own:] = torch.nan
        return rows

    def extend(self, k, v, count):
        self.k = [torch.cat([old, new[:n]]) for old, new, n in zip(self.k, k, count)]
        self.v = [torch.cat([old, new[:n]]) for old, new, n in zip(self.v, v, count)]

    def check(self, q, count, out, lse=None, visible=lambda i, j: j <= i, atol=2e-6,
              score=lambda s: s):
        for b, n in enumerate(count):
            keys = len(self.k[b])
            i, j = torch.arange(keys - n, keys)[:, None], torch.arange(keys)
            expected, expected_lse = attend(q[b, :n], self.k[b], self.v[b], visible(i, j), score)
            torch.testing.assert_close(out[b, :n].double(), expected, atol=atol, rtol=0)
            assert (out[b, n:] == 0).all()
            if lse is not None:
                torch.testing.assert_close(lse[b, :, :n].double(), expected_lse, atol=max(atol, 1e-5), rtol=0)


STEPS = [(37, 5, 0), (1, 1, 1), (9, 1, 30), (1, 1, 1), (1, 0, 2)]  # new rows of each sequence
