"""A module with a cache, for tests of the functions for caches."""

import torch

HEADS, KV_HEADS, DEPTH = 4, 2, 16


class CacheLayer(torch.nn.Module):
    """Projects x to queries, keys and values. Subclasses attend with `options`."""

    def __init__(self, **options):
        super().__init__()
        self.options = options
        torch.manual_seed(0)
        self.project = torch.nn.Linear(32, (HEADS + 2 * KV_HEADS) * DEPTH)

    def projected(self, x):
        return self.project(x).unflatten(-1, (-1, DEPTH)).split([HEADS, KV_HEADS, KV_HEADS], 2)
