#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --count 3
"""Ragged batches on the simulated GPU. A task plans them, since the host cannot read the offsets.

Usage: ragged.py [--count N] [--seed N]

Draws batches of sequences with 0 to 40 queries, so that short and long ones are in one call, and compares them with the
reference. Each sequence alone, a dense call that the host plans, must have the same bits. Wrong offsets are clamped: the
simulator reports no access out of bounds. Only their number is checked before the call. NaN in one sequence reaches no other
one.
"""

import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "Inputs"))
from program import normal, run

PROGRAM = pathlib.Path(__file__).parent / "Inputs" / "ragged.mlir"
TARGETS = ("sm_80", "sm_75", "sm_90a")


def offsets(lengths):
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


def draw(rng):
    """Lengths of queries and keys: decode steps, prompts, empty sequences."""
    count = rng.integers(0, 6)
    queries = [int(rng.choice([0, 1, 1, 3, 16, 17, rng.integers(18, 41)])) for _ in range(count)]
    keys = [int(rng.choice([0, n, n + rng.integers(0, 300), rng.integers(0, 700)])) for n in queries]
    return queries, keys


def compare_alone(output, cu_q, cu_k, operands, target):
    """Every sequence alone must have the bits that it has in the batch."""
    q, k, v = operands
    for i in range(len(cu_q) - 1):
        rows, keys = slice(cu_q[i], cu_q[i + 1]), slice(cu_k[i], cu_k[i + 1])
        if rows.start == rows.stop:
            continue
        alone = run(PROGRAM, "alone", (q[rows][None], "f16"), (k[keys][None], "f16"), (v[keys][None], "f16"), check=False,
                    options=["--device=ptxsim", f"--target={target}"])
        assert (alone[0] == output[rows]).all(), f"sequence {i} of {cu_q}, {cu_k} differs alone"


def search(count, seed):
    for case in range(seed, seed + count):
        rng, target = np.random.default_rng(case), TARGETS[case % 3]
        queries, keys = draw(rng)
        cu_q, cu_k, rest = offsets(queries), offsets(keys), int(rng.integers(0, 4))
        operands = [normal(rng, n + rest, h, 64) for n, h in ((cu_q[-1], 4), (cu_k[-1], 2), (cu_k[-1], 2))]
        arguments = [*((x, "f16") for x in operands), cu_q, cu_k]
        options = ["--device=ptxsim", f"--target={target}"]
        output = run(PROGRAM, "ragged", *arguments, options=options)
        assert (output[cu_q[-1]:] == 0).all(), "rows of no sequence are not 0"
        run(PROGRAM, "everything", *arguments, results=5, options=options)
        compare_alone(output, cu_q, cu_k, operands, target)


def show_families():
    """A mixed batch runs the kernels of both forms; items that the plan does not have compute nothing."""
    mixed = report_of([0, 1, 41, 42])
    for family in ("kernel family sm_80, ran", "kernel family sm_80, split-KV, ran", "kernel family simt, states merged"):
        assert family in mixed, f"{family} not in {mixed}"
    # The offsets are those of queries and keys, so a sequence of 40 queries has 40 keys.
    for cu, idle in (([0, 40, 80], "sm_80, split-KV"), ([0, 3, 4], "sm_80")):
        done = report_of(cu)
        assert re.search(rf"kernel family {idle}, ran [1-9]\d* CTAs, \d+ instructions of warps, 0 of them mma", done), done


def call(cu, tokens):
    """saccade-run on random operands with this number of tokens."""
    with tempfile.TemporaryDirectory() as folder:
        np.save(f"{folder}/cu.npy", np.array(cu, np.int32))
        line = ["saccade-run", PROGRAM, "--entry=ragged", "--device=ptxsim", "--explain", f"--arg={tokens}x4x64:f16:1",
                f"--arg={tokens}x2x64:f16:2", f"--arg={tokens}x2x64:f16:3", *[f"--arg={folder}/cu.npy"] * 2]
        return subprocess.run(line, capture_output=True, text=True)


def report_of(cu):
    done = call(cu, cu[-1])
    assert done.returncode == 0, done.stderr
    return done.stdout


def refuse():
    done = call([], 4)
    assert done.returncode == 1 and "cu_seqlens_q has no element: found 0, expected at least 1" in done.stderr, done


def separate():
    """Sequences of 41, 39 and 220 tokens; those around the second one are NaN."""
    rng, cu, inner = np.random.default_rng(2), offsets([41, 39, 220]), slice(41, 80)
    q, k, v = (normal(rng, 300, h, 64) for h in (4, 2, 2))
    for target in TARGETS:
        options = ["--device=ptxsim", f"--target={target}"]
        arguments = [(x, "f16") for x in (q, k, v)]
        expected = run(PROGRAM, "ragged", *arguments, cu, cu, options=options)
        poisoned = [x.copy() for x in (k, v)]
        for x in poisoned:
            x[:inner.start] = x[inner.stop:] = np.nan
        found = run(PROGRAM, "ragged", arguments[0], *((x, "f16") for x in poisoned), cu, cu, check=False, options=options)
        assert (found[inner] == expected[inner]).all(), target
        assert np.isnan(found[:inner.start]).all() and np.isnan(found[inner.stop:]).all(), target


def clamp():
    rng = np.random.default_rng(1)
    x = [(normal(rng, 50, h, 64), "f16") for h in (4, 2, 2)]
    for given in ([0, 60, 20, 10], [-5, 7, 3, 1000], [30, 40], [2**31 - 1, -(2**31)]):
        output = run(PROGRAM, "ragged", *x, np.array(given, np.int32), np.array(given, np.int32), check=False,
                     options=["--device=ptxsim"])
        assert np.isfinite(output).all()


parser = argparse.ArgumentParser()
parser.add_argument("--count", type=int, default=60)
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
search(args.count, args.seed)
show_families()
clamp()
separate()
refuse()
print(f"{args.count} batches agree")
