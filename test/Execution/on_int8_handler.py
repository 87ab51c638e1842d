# REQUIRES: int8-handler, numpy
# RUN: %python %s %t "%{with-int8}" %{v4-bf16}
"""Quantized scores by the machine code of `v3-int8`, whose vpdpbssd a signal handler executes (test/Support/TileHandler):
the checked calls of other tests, products that are left out, and the results of vpdpbusd."""

import pathlib
import shlex
import subprocess
import sys

import numpy as np
from on_aarch64 import FOLDER, calls
from on_tile_handler import run, run_all

PROGRAM = str(FOLDER / "quantized-scores.mlir")
# The keys are one tile on every target, and thus have one mean.
CALL = [PROGRAM, "--entry=equal_keys", *(f"--arg={rows}x64:f32:{seed}" for seed, rows in enumerate((40, 120, 120), 1))]
MISTAKES = {"--without=vpdpbssd": "differs by more than"}


def difference_from(folder, call, target, found):
    """The mean difference of the result of a call on `target` from `found`."""
    out = folder / f"{target}.npy"
    subprocess.run(["saccade-run", *call, f"--target={target}", f"--out={out}"], check=True)
    return np.abs(np.load(out) - found).mean()


def main(folder, runner, reference):
    folder.mkdir(exist_ok=True)
    chosen = {"quantized-scores.mlir": calls(pathlib.Path(PROGRAM), folder)}
    failed = run_all(chosen, "v3-int8", runner, "vpdpbssd", MISTAKES, [*CALL, "--check"])
    out = folder / "v3-int8.npy"
    text, succeeded, _ = run([*CALL, f"--out={out}"], "v3-int8", *shlex.split(runner))
    if not succeeded:
        print(f"FAILED: {text}")
        return 1
    # Both round the same numbers, except for ties that the order of sums decides. Exact scores differ by the rounding.
    rounded, exact = (difference_from(folder, CALL, target, np.load(out)) for target in (reference, "v3"))
    print(f"mean difference from {reference} {rounded:.2e}, from v3 {exact:.2e}")
    return failed or not rounded < exact / 100


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
