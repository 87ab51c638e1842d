#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --models
# RUN: %python %s --first-seed 23 --count 2 --gradients
# RUN: %python %s --first-seed 26 --count 1 --gradients
"""Linear attention on the GPU simulator, against the float64 reference and against formulas in NumPy.

Usage: linear_cases.py [--models | --gradients] [--first-seed N] [--count N] [--seed N] [--target NAME] [--keep FOLDER]
Random cases are those of linear_graphs.py with the sizes of GPU kernels: head sizes up to 128, also ones that are no multiples
of a tensor-core tile, chunks around 64 positions, 16-bit and 32-bit elements. With --gradients, gradients as well. The
reference reads inputs as they are rounded. With --models, recurrences of models in bf16 against their formulas. Kernels of
bf16 with a chunk must use tensor cores, and kernels of f32 must not.
"""

import argparse
import pathlib
import random
import re
import subprocess
import sys
import tempfile

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Fuzz"))
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Fuzz" / "Inputs"))
from linear_graphs import Graph, run
from recurrences import RECURRENCES, Sizes


class Case(Graph):
    elements = ["bf16"] * 4 + ["f16", "f32"]
    depths = [8, 16, 40, 64, 64, 96, 128]
    batches = [1, 1, 2]
    lengths = [1, 8, 9, 63, 64, 65, 130]


# Gated delta rule, a decay of heads that share keys, and one of rows.
MODELS = ["gated_deltanet", "mamba2", "kda", "retnet"]


