#!/usr/bin/env python3
# RUN: %python %s
"""Head dimensions on every CPU target, with a different value head dimension: full, half and odd vectors."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

SIZES = [(1, 3), (16, 16), (33, 40), (40, 33), (64, 80), (72, 72), (96, 100), (100, 96), (128, 64), (160, 160), (192, 128),
         (256, 256)]  # fmt: skip
TYPES = ["f32", "bf16", "f16"]
TARGETS = ["host", "v3", "portable"]

MODULE = """func.func @f(%q: tensor<?x?x{d}x{t}>, %k: tensor<?x?x{d}x{t}>, %v: tensor<?x?x{e}x{t}>) -> tensor<?x?x{e}x{t}> {{
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d]
    : (tensor<?x?x{d}x{t}>, tensor<?x?x{d}x{t}>, tensor<?x?x{e}x{t}>) -> tensor<?x?x{e}x{t}>
  return %o : tensor<?x?x{e}x{t}>
}}
"""


def check(case):
    depth, width, type, target = case
    shapes = [f"2x37x{depth}", f"2x71x{depth}", f"2x71x{width}"]
    command = ["saccade-run", "-", f"--target={target}", "--threads=2", "--check"]
    command += [f"--arg={shape}:{type}:{seed}" for seed, shape in enumerate(shapes)]
    done = subprocess.run(command, input=MODULE.format(d=depth, e=width, t=type), text=True, capture_output=True)
    if done.returncode:
        print(f"{depth} and {width}, {type}, {target}: {done.stderr.strip()}")
    return done.returncode != 0


if __name__ == "__main__":
    # Every size on every CPU target, with one type each.
    cases = [(*sizes, TYPES[(i + j) % 3], target) for i, sizes in enumerate(SIZES) for j, target in enumerate(TARGETS)]
    with ThreadPoolExecutor(2) as pool:
        sys.exit(any(list(pool.map(check, cases))))
