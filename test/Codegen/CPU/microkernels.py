#!/usr/bin/env python3
# RUN: %python %s
"""The innermost loops of every level and type are what they should be: register blocks of products in the level's widest
registers, nothing of them in the stack, and no call but to the runtime."""

import dataclasses
import pathlib
import re
import subprocess
import sys

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
from loops import calls, innermost_loops


@dataclasses.dataclass
class Level:
    registers: str
    instruction: str
    scores: int  # products in the loop of scores: rows x registers x unrolling
    values: int
    product: int
    cost: float  # instructions for each of them
    region_spills: int = 0  # vectors that an exponential may keep in the stack beside a score region


LEVELS = {
    "portable": Level("xmm", "mulps", scores=12, values=12, product=12, cost=4.2, region_spills=1),
    "v3": Level("ymm", "vfmadd", scores=12, values=12, product=12, cost=2.1),
    "v4": Level("zmm", "vfmadd", scores=96, values=24, product=24, cost=1.8),
    "v4-bf16": Level("zmm", "vfmadd", scores=96, values=24, product=24, cost=1.8),
}
WITH_REGION = 1.15  # what a loop may cost more beside a score region, whose addresses take registers, too
OWN_CALLS = r"(_mlir_ciface_)?(attention|product)\.\w+|saccade_\w+@PLT"
LOADS_OF_ADDRESSES = 6  # that a loop of many pointers may take from the stack


def assembly(source, type, target):
    text = (INPUTS / source).read_text()
    text = text.replace("64xf32>", f"64x{type}>") if "attention" in source else text.replace("bf16", type)
    command = ["saccade-compile", "-", f"--target={target}", "--emit=asm", "-o", "-"]
    return subprocess.run(command, input=text, text=True, check=True, stdout=subprocess.PIPE).stdout


def problems(text, level, expected, is_dot, slack=1.0):
    """What is wrong with the loops of an assembly text that has to have some of `wanted` products."""
    instruction = "vdpbf16ps" if is_dot else level.instruction
    found = {}
    for loop in innermost_loops(text):
        products, exponential = loop.products(level.registers), loop.is_exponential
        where = f"loop of {products} products"
        if exponential:
            if loop.stored_spills > (0 if slack == 1.0 else level.region_spills):
                yield f"{where} in an exponential stores {loop.stored_spills} vectors in the stack"
            continue
        if products < 4:
            continue
        found.setdefault(loop.count(instruction), loop)
        if loop.spills:
            yield f"{where} has {loop.spills} vectors in the stack"
        if loop.reloads > LOADS_OF_ADDRESSES:
            yield f"{where} accesses the stack {loop.reloads} times"
        if products in expected and len(loop.body) > slack * level.cost * products:
            yield f"{where} takes {len(loop.body)} instructions"
    for count in expected:
        if count not in found:
            yield f"no loop has {count} {instruction}, but {sorted(found)}"
    for name in calls(text):
        if not re.fullmatch(OWN_CALLS, name):
            yield f"calls {name}"


def main():
    failures = 0
    for name, level in LEVELS.items():
        for type in ["f32", "bf16", "f16"]:
            is_dot = name == "v4-bf16" and type == "bf16"
            attention = {level.scores, level.values}
            sources = [("attention-f32.mlir", attention), ("matmul-bf16.mlir", {level.product})]
            if type == "f32":
                sources.append(("attention-bias-f32.mlir", attention))
            for source, expected in sources:
                slack = WITH_REGION if "bias" in source else 1.0
                for problem in problems(assembly(source, type, name), level, expected, is_dot, slack):
                    print(f"{name}, {type}, {source}: {problem}")
                    failures += 1
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
