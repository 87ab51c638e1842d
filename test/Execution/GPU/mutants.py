#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --count 1
# RUN: %python %s --target sm_90a --kind dropped --count 3
# RUN: %python %s --target sm_90a --program pages --count 1
# RUN: %python %s --target sm_90a --program matmul --kind dropped --count 2
# RUN: %python %s --target sm_90a --program matmul --kind changed --count 2
"""Mutation test of PtxSim: it must detect every mutant of a compiled kernel.

Usage: mutants.py [--count N] [--seed N] [--kind dropped|changed|bounds] [--target sm_80|sm_90a] [--program attention|pages|matmul] [--verbose]

Compiles attention for sm_80 or sm_90a, or matmuls for sm_90a, changes one instruction of its PTX and runs it. "dropped" removes a wait, a barrier, a fence,
an arrival or a commit_group, which PtxSim must report. "changed" alters a constant of an address, a descriptor or a barrier, "bounds" a constant of a comparison,
loop step, clamp or alignment; PtxSim must report an error, or the result must differ from the reference. Only executed
instructions are mutated, as found by a trap in their place. Mutants of constants with bit-identical results are equivalent,
e.g. they visit an additional masked tile, or do not clear a row whose weights are 0, and are counted separately. So are those
without a wgmma.fence which follows another one since the last access to the registers of its product.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "Codegen" / "GPU" / "Inputs"
PROGRAMS = {
    "attention": (INPUTS / "forward.mlir").read_text(),
    "pages": (INPUTS / "forward-pages.mlir").read_text(),
    "matmul": (pathlib.Path(__file__).resolve().parent / "Inputs" / "matmul.mlir").read_text(),
}
# Two sequences of 13 and 12 pages, of which the others are not used.
TABLE = np.random.default_rng(0).permutation(40)[:26].reshape(2, 13).astype(np.int32)
LENGTHS = np.array([13 * 16, 12 * 16 - 3], np.int32)
SPLIT_KV = "attention_split_kv"
# Each run: a function, the rest of the name of its kernel, and the arguments.
RUNS = {
    # At least two CTAs or two tiles of keys, the last ones partial, because wrong bounds show only there. The last run
    # is split-KV.
    ("sm_80", "attention"): [
        ("plain_64", "attention", ["1x1x205x64:bf16:1", "1x1x229x64:bf16:2", "1x1x229x64:bf16:3"]),
        ("causal_64", "attention", ["1x205x1x64:f16:1", "1x229x1x64:f16:2", "1x229x1x64:f16:3"]),
        ("causal_128", "attention", ["1x77x1x128:bf16:1", "1x85x1x128:bf16:2", "1x85x1x128:bf16:3"]),
        ("window_alibi_64", "attention", ["1x8x101x64:bf16:1", "1x2x101x64:bf16:2", "1x2x101x64:bf16:3", "8:f32:4"]),
        ("plain_64", SPLIT_KV, ["1x4x3x64:bf16:1", "1x1x349x64:bf16:2", "1x1x349x64:bf16:3"]),
    ],
    # More tiles than stages, in the kernels with warpgroups. One CTA has all work items: four or three.
    ("sm_90a", "attention"): [
        ("plain_64", "attention_sm_90a", ["1x2x205x64:bf16:1", "1x1x700x64:bf16:2", "1x1x700x64:bf16:3"]),
        ("causal_128", "attention_sm_90a", ["1x285x1x128:bf16:1", "1x405x1x128:bf16:2", "1x405x1x128:bf16:3"]),
    ],
    ("sm_90a", "pages"): [
        ("pages_128", "attention_sm_90a", ["2x1x150x128:bf16:1", "40x16x1x128:bf16:2", "40x16x1x128:bf16:3", "{folder}/table.npy",
                                   "{folder}/lengths.npy"]),
    ],
    # More steps than stages, with a partial one, and tiles of one and two warpgroups; sums accumulated apart, and a
    # transposed operand.
    ("sm_90a", "matmul"): [
        ("linear", "matmul_bias_relu_sm_90a", ["200x456:bf16:1", "136x456:bf16:2", "136:bf16:3"]),
        ("batches", "matmul_sm_90a", ["2x136x456:f16:1", "2x456x136:f16:2"]),
    ],
}
KINDS = ("dropped", "changed", "bounds")
# A wrong query position shifts the ALiBi biases of a row alike, which changes no weight, so a curved bias replaces them.
LINEAR = "%bias = arith.mulf %m, %df : f32\n"
CURVED = """%sixteenth = arith.constant 0.0625 : f32
      %near = arith.mulf %df, %sixteenth : f32
      %curve = math.tanh %near : f32
      %bias = arith.mulf %m, %curve : f32
