#!/usr/bin/env python3
# RUN: %python %s | FileCheck %s
# CHECK: attention: 4 products, 4 loads
# CHECK: matmul: 4 products, 4 loads
# CHECK: decoding: 4 products, 4 loads
# CHECK: attention of f16: 16 products, 10 loads
# CHECK: matmul of f16: 12 products, 8 loads
"""Checks the loops that multiply in tile registers: blocks of 2 × 2 accumulators, no register on the stack, and at least
0.85 of the rate of tdpbf16ps in a static model.

The model (Intel, Optimization Reference Manual, 20.5; the throughputs are also those of uops.info for Sapphire Rapids):
tdpbf16ps starts every 16 cycles, tileloadd every 8, and six other instructions start in a cycle. The slowest of the three
bounds a loop whose operands are in L1.
"""

import pathlib
import re
import subprocess
import sys

INPUTS = pathlib.Path(__file__).parent / "Inputs"
sys.path.insert(0, str(INPUTS))
from loops import innermost_loops

PROGRAMS = {"attention": "attention-f32.mlir", "matmul": "matmul-bf16.mlir", "decoding": "one-query-f32.mlir",
            "attention of f16": "attention-f16.mlir", "matmul of f16": "matmul-f16.mlir"}  # fmt: skip
LEAST = 0.85


def assembly(source):
    text = (INPUTS / source).read_text()
    if "f16" not in text:
        text = text.replace("f32", "bf16")
    text = text.replace("x8x?x128", "x1x?x128")  # 32 query heads of one KV head
    return subprocess.run(["saccade-compile", "-", "--target=v4-amx", "--emit=asm", "-o", "-"], input=text, text=True,
                          check=True, stdout=subprocess.PIPE).stdout


def rate(loop):
    """The share of cycles in which tdpbf16ps starts."""
    products, loads = loop.count("tdpbf16ps"), loop.count("tileloadd")
    others = len(loop.body) - products - loads
    return 16 * products / max(16 * products, 8 * loads, others / 6)


failures = 0
for name, program in PROGRAMS.items():
    text = assembly(program)
    loops = [loop for loop in innermost_loops(text) if loop.count("tdpbf16ps")]
    largest = max(loops, key=lambda loop: loop.count("tdpbf16ps"))
    print(f"{name}: {largest.count('tdpbf16ps')} products, {largest.count('tileloadd')} loads, "
          f"{len(largest.body)} instructions")
    for loop in loops:
        if rate(loop) < LEAST or any("%tmm" in line and re.search(loop.stack, line) for line in loop.body):
            print(f"{name}: a loop has {rate(loop):.2f} of the rate, or a tile on the stack:", *loop.body, sep="\n  ")
            failures += 1
    # A register is saved by a store relative to the stack pointer, with a scaled index.
    if saved := re.findall(r"tilestored\s+%tmm\d, \S*\(%rsp\S*", text):
        print(f"{name}: registers on the stack:", *saved, sep="\n  ")
        failures += 1
    if text.count("ldtilecfg") != text.count("tilerelease"):
        print(f"{name}: {text.count('ldtilecfg')} configurations, {text.count('tilerelease')} releases")
        failures += 1
sys.exit(failures != 0)
