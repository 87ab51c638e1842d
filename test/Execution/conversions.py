#!/usr/bin/env python3
# RUN: %python %s
"""Conversions between f32 and 16-bit floats round to nearest even and keep NaN, on every CPU target."""

import pathlib
import subprocess
import sys
import tempfile

import numpy as np

MODULE = """func.func @narrow(%x: tensor<?xf32>) -> tensor<?xf32> {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %empty = tensor.empty(%n) : tensor<?x{type}>
  %y = linalg.map {{ arith.truncf }} ins(%x : tensor<?xf32>) outs(%empty : tensor<?x{type}>)
  %wide = tensor.empty(%n) : tensor<?xf32>
  %z = linalg.map {{ arith.extf }} ins(%y : tensor<?x{type}>) outs(%wide : tensor<?xf32>)
  return %z : tensor<?xf32>
}}
"""
# The bf16 conversion instruction flushes subnormals to 0.
MIN_NORMAL = np.float32(2.0**-126)


def patterns():
    """f32 values: every f16 and bf16, their neighbours, the midpoints between them, and random bits."""
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    uppers = np.arange(1 << 16, dtype=np.uint32) << 16
    near = [halves + np.uint32(offset) for offset in (0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF)]
    near += [uppers + np.uint32(offset) for offset in (0, 1, 0x7FFF, 0x8000, 0x8001, 0xFFFF)]
    random = np.random.default_rng(5)
    near.append(random.integers(0, 1 << 32, 20003, np.uint32))  # no multiple of any vector length
    return np.concatenate(near).view(np.float32)


def through_bf16(x):
    bits = x.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(x), np.float32(np.nan), rounded.view(np.float32))


def main():
    failures = 0
    x = patterns()
    with np.errstate(over="ignore", invalid="ignore"):
        references = {"bf16": through_bf16(x), "f16": x.astype(np.float16).astype(np.float32)}
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        np.save(folder / "x.npy", x)
        for target in ["host", "v3", "portable"]:
            for type, expected in references.items():
                (folder / "m.mlir").write_text(MODULE.format(type=type))
                subprocess.run(["saccade-run", folder / "m.mlir", f"--arg={folder}/x.npy", f"--out={folder}/y.npy",
                                f"--target={target}"], check=True)  # fmt: skip
                got = np.load(folder / "y.npy")
                same = (got.view(np.uint32) == expected.view(np.uint32)) | (np.isnan(got) & np.isnan(expected))
                if type == "bf16" and target == "host":
                    same |= (np.abs(x) < MIN_NORMAL) & (np.abs(got) <= MIN_NORMAL)
                wrong = np.flatnonzero(~same)
                failures += wrong.size
                if wrong.size:
                    i = wrong[0]
                    print(f"{target} {type}: {wrong.size} of {x.size}; {x[i]!r} became {got[i]!r}, expected {expected[i]!r}")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