"""
DROPPED = re.compile(r"^\s*(?:@\w+\s+)?(cp\.async\.wait|cp\.async\.commit_group|bar\.sync|barrier|mbarrier\.arrive|mbarrier\.try_wait|fence|wgmma\.(fence|commit|wait))")
# What places in shared memory are made of, and what bounds are.
CHANGED = [
    re.compile(r"^\s*(?:ldmatrix|cp\.async\.c[ag])\S*\s.*\[%\w+\+(\d+)\]"),
    re.compile(r"^\s*(?:mad\.lo|mul\.lo)\.s32\s.*, (\d+)(?:, %\w+)?;"),
    re.compile(r"^\s*shl\.b32\s.*, (\d+);"),
    # Matrix descriptors of wgmma, and the threads that meet at a named barrier.
    re.compile(r"^\s*or\.b64\s.*, (\d{12,});"),
    re.compile(r"^\s*bar\.sync\s+(?:%\w+|[1-9]\d*), (\d+);"),
]
# Changes of a descriptor: its offsets, in units of 16 bytes, and its swizzle.
DESCRIPTOR_CHANGES = [1 << 16, 1 << 32, 1 << 36, -(1 << 62)]
BOUNDS = [
    re.compile(r"^\s*setp\.\w+\.\w+\s.*, (-?\d+);"),
    re.compile(r"^\s*(?:add|sub|min|max|and)\.[sub]\d+\s.*, (-?\d+);"),
]
CAUGHT = re.compile(r"line \d+: (race|uninitialised|out of bounds|misaligned|divergence|deadlock|unwaited|read-only|"
                    r"trap|bad operand|instruction limit)")


class Kernel:
    """A kernel of the compiled PTX, and the command that runs it."""

    def __init__(self, program, ptx, target, entry, task, arguments, folder):
        self.lines, self.entry, self.task, self.folder, self.results = ptx.split("\n"), entry, task, folder, None
        self.lock = threading.Lock()
        self.command = ["saccade-run", str(program), "--device=ptxsim", f"--target={target}", "--check", f"--entry={entry}", "--multiprocessors=1",
                        *[f"--arg={argument.format(folder=folder)}" for argument in arguments]]
        start = f".visible .entry {entry}_{task}("
        begin = next(i for i, line in enumerate(self.lines) if line.startswith(start))
        end = next(i for i in range(begin, len(self.lines)) if self.lines[i] == "}")
        self.body = range(begin, end)

    def run(self, number, line):
        """Runs the kernel with line `number` replaced; (exit code, output, bytes of the results)."""
        lines = list(self.lines)
        lines[number] = line
        name = f"{self.entry}-{self.body.start}-{number}-{abs(hash(line))}"
        file, outputs = self.folder / f"{name}.ptx", [self.folder / f"{name}-{i}.npy" for i in range(self.outputs)]
        file.write_text("\n".join(lines))
        command = [*self.command, f"--kernels={file}", *[f"--out={output}" for output in outputs]]
        try:
            result = subprocess.run(command, capture_output=True, text=True, timeout=120)
        except subprocess.TimeoutExpired:
            return 1, "line 0: instruction limit", None
        finally:
            file.unlink()
        results = [output.read_bytes() if output.exists() else None for output in outputs]
        for output in outputs:
            output.unlink(missing_ok=True)
        return result.returncode, result.stdout + result.stderr, results

    @property
    def outputs(self):
        return 2 if self.entry.startswith("causal") else 1

    def is_same(self, results):
        """Whether the results equal those of the original kernel."""
        with self.lock:  # both workers may need them first
            if self.results is None:
                self.results = self.run(self.body.start, self.lines[self.body.start])[2]
        return results == self.results

    def reaches(self, number):
        """Whether a line is executed, tested by a trap in its place."""
        return f"line {number + 1}: trap" in self.run(number, "\ttrap;")[1]

    def dropped(self):
        """Mutants without an instruction, as (line, text)."""
        # PtxSim does not check the order of accesses to global memory, where split-KV keeps its state.
        # A wait for an mbarrier is a loop, which ends at once without it.
        without = lambda line: "\tsetp.eq.u32 done, 0, 0;" if "try_wait" in line else ""
        return [(i, without(self.lines[i])) for i in self.body if self.task != SPLIT_KV and DROPPED.match(self.lines[i])]

    def changed(self, rng):
        """Mutants with another constant in an address."""
        mutants = []
        for i in self.body:
            for pattern in CHANGED:
                if match := pattern.match(self.lines[i]):
                    value = int(match[1])
                    is_address = "[" in self.lines[i]
                    other = value + (16 if is_address else rng.choice([1, 2]) if value < 8 else -8 if value < 1 << 32
                                     else rng.choice(DESCRIPTOR_CHANGES))  # fmt: skip
                    mutants.append((i, self.lines[i][:match.start(1)] + str(other) + self.lines[i][match.end(1):]))
        return mutants

    def bounds(self, rng):
        """Mutants with another bound, step or clamp."""
        mutants = []
        for i in self.body:
            for pattern in BOUNDS:
                if match := pattern.match(self.lines[i]):
                    other = int(match[1]) + rng.choice([-16, -8, -1, 1, 8, 16])
                    mutants.append((i, self.lines[i][:match.start(1)] + str(other) + self.lines[i][match.end(1):]))
        return mutants


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=15, help="mutants of each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kind", choices=KINDS, help="default: all")
    parser.add_argument("--target", choices=("sm_80", "sm_90a"), default="sm_80")
    parser.add_argument("--program", choices=PROGRAMS, default="attention", help="pages and matmul: with sm_90a only")
    parser.add_argument("--verbose", action="store_true")
    args = parser.parse_args()
    if (args.target, args.program) not in RUNS:
        parser.error(f"no run of {args.program} for {args.target}")
    rng = random.Random(args.seed)
    missed = 0
    with tempfile.TemporaryDirectory() as name, ThreadPoolExecutor(2) as workers:
        folder = pathlib.Path(name)
        np.save(folder / "table.npy", TABLE)
        np.save(folder / "lengths.npy", LENGTHS)
        assert LINEAR in PROGRAMS["attention"]
        program = folder / "program.mlir"
        program.write_text(PROGRAMS[args.program].replace(LINEAR, CURVED))
        ptx = subprocess.run(["saccade-compile", str(program), f"--target={args.target}"], capture_output=True, text=True,
                             check=True).stdout
        kernels = [Kernel(program, ptx, args.target, entry, task, arguments, folder)
                   for entry, task, arguments in RUNS[args.target, args.program]]
        for kind in [args.kind] if args.kind else KINDS:
            sites = []
            for kernel in kernels:
                sites += [(kernel, *site) for site in (kernel.dropped() if kind == "dropped" else getattr(kernel, kind)(rng))]
            rng.shuffle(sites)

            def judge(site):
                """(site, verdict, output)."""
                kernel, number, line = site
                if not kernel.reaches(number):
                    return site, "not reached", ""
                code, output, results = kernel.run(number, line)
                if CAUGHT.search(output) or (kind != "dropped" and code != 0):
                    return site, "caught", output
                may_be_same = kind != "dropped" or "wgmma.fence" in kernel.lines[number]
                return site, "same" if may_be_same and kernel.is_same(results) else "MISSED", output

            tried = caught = same = 0
            while sites and tried < args.count:
                batch, sites = sites[:args.count - tried], sites[args.count - tried:]
                for (kernel, number, line), verdict, output in workers.map(judge, batch):
                    same += verdict == "same"
                    tried += verdict in ("caught", "MISSED")
                    caught += verdict == "caught"
                    if verdict == "MISSED" or (args.verbose and verdict != "not reached"):
                        before = kernel.lines[number].strip()
                        print(f"{verdict}: {kernel.entry}, line {number + 1}: {before}"
                              + (f" -> {line.strip()}" if line else " is left out"))
                        print("    " + "\n    ".join(output.strip().split("\n")[-3:]), flush=True)
            print(f"{caught} of {tried} {kind} reported" + (f", {same} more change nothing" if same else ""), flush=True)
            missed += tried - caught + (tried < args.count)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
