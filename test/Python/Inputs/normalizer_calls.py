"""What the tests of normalizers share: operands, tolerances, and random calls apart from the normalizer."""

import torch

TOLERANCES = {torch.float64: 1e-12, torch.float32: 2e-5, torch.float16: 6e-3, torch.bfloat16: 5e-2}


def operands(dtype=torch.float64, batch=2, heads=4, kv_heads=2, queries=37, keys=53, depth=16, depth_v=24, seed=0):
    torch.manual_seed(seed)
    return tuple(torch.randn(batch, n, length, d, dtype=torch.float64).to(dtype)
                 for n, length, d in ((heads, queries, depth), (kv_heads, keys, depth), (kv_heads, keys, depth_v)))  # fmt: skip


def diagonal(queries, keys, first=0):
    return torch.ones(queries, keys).tril(first).bool()


def close(found, expected, dtype):
    tolerance = TOLERANCES[dtype]
    return found.dtype == dtype and torch.allclose(found.double(), expected, tolerance,
                                                   tolerance * expected.abs().max().item())  # fmt: skip


def draw_call(rng, seed):
    """Random operands, options, and what they mean: the visible pairs, the scale and the function of the scores."""
    dtype = rng.choice(list(TOLERANCES))
    kv_heads, group = rng.choice([1, 2]), rng.choice([1, 2, 3])
    queries, keys = rng.choice([1, 3, 8, 9, 30, 70]), rng.choice([1, 17, 64, 130, 600])
    q, k, v = operands(dtype, rng.choice([1, 2]), kv_heads * group, kv_heads, queries, keys, rng.choice([4, 8, 20, 64]),
                       rng.choice([8, 24, 64]), seed)  # fmt: skip
    options, sees = {}, torch.ones(queries, keys, dtype=torch.bool)
    i, j = torch.arange(queries)[:, None], torch.arange(keys)
    causal = rng.choice([None, "top_left", "bottom_right", rng.randint(-2, 9)])
    if causal is not None:
        shift = {"top_left": 0, "bottom_right": keys - queries}.get(causal, causal)
        options["causal"], sees = causal, sees & (j <= i + shift)
    if rng.random() < 0.3:
        table = torch.rand(queries, keys) < 0.7
        options["mask"], sees = (lambda b, h, i, j: table[i, j]), sees & table
    if rng.random() < 0.3:
        length = rng.randint(0, keys)
        if causal == "bottom_right":
            sees = (j <= i + length - queries) & (sees if "mask" not in options else table)
        options["kv_len"], sees = length, sees & (j < length)
    scale = None
    if rng.random() < 0.3:
        scale = options["scale"] = rng.choice([0.05, 0.3, -0.2])
    score = None
    if rng.random() < 0.4:
        bias = torch.randn(kv_heads * group, keys, dtype=torch.float64).to(
            torch.float64 if dtype == torch.float64 else torch.float32)
        options["score"], score = (lambda s, b, h, i, j: s + bias[h, j]), lambda s: s + bias[:, None].double()
    return (q, k, v), options, sees, scale, score
