"""Decode steps compared with each other: python -m saccade_bench.decode [--seconds N] [--threads N]

A window in a long cache against a short cache, tallies, maxima and weight regions against plain decode, and ragged
batches against dense ones of the same layout and bytes. The calls of a group take turns in random order in one process;
a ratio is the median over rounds of one call's time over another's.
"""

import argparse
import itertools
import os
import random
import time
from collections.abc import Callable

import numpy as np

import saccade

HEADS, KV_HEADS, DEPTH = 32, 8, 128
QUERY, KEY = f"tensor<?x{HEADS}x?x{DEPTH}xf32>", f"tensor<?x{KV_HEADS}x?x{DEPTH}xf32>"

DENSE = """func.func @{name}(%q: {query}, %k: {key}, %v: {key}) -> ({results}) {{
  %zero = arith.constant 0 : index
  %two = arith.constant 2 : index
  %n = tensor.dim %k, %two : {key}
  %one = arith.constant 1 : index
  %p = arith.subi %n, %one : index
  {values} = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {clauses} : ({query}, {key}, {key}) -> ({results})
  return {values} : {results}
}}
"""
TALLY = f"tensor<?x{HEADS}x?x16xf32>"
ROW, POSITION = f"tensor<?x{HEADS}x?xf32>", f"tensor<?x{HEADS}x?xi64>"
VARIANTS = {
    "plain": ("mask causal<bottom_right>", "%o", QUERY),
    "window": ("at(%zero, %zero, %p, %zero) mask causal<top_left> mask window<511, *>", "%o", QUERY),
    "tally": ("""mask causal<bottom_right> tally<16>(%s, %b, %h, %i, %j) {
      %c = arith.constant 1024 : index
      %bin = arith.divui %j, %c : index
      %x = arith.constant 1.0 : f32
      attn.yield %bin, %x : index, f32
    }""", "%o, %t", f"{QUERY}, {TALLY}"),
    "maximum": ("mask causal<bottom_right> max argmax", "%o, %m, %a", f"{QUERY}, {ROW}, {POSITION}"),
    "weight": ("""mask causal<bottom_right> weight(%w, %b, %h, %i, %j) {
      %c = arith.constant 2.0 : f32
      %x = arith.mulf %w, %c : f32
      attn.yield %x : f32
    }""", "%o", QUERY),
}  # fmt: skip
RAGGED = f"""func.func @ragged(%q: tensor<?x{HEADS}x{DEPTH}xf32>, %k: tensor<?x{KV_HEADS}x{DEPTH}xf32>,
    %v: tensor<?x{KV_HEADS}x{DEPTH}xf32>, %cq: tensor<?xi32>, %ck: tensor<?xi32>) -> tensor<?x{HEADS}x{DEPTH}xf32> {{
  %o = attn.attention %q[s,h,d], %k[s,h,d], %v[s,h,d] cu_seqlens_q(%cq : tensor<?xi32>) cu_seqlens_k(%ck : tensor<?xi32>)
    mask causal<bottom_right> : (tensor<?x{HEADS}x{DEPTH}xf32>, tensor<?x{KV_HEADS}x{DEPTH}xf32>,
    tensor<?x{KV_HEADS}x{DEPTH}xf32>) -> tensor<?x{HEADS}x{DEPTH}xf32>
  return %o : tensor<?x{HEADS}x{DEPTH}xf32>
}}
func.func @dense(%q: tensor<?x?x{HEADS}x{DEPTH}xf32>, %k: tensor<?x?x{KV_HEADS}x{DEPTH}xf32>,
    %v: tensor<?x?x{KV_HEADS}x{DEPTH}xf32>) -> tensor<?x?x{HEADS}x{DEPTH}xf32> {{
  %o = attn.attention %q[b,s,h,d], %k[b,s,h,d], %v[b,s,h,d] mask causal<bottom_right>
    : (tensor<?x?x{HEADS}x{DEPTH}xf32>, tensor<?x?x{KV_HEADS}x{DEPTH}xf32>, tensor<?x?x{KV_HEADS}x{DEPTH}xf32>)
    -> tensor<?x?x{HEADS}x{DEPTH}xf32>
  return %o : tensor<?x?x{HEADS}x{DEPTH}xf32>
}}
"""

Call = Callable[[], object]


