#!/usr/bin/env python3
# REQUIRES: numpy, ml_dtypes
# RUN: %python %s --first-seed 0 --count 12
"""Random traces of a server with a paged cache against attention computed from scratch in float64.

Usage: serving_traces.py [--first-seed N] [--count N] [--seed N]
The seed determines page size, heads, head sizes, type and a sequence of steps. In a step sequences start, fork a prefix,
end, or drop rejected tokens; then every sequence takes no, one or several new tokens (idle, decode, chunked prefill) in
one call. A step may verify a tree of drafts. In each step one sequence is computed again alone, with its pages in other
places, which must give the same bits. Free pages contain NaN. A whole trace compiles at most two kernels.
In some traces a compiled program writes the new tokens into the pools and attends to them in the same call.
"""

import functools
import pathlib
import re
import sys
import traceback

import ml_dtypes
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from paged_server import Sequence, Server, oracle
from seeds import chosen_seeds, run_seeds, seed_options

import saccade

STEPS, CAPACITY, LONGEST = 8, 4000, 1400
# Types with their names in programs and the errors that they allow.
TYPES = {np.float32: ("f32", 4e-6), np.float16: ("f16", 4e-3), ml_dtypes.bfloat16: ("bf16", 2e-2)}

# "append keys, append values, attend"; H and G are head counts, D and E head sizes, T is an element type.
PROGRAM = """
func.func @step(%q: tensor<?x?xGxDxT>, %k: tensor<?x?xHxDxT>, %v: tensor<?x?xHxExT>,
                %k_pool: tensor<?x?xHxDxT> {attn.updated_by = 1}, %v_pool: tensor<?x?xHxExT> {attn.updated_by = 2},
                %table: tensor<?x?xi32>, %at: tensor<?xi32>, %n: tensor<?xi32>, %end: tensor<?xi32>)
    -> (tensor<?x?xGxExT>, tensor<?x?xHxDxT>, tensor<?x?xHxExT>) {
  %kp = attn.append %k[b,s,h,d] to %k_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%at : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x?xHxDxT>, tensor<?x?xHxDxT>) -> tensor<?x?xHxDxT>
  %vp = attn.append %v[b,s,h,d] to %v_pool[b,s,h,d] pages(%table : tensor<?x?xi32>) at(%at : tensor<?xi32>)
    count(%n : tensor<?xi32>) : (tensor<?x?xHxExT>, tensor<?x?xHxExT>) -> tensor<?x?xHxExT>
  %ks = attn.paged %kp[b,s,h,d], %table : tensor<?x?xHxDxT>, tensor<?x?xi32> -> tensor<?x?xHxDxT>
  %vs = attn.paged %vp[b,s,h,d], %table : tensor<?x?xHxExT>, tensor<?x?xi32> -> tensor<?x?xHxExT>
  %o = attn.attention %q[b,s,h,d], %ks[b,s,h,d], %vs[b,s,h,d] q_len(%n : tensor<?xi32>) kv_len(%end : tensor<?xi32>)
    mask causal<bottom_right> : (tensor<?x?xGxDxT>, tensor<?x?xHxDxT>, tensor<?x?xHxExT>) -> tensor<?x?xGxExT>
  return %o, %kp, %vp : tensor<?x?xGxExT>, tensor<?x?xHxDxT>, tensor<?x?xHxExT>
}
"""


