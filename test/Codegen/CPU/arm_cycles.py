#!/usr/bin/env python3
# REQUIRES: llvm-mca
# RUN: %python %s %src/docs/internals/cpu-targets.md
"""Compares the cycles of the inner loops on AArch64 by llvm-mca, a static model, with the table in cpu-targets.md, which
this program prints. On processors that are modelled without other bounds the loops must reach 0.85 of the rate at which
their products start."""

import pathlib
import subprocess
import sys

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
from loops import WORK, innermost_loops

ITERATIONS = 200
LEAST = 0.85
# Products that start in a cycle: of 128 bits, and of 256 bits where registers have this length.
CORES = {"neoverse-v1": (4, 2), "neoverse-n2": (2, None), "neoverse-v2": (4, None)}
BOUND_BY_OTHERS = {"neoverse-v2"}  # its model lets loads wait for one another
# Label, input, and which loop.
LOOPS = [("scores", "attention-f32.mlir", 0), ("values", "attention-f32.mlir", -1), ("matmul", "matmul-bf16.mlir", 0),
         ("softmax of 16 scores", "attention-f32.mlir", "softmax")]  # fmt: skip
# Target, element type, and the end of the label.
TARGETS = [("aarch64", "f32", "f32"), ("aarch64-bf16", "bf16", "bf16"), ("aarch64-sve256", "f32", "f32, SVE"),
           ("aarch64-sve256", "bf16", "bf16, SVE")]  # fmt: skip
# Label, target, element type, input, and which loop.
ROWS = [(f"{label}, {end}", target, type, source, loop)
        for target, type, end in TARGETS for label, source, loop in LOOPS]  # fmt: skip
# Scores with `qk_type(i8)`.
ROWS += [(f"scores, {end}", target, "i8", "attention-f32.mlir", "smmla")
         for target, end in [("aarch64-bf16", "int8"), ("aarch64-sve256", "int8, SVE")]]  # fmt: skip


def compiled(source, type, target):
    text = (INPUTS / source).read_text()
    if type == "i8":
        text = text.replace(" : (tensor", " qk_type(i8) : (tensor")
    else:
        text = text.replace("64xf32>", f"64x{type}>") if "attention" in source else text.replace("bf16", type)
    return list(innermost_loops(subprocess.run(["saccade-compile", "-", f"--target={target}", "--emit=asm", "-o", "-"],
                                               input=text, text=True, check=True, stdout=subprocess.PIPE).stdout))  # fmt: skip


def cycles(body, core):
    """Of an iteration, whose jump is left out."""
    command = ["llvm-mca", "-mtriple=aarch64", f"-mcpu={core}", "-mattr=+bf16,+i8mm,+sve", f"--iterations={ITERATIONS}",
               "--all-views=0", "--summary-view", "-"]  # fmt: skip
    report = subprocess.run(command, input="\n".join(body[:-1]), text=True, capture_output=True, check=True).stdout
    return int(next(line.split()[-1] for line in report.splitlines() if line.startswith("Total Cycles"))) / ITERATIONS


def products(loop):
    return max((loop.count(names), name) for name, names in WORK.items())[0]


def main(page):
    rows, failures = [], 0
    for label, target, type, source, which in ROWS:
        loops = compiled(source, type, target)
        is_wide = "sve" in target
        if which == "softmax":
            loop = max((each for each in loops if each.is_exponential), key=lambda each: each.count("fml|fmad|fadd"))
            what = ""
        else:
            blocks = [each for each in loops if not each.is_exponential and (which != "smmla" or each.count("smmla"))]
            most = max(products(each) for each in blocks)
            loop = next(each for each in (blocks[::-1] if which == -1 else blocks)
                        if products(each) == (24 if which == -1 else most))  # fmt: skip
            instruction = next(word for line in loop.body if (word := line.split()[0]) in ("fmla", "bfmmla", "smmla"))
            what = f"{products(loop)} `{instruction}`"
        cells = [label, what]
        for core, rates in CORES.items():
            if not rates[is_wide]:
                cells += ["", ""]
                continue
            taken = cycles(loop.body, core)
            if which == "softmax":
                cells += [f"{taken / (2 if is_wide else 1):.1f}", ""]
                continue
            ideal = products(loop) / rates[is_wide]
            cells += [f"{taken:.1f}", f"{ideal:.0f}"]
            if ideal < LEAST * taken and core not in BOUND_BY_OTHERS:
                print(f"{label} on {core}: {taken:.1f} cycles, {ideal:.0f} for the products", *loop.body, sep="\n  ")
                failures += 1
        rows.append(f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |"))
    text = page.read_text()
    for row in rows:
        if row not in text:
            print(f"{page.name} has no line {row}")
            failures += 1
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
