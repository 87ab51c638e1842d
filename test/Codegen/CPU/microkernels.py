#!/usr/bin/env python3
# RUN: %python %s
"""Checks the innermost loops for every CPU target and element type: register blocks of multiplications in the widest
registers, no spills, and no calls except to the runtime."""

import dataclasses
import pathlib
import re
import subprocess
import sys

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
from loops import calls, innermost_loops


@dataclasses.dataclass
class Target:
    registers: str
    instruction: str
    scores: int  # multiplications in the score loop: rows x registers x unrolling
    values: int
    matmul: int
    cost: float  # instructions per multiplication
    spills: int = 0  # vectors that an exponential may spill
    region_spills: int = 0  # the same if there is a score region


LANE_PRODUCT = r"fmla.*\[\d\]"
TARGETS = {
    "portable": Target("xmm", "mulps", scores=12, values=12, matmul=12, cost=4.2, region_spills=1),
    "v3": Target("ymm", "vfmadd", scores=48, values=12, matmul=12, cost=2.3, spills=2, region_spills=2),
    "v4": Target("zmm", "vfmadd", scores=96, values=24, matmul=24, cost=1.85),
    "v4-bf16": Target("zmm", "vfmadd", scores=96, values=24, matmul=24, cost=1.85),
    "aarch64": Target(".4s", LANE_PRODUCT, scores=96, values=24, matmul=24, cost=1.8),
    "aarch64-bf16": Target(".4s", LANE_PRODUCT, scores=96, values=24, matmul=24, cost=1.8),
    "aarch64-sve256": Target("z", "fmla", scores=96, values=24, matmul=24, cost=2.3),
}
# Targets that multiply blocks of bf16, in loops that are not unrolled.
BLOCKS = {"aarch64-bf16": "bfmmla", "aarch64-sve256": "bfmmla"}
WITH_REGION = 1.15  # slack for a score region, whose addresses take registers
OWN_CALLS = r"(_mlir_ciface_)?(attention|matmul)\.\w+|saccade_\w+(@PLT)?"
DOT_PRODUCTS = {"v4-bf16": "vdpbf16ps", **BLOCKS}
LOADS_OF_ADDRESSES = 6  # addresses that a loop may reload from the stack


def assembly(source, type, target):
    text = (INPUTS / source).read_text()
    text = text.replace("64xf32>", f"64x{type}>") if "attention" in source else text.replace("bf16", type)
    command = ["saccade-compile", "-", f"--target={target}", "--emit=asm", "-o", "-"]
    return subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout


def problems(text, target, expected, instruction, slack=1.0):
    """Yields the defects of the loops of an assembly text that must have loops of `expected` multiplications."""
    found = {}
    for loop in innermost_loops(text):
        count, exponential = loop.multiplications(target.registers), loop.is_exponential
        where = f"loop of {count} multiplications"
        if exponential:
            if loop.stored_spills > (target.spills if slack == 1.0 else target.region_spills):
                yield f"{where} in an exponential spills {loop.stored_spills} vectors"
            continue
        if count < 4:
            continue
        found.setdefault(loop.count(instruction), loop)
        if loop.spills:
            yield f"{where} spills {loop.spills} vectors"
        if loop.reloads > LOADS_OF_ADDRESSES:
            yield f"{where} accesses the stack {loop.reloads} times"
        if count in expected and len(loop.body) > slack * target.cost * count:
            yield f"{where} takes {len(loop.body)} instructions"
    for count in expected:
        if count not in found:
            yield f"no loop has {count} {instruction}, found {sorted(found)}"
    for name in calls(text):
        if not re.fullmatch(OWN_CALLS, name):
            yield f"calls {name}"


def main():
    failures = 0
    for name, target in TARGETS.items():
        for type in ["f32", "bf16", "f16"]:
            instruction = DOT_PRODUCTS.get(name, target.instruction) if type == "bf16" else target.instruction
            attention = {target.values} if type == "bf16" and name in BLOCKS else {target.scores, target.values}
            sources = [("attention-f32.mlir", attention), ("matmul-bf16.mlir", {target.matmul})]
            if type == "f32":
                sources.append(("attention-bias-f32.mlir", attention))
            for source, expected in sources:
                slack = WITH_REGION if "bias" in source else 1.0
                for problem in problems(assembly(source, type, name), target, expected, instruction, slack):
                    print(f"{name}, {type}, {source}: {problem}")
                    failures += 1
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