def bf16(x):
    """x rounded to bf16, in f32."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32)


def program(arrays, numbers, heads):
    """attn.linear on [b,h,s,d] operands of bf16, gates and states of f32, with a final state."""
    q, k, v = (arrays[name] for name in "qkv")

    def kind(x, element):
        return f"tensor<{x.shape[0]}x{x.shape[1]}x?x{x.shape[3]}x{element}>"

    types = [kind(x, "bf16") for x in (q, k, v)]
    clauses, names = ["causal"], [f"%{name}: {type}" for name, type in zip("qkv", types)]
    if "l2norm" in numbers:
        clauses.append(f"l2norm({numbers['l2norm']:.9e})")
    if "scale" in numbers:
        clauses.append(f"scale({numbers['scale']:.9e})")
    for name in ("decay", "beta"):
        if name in arrays:
            x = arrays[name]
            dims = {1: "h", 3: "b,h,s", 4: "b,h,s,d"}[x.ndim]
            shape = [str(n) for n in x.shape]
            if x.ndim > 1:
                shape[2] = "?"
            type = f"tensor<{'x'.join(shape)}xf32>"
            names.append(f"%{name}: {type}")
            clauses.append(f"{name}(%{name}[{dims}] : {type})")
    state = f"tensor<{v.shape[0]}x{heads}x{k.shape[3]}x{v.shape[3]}xf32>"
    names.append(f"%state: {state}")
    clauses.append(f"state(%state : {state})")
    output = kind(v, "f32")
    return (f"func.func @f({', '.join(names)}) -> ({output}, {state}) {{\n"
            f"  %o, %s = attn.linear %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] {' '.join(clauses)}\n"
            f"    : ({', '.join(types)}) -> ({output}, {state})\n  return %o, %s : {output}, {state}\n}}\n")  # fmt: skip


def error_of(found, expected):
    return np.linalg.norm(found - expected) / max(np.linalg.norm(expected), 1e-30)


def check_model(name, length, sizes, folder, target):
    """The failure of a recurrence, or None."""
    recurrence, rng = RECURRENCES[name], np.random.default_rng(length + 17)
    inputs = recurrence.draw(rng, Sizes(1, sizes["heads"], sizes["key_heads"], length, sizes["depth"], sizes["width"]), 5)
    # Operands are rounded before the formula reads them, gates to f32.
    inputs = {key: bf16(x) if x.ndim == 4 and key in "qkvxBC" else np.asarray(x, np.float32) for key, x in inputs.items()}
    state = np.asarray(rng.standard_normal((1, sizes["heads"], sizes["depth"], sizes["width"])), np.float32)
    wide = {key: x.astype(float) for key, x in inputs.items()}
    expected, after = recurrence.formula(wide, state.astype(float))
    q, k, v, options = recurrence.arguments(wide)
    arrays = {"q": q, "k": k, "v": v} | {key: options[key] for key in ("decay", "beta") if key in options}
    numbers = {key: options[key] for key in ("scale", "l2norm") if key in options}
    (folder / "model.mlir").write_text(program(arrays, numbers, sizes["heads"]))
    line = ["saccade-run", str(folder / "model.mlir"), "--entry=f", "--device=ptxsim", f"--target={target}", "--explain"]
    for key, x in [*arrays.items(), ("state", state)]:
        np.save(folder / f"{key}.npy", np.asarray(x, np.float32))
        line.append(f"--arg={folder / f'{key}.npy'}:{'bf16' if key in 'qkv' else 'f32'}")
    outputs = [folder / "o.npy", folder / "s.npy"]
    done = subprocess.run([*line, *[f"--out={file}" for file in outputs]], capture_output=True, text=True)
    if done.returncode != 0:
        return f"exit code {done.returncode}\n{(done.stdout + done.stderr)[:1500]}"
    for what, file, exact in zip(("output", "state"), outputs, (expected, after)):
        if not error_of(np.load(file), exact) < 2e-2:
            return f"the {what} has a relative error of {error_of(np.load(file), exact)}"
    return wrong_kernels(done.stdout + done.stderr, length > 8)


def wrong_kernels(text, uses_tensor_cores):
    """What is wrong with the kernels that ran, or None."""
    ran = re.findall(r"(\w+): kernel family ([^\n]*), ran (\d+) CTAs?, \d+ instructions of warps(?:, (\d+) of them mma)?", text)
    chunks = [(name, family, int(count or 0)) for name, family, ctas, count in ran
              if re.search(r"linear_attention\w*_(chunks|columns)$", name) and int(ctas) > 0]
    if not chunks:
        return f"no kernels of chunks in\n{text[:1500]}"
    for name, family, count in chunks:
        if uses_tensor_cores and not (family.startswith("sm_80, matmul") and count > 0):
            return f"{name}: family {family}, {count} mma"
        if not uses_tensor_cores and count > 0:
            return f"{name}: {count} mma"
    return None


def models(target, keep):
    failures = []
    shapes = [{"heads": 2, "key_heads": 1, "depth": 64, "width": 64}, {"heads": 1, "key_heads": 1, "depth": 128, "width": 128},
              {"heads": 1, "key_heads": 1, "depth": 40, "width": 72}]  # fmt: skip
    rng = random.Random(target)
    for number, (name, length) in enumerate([(name, length) for name in MODELS for length in (1, 63, 64, 65, 130)]):
        # Each model has each length, with one of the shapes in turn.
        sizes = shapes[(number + rng.randrange(3)) % len(shapes)]
        folder = keep / f"{name}-{length}"
        folder.mkdir(parents=True, exist_ok=True)
        failure = check_model(name, length, sizes, folder, target)
        if failure:
            failures.append(f"{name}, length {length}, {sizes}: {failure}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, help="only this one, and show the module")
    parser.add_argument("--models", action="store_true")
    parser.add_argument("--gradients", action="store_true")
    parser.add_argument("--target", default="sm_80")
    parser.add_argument("--keep", type=pathlib.Path, default=pathlib.Path(tempfile.gettempdir()) / "saccade-linear-gpu")
    args = parser.parse_args()
    if args.models:
        failures = models(args.target, args.keep / args.target)
    else:
        seeds = range(args.first_seed, args.first_seed + args.count) if args.seed is None else [args.seed]
        command = ["saccade-run", "--device=ptxsim", f"--target={args.target}"]
        cases = [Case(seed, args.gradients) for seed in seeds]
        if args.seed is not None:
            print(cases[0].text)
        found = [run(case, command, args.keep / f"{args.target}-{case.seed}", args.gradients, difference=False) for case in cases]
        failures = [failure for failure in found if failure]
    print("\n".join(failures) or "none failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