class Trace:
    def __init__(self, seed):
        self.rng = rng = np.random.default_rng(seed)
        self.dtype = [np.float32, np.float32, np.float16, ml_dtypes.bfloat16][rng.integers(4)]
        page_size, heads = int(rng.choice([1, 2, 5, 16, 64])), int(rng.choice([1, 2, 3]))
        depth, depth_v = (int(rng.choice([8, 16, 40, 64])) for _ in range(2))
        self.group = int(rng.choice([1, 2, 4, 5, 20]))
        self.server = Server(rng, page_size, heads, depth, depth_v, self.dtype, CAPACITY)
        self.text = f"page size {page_size}, {heads} x {self.group} heads of {depth}, {depth_v}, {self.dtype.__name__}"
        self.program = None
        if rng.random() < 0.4:
            self.text += ", written by a program"
            names = {"G": heads * self.group, "H": heads, "D": depth, "E": depth_v,
                     "T": TYPES[self.dtype][0]}
            self.program = saccade.compile(re.sub(r"(?<=x)[GHDET](?=[x>])", lambda m: str(names[m[0]]), PROGRAM)).step

    def queries(self, count):
        server = self.server
        return self.rng.standard_normal((count, server.heads * self.group, server.depth)).astype(self.dtype)

    def call(self, q, offsets, sequences, **options):
        entries = max(len(sequence.pages) for sequence in sequences) + int(self.rng.integers(3))
        lengths = np.array([len(sequence) for sequence in sequences], np.int32)
        return saccade.attention(q, self.server.k, self.server.v, cu_seqlens_q=np.array(offsets, np.int32), kv_len=lengths,
                                 page_table=self.server.table(sequences, entries), **options)

    def append_and_attend(self, q, offsets, sequences, rows):
        """Writes the last tokens of the sequences by the program, padded to `rows`, and attends to them."""
        counts, padded = np.diff(offsets).astype(np.int32), (len(sequences), rows)
        ends = np.array([len(sequence) for sequence in sequences], np.int32)
        arrays = [np.full(padded + shape, np.nan, self.dtype) for shape in (
            q.shape[1:], (self.server.heads, self.server.depth), (self.server.heads, self.server.depth_v))]
        for n, (sequence, count) in enumerate(zip(sequences, counts)):
            arrays[0][n, :count] = q[offsets[n]:offsets[n + 1]]
            for array, tokens in zip(arrays[1:], zip(*sequence.tokens[len(sequence) - count:])):
                array[n, :count] = tokens
        entries = max(len(sequence.pages) for sequence in sequences) + int(self.rng.integers(3))
        out = self.program(*arrays, self.server.k, self.server.v, self.server.table(sequences, entries), ends - counts,
                           counts, ends)[0]
        self.server.check()
        return np.concatenate([out[n, :count] for n, count in enumerate(counts)])

    def compare(self, what, found, expected):
        error = np.abs(found - expected).max(initial=0)
        allowed = TYPES[self.dtype][1] * max(1, np.abs(expected).max(initial=0))
        if not error <= allowed:  # also NaN
            raise AssertionError(f"{what}: error {error}, allowed {allowed}")

    def change(self):
        """Sequences start, fork, end and drop tokens."""
        server, rng = self.server, self.rng
        if not server.sequences or rng.random() < 0.4:
            server.sequences.append(Sequence())
        for sequence in list(server.sequences):
            if rng.random() < 0.2 and len(sequence):
                server.sequences.append(server.fork(sequence, int(rng.integers(1, len(sequence) + 1))))
            if rng.random() < 0.15 and len(sequence):
                server.truncate(sequence, int(rng.integers(1, len(sequence) + 1)))
        if len(server.sequences) > 6 or (len(server.sequences) > 1 and rng.random() < 0.2):
            server.truncate(server.sequences.pop(int(rng.integers(len(server.sequences)))), 0)

    def step(self):
        server, rng = self.server, self.rng
        self.change()
        counts = [int(rng.choice([0, 1, 1, 2, 7, 30, 300])) for _ in server.sequences]
        for i, (sequence, count) in enumerate(zip(server.sequences, counts)):
            # A sequence may also copy a page that it shares.
            fits = (server.free_pages() - 1) * server.page_size >= count
            counts[i] = count if fits and len(sequence) + count <= LONGEST else 0
            server.append(sequence, counts[i], write=self.program is None)
        offsets = np.cumsum([0, *counts])
        q = self.queries(offsets[-1])
        if self.program:  # The kernel depends on the number of rows, and so do the bits.
            attend = functools.partial(self.append_and_attend, rows=max(counts))
        else:
            attend = functools.partial(self.call, causal="bottom_right")
        out = attend(q, offsets, server.sequences)
        for n, (sequence, begin, end) in enumerate(zip(server.sequences, offsets, offsets[1:])):
            if end > begin:
                self.compare(f"sequence {n}, {end - begin} of {len(sequence)} tokens", out[begin:end],
                             oracle(q[begin:end], sequence))
        chosen = int(rng.integers(len(counts)))
        if counts[chosen]:
            sequence, rows = server.sequences[chosen], slice(offsets[chosen], offsets[chosen + 1])
            for entry in range(len(sequence.pages)):
                server.move(sequence, entry)
            alone = attend(q[rows], [0, counts[chosen]], [sequence])
            if not np.array_equal(alone, out[rows]):
                raise AssertionError(f"sequence {chosen} has other bits alone, with its pages in other places")

    def verify(self):
        """One sequence takes a tree of drafts: token i follows its parent and sees its ancestors only."""
        server, rng = self.server, self.rng
        sequence = server.sequences[int(rng.integers(len(server.sequences)))]
        count = int(rng.integers(2, 20))
        if not 0 < len(sequence) < LONGEST or server.free_pages() <= count:
            return
        start = len(sequence)
        server.append(sequence, count)
        tree, parents = np.eye(count, dtype=bool), rng.integers(-1, np.arange(count))
        for i, parent in enumerate(parents):
            tree[i] |= tree[parent] & (parent >= 0)
        q = self.queries(count)
        out = self.call(q, [0, count], [sequence], mask=saccade.masks.tree(parents, start))
        self.compare(f"{count} drafts after {start} tokens", out, oracle(q, sequence, tree))
        server.truncate(sequence, start + int(rng.integers(count + 1)))


def run(seed):
    trace = Trace(seed)
    before = saccade.cache_info().compilations
    try:
        for number in range(STEPS):
            trace.step()
            if trace.rng.random() < 0.4:
                trace.verify()
        if (compiled := saccade.cache_info().compilations - before) > 2:
            raise AssertionError(f"{compiled} kernels were compiled, expected at most 2")
    except Exception:
        return f"step {number}, {trace.text}: {traceback.format_exc(limit=3)}"
    return None


def main():
    seeds = chosen_seeds(seed_options(__doc__, count=25).parse_args())
    failures = run_seeds(__file__, seeds, run)
    print(f"{len(seeds)} traces of {STEPS} steps, {failures} failures; {saccade.cache_info().compilations} compilations")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
