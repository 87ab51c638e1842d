"""Checks the functions of saccade.torch.distributed in 4 processes, and in groups of 2 of them.

Usage: distributed_attention.py [--seed N] [--all]. Starts the processes, runs every check in all of them, and prints
the number of checks. Every process has the whole problem from the seed, computes it alone, and compares its part.
Without --all a few cases are run, since every process compiles their kernels.
"""

import argparse
import functools
import os
import re
import tempfile
import traceback

import torch
import torch.distributed as dist
import torch.multiprocessing as multiprocessing

import saccade
from saccade.torch.distributed import all_to_all_attention, positions, ring_attention, shard

RANKS = 4


def problem(seed, heads=4, kv_heads=2, queries=41, keys=41, dtype=torch.float32, ragged=False, head_dim_v=16):
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)
    if ragged:
        return draw(queries, heads, 16), draw(keys, kv_heads, 16), draw(keys, kv_heads, head_dim_v)
    return draw(2, heads, queries, 16), draw(2, kv_heads, keys, 16), draw(2, kv_heads, keys, head_dim_v)


SLOPES = torch.tensor([0.5, 0.25, 0.125, 0.0625])
TABLE = torch.linspace(-1, 1, 200)
ALIBI = lambda s, b, h, i, j: s + SLOPES[h] * (j - i)
BY_POSITION = lambda s, b, h, i, j: s + TABLE[i] * TABLE[j] + b
EVEN = lambda b, h, i, j: (i + j) % 3 != 1
CU = torch.tensor([0, 7, 7, 30, 38], dtype=torch.int32)
CU_K = torch.tensor([0, 3, 9, 29, 41], dtype=torch.int32)

# Options of the call, and of the problem.
FEW = [
    (dict(sink=torch.tensor([0.5, -1.0, 2.0, 0.0]), causal="bottom_right", window=(9, None), return_lse=True),
     dict(queries=23, dtype=torch.bfloat16)),
    (dict(causal="top_left", score=ALIBI), {}),
    (dict(cu_seqlens_q=CU, cu_seqlens_k=CU_K, causal="bottom_right", window=6, score=BY_POSITION, mask=EVEN,
          return_lse=True), dict(ragged=True)),
]
MORE = [
    ({}, {}),
    (dict(causal="top_left"), {}),
    (dict(causal=3, window=(9, None), scale=0.3), dict(kv_heads=4)),
    (dict(window=(5, 12), score=ALIBI), dict(kv_heads=1, head_dim_v=8)),
    (dict(score=BY_POSITION, mask=EVEN, kv_len=33), dict(dtype=torch.float64)),
    (dict(causal="bottom_right", kv_len=30), dict(queries=23)),
    (dict(kv_len=torch.tensor([5, 41])), dict(queries=3)),
    (dict(causal="top_left"), dict(dtype=torch.bfloat16)),
    (dict(window=4, return_lse=True), dict(dtype=torch.float16)),
    (dict(mask=EVEN), dict(heads=8, kv_heads=8, queries=80, keys=200)),
    (dict(cu_seqlens_q=CU, cu_seqlens_k=CU, causal="top_left", score=ALIBI), dict(ragged=True)),
    (dict(cu_seqlens_q=CU, cu_seqlens_k=CU, kv_len=torch.tensor([6, 0, 4, 8]), sink=0.5), dict(ragged=True)),
]
TOLERANCE = {torch.float32: 3e-6, torch.float64: 1e-13, torch.bfloat16: 2e-2, torch.float16: 2e-3}


def compare(found, expected, dims, cut, is_bitwise):
    found, expected = ((x,) if isinstance(x, torch.Tensor) else x for x in (found, expected))
    for x, y, dim in zip(found, expected, dims, strict=True):
        part = cut(y, dim)
        assert x.shape == part.shape and x.dtype == part.dtype, f"{x.dtype}{x.shape}, expected {part.dtype}{part.shape}"
        if is_bitwise:
            assert torch.equal(x, part), f"off by {(x - part).abs().max()}"
        else:
            torch.testing.assert_close(x, part, rtol=TOLERANCE[y.dtype], atol=TOLERANCE[y.dtype])


