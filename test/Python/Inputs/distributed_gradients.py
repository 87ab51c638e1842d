"""Gradients of the functions of saccade.torch.distributed in 4 processes and in groups of 2, against one process.

Usage: distributed_gradients.py [--seed N] [--all]. Every process computes the whole problem alone, in float64 unless the
case has 16 bits, and compares the gradients of its parts. Gradients of what all processes have (sinks, the tensors of
functions) are sums over them.
"""

import re

import torch
import torch.distributed as dist
from distributed_attention import CU, CU_K, EVEN, problem, run_checks, spawn, start

import saccade
from saccade.torch.distributed import all_to_all_attention, ring_attention, shard

PLACEMENTS = ("contiguous", "zigzag")
TOLERANCE = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 4e-2}

# Options of the call, and of the problem. "slopes", "bias", "sinks" are tensors with gradients that the call reads.
FEW = [
    (dict(causal="top_left", read="slopes"), {}),
    (dict(causal="bottom_right", window=(9, None), read="sinks", return_lse=True), dict(queries=23)),
    (dict(cu_seqlens_q=CU, cu_seqlens_k=CU_K, causal="bottom_right", mask=EVEN, read="bias", return_lse=True),
     dict(ragged=True)),
    # A process has no query, and gradients of log-sum-exp are not contiguous.
    (dict(kv_len=torch.tensor([5, 41]), return_lse=True), dict(queries=3)),
    # All scores are the shift, so that parts count by their numbers of keys.
    (dict(causal="bottom_right", read="shift"), dict(queries=23)),
]
MORE = [
    ({}, {}),
    (dict(window=(5, 12)), dict(kv_heads=1, head_dim_v=8)),
    (dict(causal="top_left"), dict(dtype=torch.bfloat16)),
    (dict(causal=3, window=(9, None), scale=0.3), dict(kv_heads=4)),
    (dict(kv_len=33, mask=EVEN, read="bias"), dict(dtype=torch.float32)),
    (dict(window=(None, 4), mask=EVEN), {}),
    (dict(causal="bottom_right", kv_len=30), dict(queries=23)),
    (dict(window=4, return_lse=True, read="sinks"), {}),
    (dict(mask=EVEN), dict(heads=8, kv_heads=8, queries=80, keys=200)),
    (dict(cu_seqlens_q=CU, cu_seqlens_k=CU, kv_len=torch.tensor([6, 0, 4, 8]), sink=0.5), dict(ragged=True)),
]


def tensors_of(read):
    """Tensors with gradients that a call reads, and the options that read them."""
    if read == "slopes":
        slopes = torch.linspace(0.1, 0.5, 8, dtype=torch.float64).requires_grad_()
        return [slopes], dict(score=lambda s, b, h, i, j: s + slopes[h] * (j - i))
    if read == "bias":
        bias = torch.sin(torch.arange(400.0, dtype=torch.float64)).reshape(20, 20).requires_grad_()
        return [bias], dict(score=lambda s, b, h, i, j: s + bias[i % 20, j % 20] * b)
    if read == "shift":
        shift = torch.tensor([-1e30], dtype=torch.float64).requires_grad_()
        return [shift], dict(score=lambda s, b, h, i, j: s + shift[0])
    if read == "sinks":
        sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64).requires_grad_()
        return [sinks], dict(sink=sinks)
    return [], {}


def gradients(function, arrays, options, read, weigh):
    """The gradients of a weighted sum of all results, of the arrays and of the tensors that are read."""
    tensors, others = tensors_of(read)
    leaves = [x.clone().requires_grad_() for x in arrays]
    found = function(*leaves, **options, **others)
    found = found if isinstance(found, tuple) else (found,)
    total = sum((x.double().where(x > -torch.inf, 0) * weigh(x, i)).sum() for i, x in enumerate(found))
    return torch.autograd.grad(total, [*leaves, *tensors])


def weights_of(results, seed):
    """A weight for every element of whole results: random numbers."""
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(x.shape, generator=generator, dtype=torch.float64) for x in results]


