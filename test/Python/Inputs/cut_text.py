"""Serves a text with a cache of keys and values, cut into calls in any way, alone or in a batch."""

import torch

from saccade.torch import flash_attn_with_kvcache

LENGTH = 530
"""Two chunks of 256 keys, and a part of a third one."""


class Text:
    """A sequence, served by calls with any number of tokens."""

    def __init__(self, seed, dtype, heads, kv_heads, depth, options):
        torch.manual_seed(seed)
        self.q = torch.randn(LENGTH, heads, depth).to(dtype)
        self.k, self.v = torch.randn(2, LENGTH, kv_heads, depth).to(dtype)
        self.options = options

    def cache(self, batch, pages, quantized):
        _, heads, depth = self.k.shape
        options = dict(self.options)
        if pages:
            count = -(-LENGTH // pages) + 1
            options["page_table"] = torch.randperm(batch * count).view(batch, count).int()
            shape = batch * count, pages, heads, depth
        else:
            shape = batch, LENGTH + 3, heads, depth
        if quantized:
            scales = torch.ones(2, *shape[:-1])
            return torch.zeros(2, *shape, dtype=torch.int8), options | {"k_scale": scales[0], "v_scale": scales[1]}
        return torch.zeros(2, *shape, dtype=self.q.dtype), options


def serve(text, cuts, pages=0, quantized=False, others=(), reproducible="stream", rotary=None):
    """The outputs of a text in calls that end at `cuts`. `others`: what sequence 1 of the batch has in each call."""
    batch = 2 if others else 1
    (keys, values), options = text.cache(batch, pages, quantized)
    lengths, found, begin = torch.zeros(batch, dtype=torch.int32), [], 0
    for n, end in enumerate(cuts):
        new = torch.tensor([end - begin, others[n % len(others)] if others else 0][:batch], dtype=torch.int32)
        most = int(new.max())
        q, k, v = (torch.zeros(batch, most, *x.shape[1:], dtype=x.dtype) for x in (text.q, text.k, text.v))
        for padded, whole in ((q, text.q), (k, text.k), (v, text.v)):
            padded[0, : end - begin] = whole[begin:end]
            padded[1:, : new[-1]] = torch.randn(batch - 1, int(new[-1]), *whole.shape[1:])
        call = dict(options, cache_seqlens=lengths, causal=True, reproducible=reproducible)
        if others:
            call["seqlens_new"] = new
        if rotary:
            call["rotary_cos"], call["rotary_sin"] = rotary
        out = flash_attn_with_kvcache(q, keys, values, k, v, **call)
        found.append(out[0, : end - begin])
        lengths += new
        begin = end
    return torch.cat(found)


def random_cuts(rng):
    cuts = []
    while not cuts or cuts[-1] < LENGTH:
        step = rng.choice([1, 1, 2, 3, 5, 8, 9, 16, 17, 100, 300])
        cuts.append(min(LENGTH, (cuts[-1] if cuts else 0) + step))
    return cuts