def check_results(group, rank, ranks, cases, seed):
    """Both functions with every placement against saccade.attention in one process; returns the number of calls."""
    calls = 0
    for options, sizes in cases:
        q, k, v = problem(seed, **sizes)
        expected = saccade.attention(q, k, v, **options)
        axis = 0 if sizes.get("ragged") else 2
        for placement in ("contiguous", "zigzag"):
            cut = lambda x, dim: shard(x, dim, group=group, placement=placement)
            parts = [cut(x, axis) for x in (q, k, v)]
            for function in (ring_attention, all_to_all_attention):
                found = function(*parts, group=group, placement=placement, **options)
                dims = (axis, -1) if options.get("return_lse") else (axis,)
                compare(found, expected, dims, cut, function is all_to_all_attention)
                calls += 1
    return calls


def check_uneven(group, rank, ranks):
    """Parts of any lengths, one of them empty."""
    lengths = [5, 0, 30, 6][:ranks] if ranks == 4 else [0, 41]
    q, k, v = problem(99)
    cut = lambda x, dim: x.split(lengths, dim)[rank]
    expected = saccade.attention(q, k, v, causal="top_left", score=ALIBI)
    for function in (ring_attention, all_to_all_attention):
        found = function(*(cut(x, 2) for x in (q, k, v)), group=group, causal="top_left", score=ALIBI)
        compare(found, expected, (2,), cut, function is all_to_all_attention)
    return 2


def check_layouts(group, rank, ranks):
    """[batch, length, heads, head size] in 16 bits, and strided parts."""
    parts = [shard(x, 2, group=group).transpose(1, 2) for x in problem(7, dtype=torch.bfloat16)]
    whole = [x.transpose(1, 2) for x in problem(7, dtype=torch.bfloat16)]
    expected = saccade.attention(*whole, layout="bshd", causal="top_left")
    for function in (ring_attention, all_to_all_attention):
        found = function(*parts, group=group, layout="bshd", causal="top_left")
        compare(found, expected, (1,), lambda x, dim: shard(x, dim, group=group), function is all_to_all_attention)
    return 2


def check_positions(group, rank, ranks):
    """`positions` tells what `shard` cuts: equal work under a causal mask for a zigzag."""
    x = torch.arange(48)
    for placement in ("contiguous", "zigzag"):
        assert torch.equal(positions(48, group=group, placement=placement), shard(x, 0, group=group, placement=placement))
    work = (positions(48, group=group, placement="zigzag") + 1).sum()
    assert work * ranks == (x + 1).sum()
    return 1


def check_compilations(group, rank, ranks):
    """Other lengths and batches compile nothing, and neither do the steps of a ring."""
    before = None
    for seed, length in enumerate((20, 33)):
        parts = [shard(x, 2, group=group) for x in problem(seed, queries=length, keys=length)]
        for function in (ring_attention, all_to_all_attention):
            function(*parts, group=group, causal="top_left", score=ALIBI)
        assert before in (None, saccade.cache_info().compilations)
        before = saccade.cache_info().compilations
    return 1


def check_tensor_parallel(group, rank, ranks):
    """Heads that are distributed need no communication: every process has the bits of its heads."""
    arrays, slopes = problem(3, heads=8, kv_heads=4), torch.linspace(0, 1, 8)
    cut = lambda x, dim=1: x.tensor_split(ranks, dim)[rank]

    def attend(q, k, v, slopes):
        return saccade.attention(q, k, v, score=lambda s, b, h, i, j: s + slopes[h] * (j - i), causal="top_left")

    assert torch.equal(attend(*map(cut, arrays), cut(slopes, 0)), cut(attend(*arrays, slopes)))
    return 1