def check_results(group, cases, seed, is_short):
    """Both functions with every placement, or if `is_short` with one of them, in turn; returns the number of calls."""
    calls = 0
    for number, (options, sizes) in enumerate(cases):
        options = dict(options)
        read = options.pop("read", None)
        sizes = {"dtype": torch.float64, **sizes}
        arrays = problem(seed, **sizes)
        axis = 0 if sizes.get("ragged") else 2
        with torch.no_grad():
            whole = saccade.attention(*arrays, **options, **tensors_of(read)[1])
        dims = (axis, -1) if options.get("return_lse") else (axis,)
        weights = weights_of(whole if isinstance(whole, tuple) else (whole,), seed)
        expected = gradients(saccade.attention, arrays, options, read, lambda x, i, w=weights: w[i])
        for placement in PLACEMENTS:
            cut = lambda x, dim, placement=placement: shard(x, dim, group=group, placement=placement)
            named = dict(options, group=group, placement=placement)
            parts = [cut(x, axis) for x in arrays]
            for place, function in enumerate((ring_attention, all_to_all_attention)):
                if is_short and (number + place) % len(PLACEMENTS) != PLACEMENTS.index(placement):
                    continue
                weigh = lambda x, i, cut=cut: cut(weights[i], dims[i])
                found = gradients(function, parts, named, read, weigh)
                again = gradients(function, parts, named, read, weigh)
                what = f"{function.__name__} {placement} {options} {sizes}"
                assert all(map(torch.equal, found, again)), f"{what}: other bits in a second call"
                for name, x, y in zip(["q", "k", "v", read], found, expected):
                    if name in ("q", "k", "v"):
                        y = cut(y, axis)
                    else:
                        dist.all_reduce(x, group=group)
                    largest, off = (x.abs().max() if x.numel() else 0 for x in (y, x - y))
                    allowed = TOLERANCE[sizes["dtype"]] * (1 + largest)
                    assert off <= allowed, f"{what}: the gradient of {name} is off by {off}"
                calls += 1
    return calls


def check_uneven(group, rank, ranks):
    """Parts of any lengths, one of them empty, and some tensors without gradients."""
    lengths = [5, 0, 30, 6][:ranks] if ranks == 4 else [0, 41]
    arrays = problem(99, dtype=torch.float64)
    for chosen in ((0, 1, 2), (1,), (0, 2)):
        def attend(function, parts, **options):
            leaves = [x.clone().requires_grad_(i in chosen) for i, x in enumerate(parts)]
            out = function(*leaves, causal="top_left", **options)
            (out**2).sum().backward()
            return [x.grad for x in leaves]

        expected = attend(saccade.attention, arrays)
        for function in (ring_attention, all_to_all_attention):
            found = attend(function, [x.split(lengths, 2)[rank] for x in arrays], group=group)
            for x, y in zip(found, expected):
                assert (x is None) == (y is None)
                if y is not None:
                    torch.testing.assert_close(x, y.split(lengths, 2)[rank], rtol=1e-11, atol=1e-11)
    return 6


def check_second_derivatives(group, rank, ranks):
    """They are refused, also where the incoming gradient is constant."""
    parts = [shard(x, 2, group=group).requires_grad_() for x in problem(7)]
    gradient, = torch.autograd.grad(ring_attention(*parts, group=group).sum(), parts[:1], create_graph=True)
    try:
        torch.autograd.grad(gradient.sum(), parts[:1])
    except NotImplementedError as error:
        assert "second derivatives are not supported" in str(error)
        return 1
    raise AssertionError("a second derivative of ring_attention is no error")


def check_memory(group, rank, ranks):
    """What a ring keeps for the backward pass is of the size of this process's part."""
    parts = [shard(x, 2, group=group).requires_grad_() for x in problem(5, queries=64, keys=64)]
    kept = 0

    def pack(x):
        nonlocal kept
        kept += x.numel()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        ring_attention(*parts, group=group, causal="top_left")
    q, k, v = (x.numel() for x in parts)
    assert kept <= 2 * q + k + v + 2 * (q // 16), f"keeps {kept} numbers, expected q, k, v, the output and two a row"
    return 1


def check_errors(group, rank, ranks):
    """What cannot be differentiated is refused on every process."""
    q, k, v = (shard(x, 2, group=group) for x in problem(0))
    last = rank == ranks - 1
    for function in (ring_attention, all_to_all_attention):
        try:
            function(q.clone().requires_grad_(not last), k, v, group=group)
            raise AssertionError("gradients on some processes are not refused")
        except ValueError as error:
            assert re.search(f"rank {ranks - 1} has other tensors that require gradients, expected those of rank 0", str(error))
    table = torch.linspace(0, 1, 400)
    leaf = q.clone().requires_grad_()
    out = ring_attention(leaf, k, v, group=group, score=lambda s, b, h, i, j: s + table[i])
    table.add_(1)
    try:
        out.sum().backward()
        raise AssertionError("a table that was changed before the backward pass is not refused")
    except RuntimeError as error:
        assert "modified by an inplace operation" in str(error)
    return 3


def run(rank, path, has_more, seed):
    results = lambda group, own, ranks: check_results(group, FEW + MORE * has_more, seed, not has_more)
    run_checks(rank, start(rank, path), (results, check_uneven, check_second_derivatives, check_memory, check_errors),
               "checks of gradients")


if __name__ == "__main__":
    spawn(run, __doc__)
