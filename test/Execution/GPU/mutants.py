#!/usr/bin/env python3
# RUN: %python %s --count 6
"""Mutants of real kernels: PtxSim must see every one of them.

Usage: mutants.py [--count N] [--seed N] [--verbose]
Compiles attention for sm_80, changes one instruction of its PTX and runs it. Either a wait, a barrier or the end of a
group of copies is left out: that must be an error of PtxSim. Or one constant is changed that an address is made of (a
stride, a row of a tile): then an error, or another result than the reference's. Only instructions that the run comes to
are changed, which is tried out with a trap in their place.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "Codegen" / "GPU" / "Inputs"
PROGRAM = INPUTS / "forward.mlir"
# Two CTAs or two steps over keys at least, and the last ones end in the middle: that a bound is wrong shows only there.
RUNS = [
    ("plain_64", ["1x1x205x64:bf16:1", "1x1x229x64:bf16:2", "1x1x229x64:bf16:3"]),
    ("causal_64", ["1x205x1x64:f16:1", "1x229x1x64:f16:2", "1x229x1x64:f16:3"]),
    ("causal_128", ["1x77x1x128:bf16:1", "1x85x1x128:bf16:2", "1x85x1x128:bf16:3"]),
    ("window_alibi_64", ["1x8x101x64:bf16:1", "1x2x101x64:bf16:2", "1x2x101x64:bf16:3", "8:f32:4"]),
]
DROPPED = re.compile(r"^\s*(cp\.async\.wait|cp\.async\.commit_group|bar\.sync|barrier)")
# What places in shared memory are made of. (A bound that is wrong by a few rows changes nothing in most tiles.)
CHANGED = [
    re.compile(r"^\s*(?:ldmatrix|cp\.async\.c[ag])\S*\s.*\[%\w+\+(\d+)\]"),
    re.compile(r"^\s*(?:mad\.lo|mul\.lo)\.s32\s.*, (\d+)(?:, %\w+)?;"),
    re.compile(r"^\s*shl\.b32\s.*, (\d+);"),
]
CAUGHT = re.compile(r"line \d+: (race|uninitialised|out of bounds|misaligned|divergence|deadlock|unwaited|read-only|"
                    r"trap|bad operand|endless)")


class Kernel:
    """The PTX of all entries, and how to run one of them."""

    def __init__(self, ptx, entry, arguments, folder):
        self.lines, self.entry, self.folder = ptx.split("\n"), entry, folder
        self.command = ["saccade-run", str(PROGRAM), "--device=ptxsim", "--target=sm_80", "--check", f"--entry={entry}",
                        *[f"--arg={argument}" for argument in arguments]]
        start = f".visible .entry {entry}_"
        begin = next(i for i, line in enumerate(self.lines) if line.startswith(start))
        end = next(i for i in range(begin, len(self.lines)) if self.lines[i] == "}")
        self.body = range(begin, end)

    def run(self, number, line):
        """The exit code and what is printed with `line` in the place of one."""
        lines = list(self.lines)
        lines[number] = line
        file = self.folder / f"{self.entry}-{number}-{abs(hash(line))}.ptx"
        file.write_text("\n".join(lines))
        try:
            result = subprocess.run([*self.command, f"--kernels={file}"], capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return 1, "line 0: endless"
        finally:
            file.unlink()
        return result.returncode, result.stdout + result.stderr

    def reaches(self, number):
        """Whether the run comes to a line: with a trap in its place it ends there."""
        return f"line {number + 1}: trap" in self.run(number, "\ttrap;")[1]

    def dropped(self):
        """Mutants without an instruction, as (line, text)."""
        return [(i, "") for i in self.body if DROPPED.match(self.lines[i])]

    def changed(self, rng):
        """Mutants with another constant."""
        mutants = []
        for i in self.body:
            for pattern in CHANGED:
                if match := pattern.match(self.lines[i]):
                    value = int(match[1])
                    is_address = "[" in self.lines[i]
                    other = value + (16 if is_address else rng.choice([1, 2]) if value < 8 else -8)
                    mutants.append((i, self.lines[i][:match.start(1)] + str(other) + self.lines[i][match.end(1):]))
        return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=15, help="of each kind; 15 of each are 30")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    missed = 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as workers:
        folder = pathlib.Path(name)
        ptx = subprocess.run(["saccade-compile", str(PROGRAM), "--target=sm_80"], capture_output=True, text=True,
                             check=True).stdout
        kernels = [Kernel(ptx, entry, arguments, folder) for entry, arguments in RUNS]
        for kind in ("dropped", "changed"):
            sites = [(kernel, *site) for kernel in kernels
                     for site in (kernel.dropped() if kind == "dropped" else kernel.changed(rng))]
            rng.shuffle(sites)

            def judge(site):
                kernel, number, line = site
                if not kernel.reaches(number):
                    return site, None, ""
                code, output = kernel.run(number, line)
                error = CAUGHT.search(output)
                return site, bool(error) or (kind == "changed" and code != 0), output

            tried = caught = 0
            while sites and tried < args.count:
                batch, sites = sites[:args.count - tried], sites[args.count - tried:]
                for (kernel, number, line), is_caught, output in workers.map(judge, batch):
                    if is_caught is None:
                        continue
                    tried += 1
                    caught += is_caught
                    if not is_caught or args.verbose:
                        before = kernel.lines[number].strip()
                        print(f"{'caught' if is_caught else 'MISSED'}: {kernel.entry}, line {number + 1}: {before}"
                              + (f" -> {line.strip()}" if line else " is left out"))
                        print("    " + "\n    ".join(output.strip().split("\n")[-3:]), flush=True)
            print(f"{caught} of {tried} {kind} reported", flush=True)
            missed += tried - caught + (tried < args.count)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
