#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --first-seed 0 --count 300 --cover 7
# RUN: %python %s --target sm_90a --family "sm_90a, gradient" --first-seed 0 --count 600 --cover 6
# One key: score gradients are differences of equal sums, of which tensor cores round one.
# RUN: %python %s --target sm_90a --first-seed 9008 --count 1
# RUN: %python %s --target sm_90a --first-seed 20036 --count 1
"""Random gradients of attention on the GPU simulator against the float64 reference.

Usage: gradient_cases.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--target NAME]
                         [--family NAME]

Cases are those of forward_cases.py. saccade-run computes the results, the log-sum-exp and its low part on the CPU, then the gradient on
the simulator, twice, with asynchronous copies that complete as late and as early as legal. The kernel family is checked:
tiles in registers where sm_80 has them, and warpgroups for the same tiles on sm_90a if rows are contiguous.
"""

import pathlib
import shlex
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Fuzz" / "Inputs"))
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from forward_cases import Case, case_options, execute, run_cases


class GradientCase(Case):
    """A function with a gradient, and its arguments."""

    def __post_init__(self):
        super().__post_init__()
        self.lse = self.low = False
        self.extra = "none"
        # Pages have no gradient.
        self.page = None
        # Seven products of a tile take longer than two. Warpgroups use stages again after 256 keys.
        self.keys = min(self.keys, 420 if self.target == "sm_90a" else 260)
        # Gradients of tables and slopes have tests of their own (gradients.mlir).
        if self.region in ("alibi", "bias"):
            self.region = "softcap"
        fits = max(self.depth, self.value_depth) <= 128 and self.depth % 16 == 0 and self.value_depth % 16 == 0
        self.family = "sm_80, gradient" if fits and not self.portable else "simt" if self.portable else "sm_80, matmul"
        # Tensor maps need contiguous rows, which those of one position are in every layout.
        contiguous = self.layout != "bhds" or self.queries == self.keys == 1
        if self.family == "sm_80, gradient" and self.target == "sm_90a" and contiguous:
            self.family = "sm_90a, gradient"

    def program(self):
        text = super().program()
        head, body = text.split(" {\n", 1)
        return f"{head} attributes {{attn.gradient}} {{\n{body}"


def run(case, folder, keep):
    """The text of the failure of a case, or None."""
    program = case.write(folder)
    results = [folder / f"{what}-{case.seed}.npy" for what in ("result", "lse", "low")]
    arguments = case.arguments(folder)
    heads = case.kv_heads * case.group
    shape = "x".join(map(str, case.shape(heads, case.queries, case.value_depth)))
    forward = ["saccade-run", str(program), "--entry=attend", *arguments, *[f"--out={result}" for result in results]]
    backward = ["saccade-run", str(program), "--entry=attend_gradient", "--device=ptxsim", f"--target={case.target}",
                f"--arithmetic={case.arithmetic}", "--check", "--explain", *arguments,
                f"--arg={results[0]}:{case.type}", *[f"--arg={x}" for x in results[1:]], f"--arg={shape}:{case.type}:{case.values + 7}"]  # fmt: skip
    code, output = 0, ""
    for line in (forward, backward):
        code, output = execute(line)
        if code != 0:
            break
    if code == 0 and f"kernel family {case.family}, ran" in output:
        return None
    case.write(keep)
    shown = "\n".join(f"    {text}" for text in output.strip().split("\n")[-8:])
    commands = "\n".join(f"    {shlex.join(part.replace(str(folder), str(keep)) for part in line)}" for line in (forward, backward))
    return f"FAIL gradient_cases.py --seed {case.seed}: exit code {code}, expected family '{case.family}'\n{shown}\n{commands}"


def main():
    args = case_options(__doc__, count=300).parse_args()
    return run_cases(args, GradientCase, lambda case, folder: run(case, folder, args.keep))


if __name__ == "__main__":
    sys.exit(main())