def program() -> str:
    """One program with all functions; all sizes but heads and head size are dynamic."""
    dense = (DENSE.format(name=name, query=QUERY, key=KEY, clauses=clauses, values=values, results=results)
             for name, (clauses, values, results) in VARIANTS.items())  # fmt: skip
    return "".join(dense) + RAGGED


def measure(calls: dict[str, Call], seconds: float) -> dict[str, np.ndarray]:
    """The times of each call in seconds, one for each round."""
    for call in calls.values():
        call()
        call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        for name in random.sample(list(calls), len(calls)):
            begin = time.perf_counter()
            calls[name]()
            times[name].append(time.perf_counter() - begin)
    for name, taken in times.items():
        print(f"  {name:28s} {np.median(taken) * 1e3:9.3f} ms, {len(taken)} rounds")
    return {name: np.array(taken) for name, taken in times.items()}


class Batches:
    """Random operands of ragged and dense batches."""

    def __init__(self, module: saccade.Module) -> None:
        self.module = module
        self.random = np.random.default_rng(1)

    def values(self, *shape: int) -> np.ndarray:
        return self.random.standard_normal(shape, dtype=np.float32)

    def ragged(self, queries: list[int], keys: list[int]) -> Call:
        """A call with one sequence for each number of queries and of keys."""
        offsets = [np.array([0, *itertools.accumulate(lengths)], np.int32) for lengths in (queries, keys)]
        q, k, v = (self.values(sum(lengths), heads, DEPTH)
                   for lengths, heads in ((queries, HEADS), (keys, KV_HEADS), (keys, KV_HEADS)))  # fmt: skip
        return lambda: self.module["ragged"](q, k, v, *offsets)

    def dense(self, batch: int, keys: int) -> Call:
        """A decode step of a dense batch in the layout of ragged ones."""
        q, k, v = self.values(batch, 1, HEADS, DEPTH), *(self.values(batch, keys, KV_HEADS, DEPTH) for _ in range(2))
        return lambda: self.module["dense"](q, k, v)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10, help="time of each group of calls")
    parser.add_argument("--threads", type=int, default=2, help="processors that the process may use")
    args = parser.parse_args()
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.threads])
    module = saccade.compile(program())
    batches = Batches(module)
    q = batches.values(1, HEADS, 1, DEPTH)
    k, v = (batches.values(1, KV_HEADS, 65536, DEPTH) for _ in range(2))
    short = [np.ascontiguousarray(x[:, :, -512:]) for x in (k, v)]
    difference = np.abs(module["window"](q, k, v) - module["window"](q, *short)).max()
    print(f"Window of 512 keys in a cache of 65,536 and of 512 (largest difference {difference:.1e}):")
    times = measure(
        {"65,536": lambda: module["window"](q, k, v), "512": lambda: module["window"](q, *short)}, args.seconds
    )
    print(f"  65,536 / 512: {np.median(times['65,536'] / times['512']):.3f}")

    print("One query and a cache of 8,192:")
    k, v = (x[:, :, :8192].copy() for x in (k, v))
    names = ("plain", "tally", "maximum", "weight")
    times = measure({name: lambda name=name: module[name](q, k, v) for name in names}, args.seconds)
    for name in names[1:]:
        print(f"  speed of {name} / plain: {np.median(times['plain'] / times[name]):.3f}")

    lengths = [1, 8192, *batches.random.integers(1, 8193, 62).tolist()]
    mean = sum(lengths) // 64
    print(f"64 sequences of 1 to 8,192 keys, one query each, and a dense batch of {mean} keys:")
    times = measure({"ragged": batches.ragged([1] * 64, lengths), "dense": batches.dense(64, mean)}, args.seconds)
    print(f"  GB/s of ragged / dense: {np.median(times['dense'] / times['ragged']) * sum(lengths) / (64 * mean):.3f}")

    print("60 sequences with one query and 4 with 768 to 2,048, together and apart:")
    ones, long = batches.random.integers(1, 8193, 60).tolist(), [1024, 1536, 2048, 768]
    order = batches.random.permutation(64)
    queries, keys = ([(each + long)[i] for i in order] for each in ([1] * 60, ones))
    times = measure({"together": batches.ragged(queries, keys), "one query": batches.ragged([1] * 60, ones),
                     "many queries": batches.ragged(long, long)}, args.seconds)  # fmt: skip
    print(
        f"  sum of the parts / together: {np.median((times['one query'] + times['many queries']) / times['together']):.3f}"
    )


if __name__ == "__main__":
    main()
