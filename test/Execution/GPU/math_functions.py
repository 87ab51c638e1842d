#!/usr/bin/env python3
# REQUIRES: numpy, libdevice
# RUN: %python %s
"""f32 and f64 math functions in GPU kernels are accurate to a few ulp.

One program per type runs on PtxSim. f64 is compared with the C library, which is accurate to one ulp.
"""

import math
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

# Maximum ulp error for f32 and f64, and the range of the arguments.
FUNCTIONS = {
    "exp": (3, 3, -80, 80), "exp2": (4, 3, -120, 120), "expm1": (6, 4, -20, 80), "log": (3, 3, 1e-30, 1e4),
    "log2": (5, 3, 1e-30, 1e4), "log10": (5, 3, 1e-30, 1e4), "log1p": (4, 3, -0.99, 1e4), "sin": (3, 3, -100, 100),
    "cos": (3, 3, -100, 100), "tan": (5, 4, -100, 100), "asin": (4, 4, -1, 1), "acos": (4, 4, -1, 1),
    "atan": (4, 4, -50, 50), "sinh": (5, 4, -80, 80), "cosh": (4, 4, -80, 80), "tanh": (6, 4, -10, 10),
    "erf": (6, 4, -4, 4), "erfc": (8, 8, -4, 4), "cbrt": (3, 3, -50, 50), "rsqrt": (4, 4, 1e-3, 1e4),
    "sqrt": (1, 1, 0, 1e4), "asinh": (4, 4, -1e3, 1e3), "acosh": (4, 4, 1, 1e3), "atanh": (4, 4, -0.99, 0.99),
}
# Two arguments. A remainder is exact even if the quotient has more bits than the type.
PAIRS = {"powf": (8, 4, 0.01, 10), "atan2": (5, 4, -5, 5), "remf": (0, 0, 1e-3, 1e9)}
EXACT = {"exp2": lambda x: 2.0**x, "rsqrt": lambda x: 1 / math.sqrt(x),
         "cbrt": lambda x: math.copysign(abs(x)**(1 / 3), x), "powf": math.pow, "remf": math.fmod}
# Beyond what a reduction by a product holds.
LARGE = [1e6, -3e9, 1e15, 1e22]
COUNT = 96


def program(dtype):
    """One result per function, in the order of the tables."""
    tensor, results, lines = f"tensor<{COUNT}x{dtype}>", [], []
    names = list(FUNCTIONS) + list(PAIRS)
    for i, name in enumerate(names):
        operands = f"%x{i}, %y{i}" if name in PAIRS else f"%x{i}"
        values = "%a, %b" if name in PAIRS else "%a"
        types = ", ".join([tensor] * (1 + (name in PAIRS)))
        body = ", ".join(f"{value}: {dtype}" for value in values.split(", "))
        dialect = "arith" if name == "remf" else "math"
        lines.append(f"  %e{i} = tensor.empty() : {tensor}\n"
                     f"  %r{i} = linalg.map ins({operands} : {types}) outs(%e{i} : {tensor})\n"
                     f"    ({body}{', %u: ' + dtype}) {{\n"
                     f"      %v = {dialect}.{name} {values} : {dtype}\n      linalg.yield %v : {dtype}\n    }}\n")
        results.append(f"%r{i}")
    arguments = ", ".join(f"%{v}{i}: {tensor}" for i, name in enumerate(names)
                          for v in ("xy" if name in PAIRS else "x"))
    return (f"func.func @apply({arguments}) -> ({', '.join([tensor] * len(results))}) {{\n{''.join(lines)}"
            f"  return {', '.join(results)} : {', '.join([tensor] * len(results))}\n}}\n")


def errors(found, expected):
    """Errors in ulp of the type; infinite for a wrong infinity or NaN."""
    unit = np.spacing(np.abs(expected).astype(found.dtype)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(expected), np.abs(found.astype(np.float64) - expected) / unit, np.inf)


def main():
    rng, failures = np.random.default_rng(7), 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for column, (name, dtype) in enumerate([("f32", np.float32), ("f64", np.float64)]):
            module, command, inputs = folder / f"{name}.mlir", [], []
            module.write_text(program(name))
            for function, (*_, low, high) in (FUNCTIONS | PAIRS).items():
                operands = [rng.uniform(low, high, COUNT).astype(dtype) for _ in range(1 + (function in PAIRS))]
                if function in ("sin", "cos", "tan"):
                    operands[0][:len(LARGE)] = LARGE
                if function == "remf":
                    operands[1] = rng.uniform(0.1, 10, COUNT).astype(dtype)
                inputs.append(operands)
                for operand in operands:
                    file = folder / f"in-{len(command)}.npy"
                    np.save(file, operand)
                    command.append(f"--arg={file}")
            outputs = [folder / f"out-{i}.npy" for i in range(len(inputs))]
            subprocess.run(["saccade-run", module, "--device=ptxsim", *command, *(f"--out={out}" for out in outputs)],
                           check=True)
            for (function, row), operands, out in zip((FUNCTIONS | PAIRS).items(), inputs, outputs):
                exact = EXACT.get(function) or getattr(math, function)
                expected = np.array([exact(*map(float, values)) for values in zip(*operands)])
                worst = errors(np.load(out), expected).max()
                if not worst <= row[column]:
                    failures += 1
                    print(f"{function} of {name}: {worst:.2f} units in the last place, {row[column]} allowed")
    return failures


if __name__ == "__main__":
    sys.exit(main())