def check_errors(group, rank, ranks):
    """Mistakes are exceptions on every process, and the group can be used afterwards."""
    q, k, v = (shard(x, 2, group=group) for x in problem(0))
    last = rank == ranks - 1

    def refused(kind, pattern, *arrays, function=ring_attention, **options):
        try:
            function(*arrays, group=group, **options)
        except kind as error:
            assert type(error) is kind and re.search(pattern, str(error)), f"{error!r}, expected {pattern}"
        else:
            raise AssertionError(f"not refused: {pattern}")

    refused(ValueError, f"rank {ranks - 1} has batch size 1, expected 2, that of rank 0",
            *(x[:1] if last else x for x in (q, k, v)))
    refused(ValueError, f"rank {ranks - 1} has element type torch.float64, expected torch.float32, that of rank 0",
            *(x.double() if last else x for x in (q, k, v)))
    refused(ValueError, f"rank {ranks - 1} has other options, expected those of rank 0", q, k, v,
            causal="top_left" if last else None)
    if last:
        refused(TypeError, "v has element type bfloat16, expected float32", q, k, v.bfloat16())
    else:
        refused(ValueError, f"rank {ranks - 1} refused its arguments: its exception says why", q, k, v)
    refused(ValueError, "placement is 'striped', expected one of 'contiguous', 'zigzag'", q, k, v, placement="striped")
    longer = q if last else torch.cat([q, q[:, :, :7]], 2)
    refused(ValueError, r"q has length \d+ on rank \d, expected \d+: its part of \d+ with placement", longer, k, v,
            placement="zigzag")
    refused(ValueError, "kv_len is 42, expected 0 to 41, the keys of all processes", q, k, v, kv_len=42)
    refused(ValueError, f"q has 3 heads and k 1, expected multiples of the {ranks} processes", q[:, :3], k[:, :1], v[:, :1],
            function=all_to_all_attention)
    refused(TypeError, "all_to_all_attention has no argument 'causality'", q, k, v, function=all_to_all_attention,
            causality=True)
    offsets = torch.tensor([0, 50], dtype=torch.int32)
    refused(ValueError, "cu_seqlens_q is .*, expected offsets that ascend from 0 to at most 41", q[0].transpose(0, 1),
            k[0].transpose(0, 1), v[0].transpose(0, 1), cu_seqlens_q=offsets, cu_seqlens_k=offsets)
    return 10


CHECKS = [check_uneven, check_positions, check_compilations, check_tensor_parallel, check_errors]


def start(rank, path):
    """Starts a process of `spawn`; returns the groups of which each check is run, with their sizes."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{path}", rank=rank, world_size=RANKS)
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    return (None, RANKS), (pairs[rank // 2], 2)


def run_checks(rank, groups, checks, what):
    """Calls check(group, rank in the group, size) of all groups, prints the sum of their results, and ends the process
    group."""
    calls = 0
    for group, ranks in groups:
        for check in checks:
            try:
                calls += check(group, dist.get_rank(group), ranks)
            except Exception:
                print(f"rank {rank} of {ranks}\n{traceback.format_exc()}", flush=True)
                os._exit(1)  # the others are waiting
    dist.barrier()
    if rank == 0:
        print(f"{calls} {what} in each of {RANKS} processes")
    dist.destroy_process_group()


def spawn(run, doc):
    """Runs run(rank, path, has_more, seed) in the processes, with the options of the command line."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--all", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.spawn(run, (os.path.join(folder, "store"), args.all, args.seed), nprocs=RANKS)


def run(rank, path, has_more, seed):
    try:
        ring_attention(*problem(0))
        raise AssertionError("a call without a process group is not refused")
    except ValueError as error:
        assert "call torch.distributed.init_process_group first" in str(error)
    results = functools.partial(check_results, cases=FEW + MORE * has_more, seed=seed)
    run_checks(rank, start(rank, path), (results, *CHECKS, *[check_layouts] * has_more), "checks")


if __name__ == "__main__":
    spawn(run, __doc__)
