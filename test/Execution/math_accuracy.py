#!/usr/bin/env python3
# RUN: %python %s
"""Math functions that are computed without the C library are accurate to a few ulp."""

import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

# The largest error in units in the last place, where arguments are drawn from, and the exact function.
FUNCTIONS = {
    "exp": (2.0, (-87.3, 88.7), math.exp),
    "exp2": (2.5, (-126.0, 127.9), lambda x: 2.0**x),
    "sin": (1.0, (-1.0e5, 1.0e5), math.sin),
    "cos": (1.0, (-1.0e5, 1.0e5), math.cos),
    "tanh": (6.0, (-10.0, 10.0), math.tanh),
    "erf": (6.0, (-4.5, 4.5), math.erf),
    "erfc": (3.0, (-4.5, 9.0), math.erfc),
    "log": (2.0, (1.2e-38, 1.0e4), math.log),
    "log2": (2.0, (1.2e-38, 1.0e4), math.log2),
    "log1p": (3.0, (-0.99, 1.0e4), math.log1p),
    "expm1": (6.0, (-20.0, 80.0), math.expm1),
}
SPECIAL = {
    "exp": [
        (-np.inf, 0.0),
        (np.inf, np.inf),
        (-200.0, 0.0),
        (200.0, np.inf),
        (np.nan, np.nan),
        (-103.0, math.exp(-103.0)),
    ],
    "exp2": [(-np.inf, 0.0), (np.inf, np.inf), (300.0, np.inf), (np.nan, np.nan)],
    "sin": [(0.0, 0.0), (np.inf, np.nan), (np.nan, np.nan)],
    "cos": [(0.0, 1.0), (-np.inf, np.nan)],
    "tanh": [(np.inf, 1.0), (-np.inf, -1.0), (np.nan, np.nan)],
    "erf": [(np.inf, 1.0), (-np.inf, -1.0), (np.nan, np.nan)],
    "log": [(0.0, -np.inf), (np.inf, np.inf), (-1.0, np.nan)],
}
COUNT = 20003  # no multiple of any vector length

MODULE = """func.func @apply(%x: tensor<?xf32>) -> tensor<?xf32> {{
  %c0 = arith.constant 0 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %empty = tensor.empty(%n) : tensor<?xf32>
  %y = linalg.map {{ math.{name} }} ins(%x : tensor<?xf32>) outs(%empty : tensor<?xf32>)
  return %y : tensor<?xf32>
}}
"""


def apply(folder, name, target, x):
    module, source, result = folder / "apply.mlir", folder / "x.npy", folder / "y.npy"
    module.write_text(MODULE.format(name=name))
    np.save(source, x)
    subprocess.run(["saccade-run", module, f"--arg={source}", f"--out={result}", f"--target={target}"], check=True)
    return np.load(result)


def arguments(name, seed):
    low, high = FUNCTIONS[name][1]
    random = np.random.default_rng(seed)
    even = random.uniform(low, high, COUNT // 2)
    # Near zero the relative error is what matters.
    small = 10.0 ** random.uniform(-30, math.log10(high), COUNT - COUNT // 2)
    if low < 0:
        small *= random.choice([-1.0, 1.0], small.size)
    return np.concatenate([even, small.clip(low, high)]).astype(np.float32)


def main():
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        for target in ["host", "portable"]:
            for name, (allowed, _, exact) in FUNCTIONS.items():
                x = arguments(name, seed=len(name))
                special = SPECIAL.get(name, [])
                given = np.array([value for value, _ in special], np.float32)
                y = apply(pathlib.Path(folder), name, target, np.concatenate([x, given]))
                want = np.array([exact(float(value)) for value in x])
                error = np.abs(y[: x.size].astype(np.float64) - want) / np.spacing(np.abs(want).astype(np.float32))
                worst = int(np.argmax(error))
                print(f"{target} {name}: {error[worst]:.2f} units at {x[worst]!r}")
                failures += not error[worst] <= allowed
                for (value, expected), got in zip(special, y[x.size :]):
                    if not np.isclose(got, expected, rtol=1e-6, atol=1e-44, equal_nan=True):
                        print(f"  {name}({value}) is {got}, expected {expected}")
                        failures += 1
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
