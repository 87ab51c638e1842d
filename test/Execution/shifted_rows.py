#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --device cpu --v4=%{v4}
# RUN: %python %s --device ptxsim
"""Results and derivatives of rows whose scores are far from 0, against NumPy in float64.

Usage: shifted_rows.py [--device cpu|ptxsim] [--v4 TARGET] [--only TEXT] [--shift NUMBER]

Models hide keys by adding -1e4, -1e9 or the lowest float, sometimes on all keys of a row. One number per row then does not
hold the log-sum-exp: the weights of a gradient had the number of keys as their sum. Every row of a case has another shift. Queries
and keys are orthogonal, and a table holds the scores, so these are exact in every precision and the comparison is tight. The
tolerance rule of saccade-run would permit everything here, since it counts the rounding of scores.
"""

import argparse
import dataclasses
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

LOWEST = -float(np.finfo(np.float32).max)
SHIFTS = [0.0, -1e4, 1e4, -65504.0, -1e6, -1e7, 3e7, -1e9, 1e9, -1e30, 1e30, LOWEST]
ALLOWED = {"f64": 1e-12, "f32": 4e-6, "f16": 4e-3, "bf16": 3e-2}


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    element: str
    target: str
    queries: int = 36
    keys: int = 150
    depth: int = 64
    heads: int = 2
    kv_heads: int = 1
    mask: str = ""
    sink: bool = False
    lse_gradient: bool = False
    ragged: bool = False
    tangents: bool = False
    weight: str = ""
    family: str = ""


def cases(device, v4="v4"):
    """The cases of a device, with this target for most of them."""
    if device == "ptxsim":
        for target in ("sm_80", "sm_90a"):
            for element in ("f16", "bf16"):
                plain = Case(f"{element}", element, target, family=target)
                yield plain
                yield dataclasses.replace(plain, name=f"{element} causal", mask="mask causal<bottom_right>")
            yield Case("bf16 sink", "bf16", target, sink=True, family=target)
            yield Case("bf16 split-KV", "bf16", target, queries=5, keys=700, family=f"{target}, split-KV")
            yield Case("bf16 split-KV sink", "bf16", target, queries=3, keys=700, sink=True, family=f"{target}, split-KV")
            yield Case("f32", "f32", target, queries=24, keys=70, depth=16, family="simt")
            yield Case("f32 split-KV sink", "f32", target, queries=3, keys=500, depth=16, sink=True, family="simt, split-KV")
            yield Case("f32 weights", "f32", target, queries=12, keys=70, depth=16, weight=KEEP, family="simt")
        return
    elements = {"portable": ["f32", "f64"], "v3": ["f32", "f16"], v4: ["f32", "f16", "bf16", "f64"],
                "v4-bf16-expanded": ["bf16"], "v4-amx-expanded": ["f16", "bf16"]}  # fmt: skip
    for target, named in elements.items():
        for element in named:
            yield Case(f"{element} long causal sink", element, target, queries=60, keys=1200, mask="mask causal<bottom_right>",
                       sink=True)
    for element in elements[v4]:
        yield Case(f"{element} short query", element, v4, queries=4, keys=1500, sink=element == "f32")
    yield Case("bf16 short query", "bf16", "v4-amx-expanded", queries=4, keys=1500, sink=True)
    yield Case("f32", "f32", v4)
    yield Case("f32 log-sum-exp", "f32", v4, lse_gradient=True)
    yield Case("f32 one key", "f32", v4, keys=1)
    yield Case("f32 ragged", "f32", v4, ragged=True)
    yield Case("f32 tangents", "f32", v4, tangents=True)
    yield Case("bf16 tangents sink", "bf16", v4, tangents=True, sink=True)
    yield Case("f64 tangents", "f64", "portable", tangents=True)
    yield Case("f32 weights", "f32", v4, weight=KEEP)
    yield Case("f32 split-KV weights", "f32", v4, queries=4, keys=1500, weight=KEEP)
    yield Case("f32 windows", "f32", "v3", mask="mask window<40, 3>")


# Keeps every second weight, so that the weight region is not the identity, and is proportional to the weight.
KEEP = """weight(%p: SCORE, %b, %h, %i, %j, %t) {
      %two = arith.constant 2 : index
      %odd = arith.remui %j, %two : index
      %zero = arith.constant 0 : index
      %keeps = arith.cmpi eq, %odd, %zero : index
      %none = arith.constant 0.0 : SCORE
      %kept = arith.select %keeps, %p, %none : SCORE
      attn.yield %kept : SCORE
    }"""


def program(case):
    score = "f64" if case.element == "f64" else "f32"

    def tensor(heads, depth):
        return f"tensor<{heads}x?x{depth}x{case.element}>"

    q, k, rows = tensor(case.heads, case.depth), tensor(case.kv_heads, case.depth), f"tensor<{case.heads}x?x{score}>"
    sink = [f"sink(%sink : tensor<{case.heads}x{score}>)"] if case.sink else []
    lengths = ["cu_seqlens_q(%cu : tensor<?xi32>) cu_seqlens_k(%cu : tensor<?xi32>)"] if case.ragged else []
    arguments = [f"%q: {q}", f"%k: {k}", f"%v: {k}", f"%t: tensor<?x?x{score}>"]
    arguments += [f"%sink: tensor<{case.heads}x{score}>"] if case.sink else []
    arguments += ["%cu: tensor<?xi32>"] if case.ragged else []
    results = [q, rows] if case.lse_gradient else [q]
    attribute = "attn.jvp" if case.tangents else "attn.gradient"
    return f"""
func.func @f({", ".join(arguments)}) -> ({", ".join(results)}) attributes {{{attribute}}} {{
  %o{":2" if case.lse_gradient else ""} = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] captures(%t : tensor<?x?x{score}>)
    {" ".join(lengths + sink)} {case.mask}
    score(%s: {score}, %b, %h, %i, %j, %t) {{
      %x = tensor.extract %t[%i, %j] : tensor<?x?x{score}>
      %r = arith.addf %s, %x : {score}
      attn.yield %r : {score}
    }} {case.weight.replace("SCORE", score)} {"lse" if case.lse_gradient else ""}
    : ({q}, {k}, {k}) -> {"(" + ", ".join(results) + ")"}
  return {"%o#0, %o#1" if case.lse_gradient else "%o"} : {", ".join(results)}
}}
"""


class Reference:
    """The case in float64."""

    def __init__(self, case, shifts):
        self.case, rng = case, np.random.default_rng(len(case.name))
        single = np.float64 if case.element == "f64" else np.float32

        def draw(heads, count):
            return rng.integers(-8, 9, (heads, count, case.depth)) / 8

        self.q, self.k, self.v = draw(case.heads, case.queries), draw(case.kv_heads, case.keys), draw(case.kv_heads, case.keys)
        self.q[..., case.depth // 2:] = self.k[..., : case.depth // 2] = 0  # scores are those of the table
        shift = np.resize(single(shifts), (case.queries, 1))
        # Distances are multiples of the unit in the last place of the shift, which all precisions represent.
        unit = np.maximum(np.spacing(np.abs(shift / 2)) * 2, single(1) / 16)
        steps = rng.integers(-40, 1, (case.queries, case.keys)) * rng.choice([0, 1], (case.queries, 1))
        with np.errstate(over="ignore"):
            table = shift + steps.astype(single) * unit
        self.table = np.where(np.isfinite(table), table, shift).astype(single)
        self.sink = np.resize(single([shifts[-1], -3, -1e9]), case.heads) if case.sink else None
        self.cu = np.int32([0, 0, case.queries // 3, case.queries]) if case.ragged else None
        self.gradient = draw(case.heads, case.queries)
        self.lse_gradient = rng.integers(-8, 9, (case.heads, case.queries)) / 8

    def visible(self):
        case = self.case
        i, j = np.arange(case.queries)[:, None], np.arange(case.keys)[None]
        if "causal" in case.mask:
            return j <= i + case.keys - case.queries
        if "window" in case.mask:
            return (j >= i - 40) & (j <= i + 3)
        return np.ones((case.queries, case.keys), bool)

    def run(self):
        """Weights, their factors of values, output and log-sum-exp."""
        case = self.case
        table = np.broadcast_to(self.table.astype(np.float64), (case.heads, case.queries, case.keys))
        scores = np.where(self.visible(), table, -np.inf)
        if case.ragged:
            scores = np.full_like(scores, -np.inf)
            for first, end in zip(self.cu, self.cu[1:]):
                # Positions, with which the table is read, are relative to the sequence.
                scores[:, first:end, first:end] = table[:, : end - first, : end - first]
        largest = scores.max(-1, keepdims=True)
        if case.sink:
            largest = np.maximum(largest, self.sink[:, None, None].astype(np.float64))
        finite = np.where(np.isinf(largest), 0, largest)
        weights = np.exp(scores - finite)
        total = weights.sum(-1, keepdims=True)
        if case.sink:
            total += np.exp(self.sink[:, None, None].astype(np.float64) - finite)
        self.total, self.largest = total, finite
        weights = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
        keep = (np.arange(case.keys) % 2 == 0 if case.weight else np.ones(case.keys))[None, None]
        return weights, keep, (weights * keep) @ self.of_heads(self.v)

    def of_heads(self, x):
        return np.repeat(x, self.case.heads // self.case.kv_heads, 0)

    def of_group(self, x):
        return x.reshape(self.case.kv_heads, -1, *x.shape[1:]).sum(1)

    def gradients(self):
        """Names and gradients of the arguments."""
        case = self.case
        weights, keep, output = self.run()
        of_weights = keep * (self.gradient @ self.of_heads(self.v).swapaxes(-1, -2))
        delta = (self.gradient * output).sum(-1, keepdims=True)
        if case.lse_gradient:
            delta -= self.lse_gradient[..., None]
        scores = weights * (of_weights - delta)
        scale = case.depth**-0.5
        found = {"q": scores @ self.of_heads(self.k) * scale,
                 "k": self.of_group(scores.swapaxes(-1, -2) @ self.q) * scale,
                 "v": self.of_group((weights * keep).swapaxes(-1, -2) @ self.gradient)}
        if not case.ragged:
            found["t"] = scores.sum(0)
        if case.sink:
            of_sink = np.exp(self.sink[:, None, None].astype(np.float64) - self.largest) / self.total
            found["sink"] = -(of_sink * delta).sum((1, 2))
        return found

    def tangent(self):
        """The tangent of the output for tangents of q, k, v and the table that are other arguments: v, and ones."""
        weights, _, _ = self.run()
        scale = self.case.depth**-0.5
        k = self.of_heads(self.k)
        scores = (self.q_tangent @ k.swapaxes(-1, -2) + self.q @ self.of_heads(self.k_tangent).swapaxes(-1, -2)) * scale
        scores = scores + self.t_tangent
        row = (weights * scores).sum(-1, keepdims=True)
        if self.case.sink:
            row += np.exp(self.sink[:, None, None].astype(np.float64) - self.largest) / self.total * self.sink_tangent[:, None, None]
        change = weights * (scores - row)
        return change @ self.of_heads(self.v) + weights @ self.of_heads(self.v_tangent)


def execute(*line):
    done = subprocess.run(["saccade-run", *map(str, line)], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stdout + done.stderr)
    return done.stdout + done.stderr


def check(case, device, folder, shifts):
    """The failures of a case, as lines."""
    reference = Reference(case, shifts)
    path = folder / "program.mlir"
    path.write_text(program(case))
    is_half = case.element in ("f16", "bf16")
    suffix = f":{case.element}" if is_half else ""

    def argument(name, array, narrow=True):
        file = folder / f"{name}.npy"
        double = case.element == "f64" and array.dtype != np.int32
        np.save(file, array if array.dtype == np.int32 else array.astype(np.float64 if double else np.float32))
        return f"--arg={file}{suffix if narrow else ''}"

    given = [argument(name, getattr(reference, name)) for name in "qkv"] + [argument("t", reference.table, False)]
    given += [argument("sink", reference.sink, False)] if case.sink else []
    given += [argument("cu", reference.cu, False)] if case.ragged else []
    common = [path, f"--target={case.target}", *(["--device=ptxsim"] if device == "ptxsim" else [])]
    failures = []

    def compare(name, found, expected):
        found = found.astype(np.float64)
        size = max(1.0, np.abs(expected).max())
        error = np.abs(found - expected)
        error = np.where(np.isfinite(found), error, np.inf).max(initial=0)
        if not error <= ALLOWED[case.element] * size * (2 if case.keys > 1000 else 1):
            failures.append(f"{case.target} {case.name}: {name}: error {error:.3g} of {size:.3g}")

    if case.tangents:
        rng = np.random.default_rng(3)
        tangents = []
        for name in ("q", "k", "v", "t", *(["sink"] if case.sink else [])):
            array = reference.table if name == "t" else getattr(reference, name)
            tangent = rng.integers(-8, 9, array.shape) / 8
            setattr(reference, f"{name}_tangent", tangent)
            tangents.append(argument(f"{name}_tangent", tangent, name in "qkv"))
        files = [folder / "value.npy", folder / "tangent.npy"]
        execute(*common, "--entry=f_jvp", *given, *tangents, *[f"--out={file}" for file in files])
        compare("tangent", np.load(files[1]), reference.tangent())
        return failures
    names = ["output", "lse", "low"]
    files = {name: folder / f"{name}.npy" for name in names}
    shown = execute(*common, "--entry=f", *given, *[f"--out={files[name]}" for name in names], "--explain")
    if case.family and f"kernel family {case.family}" not in shown:
        failures.append(f"{case.target} {case.name}: expected kernel family '{case.family}', found "
                        f"{re.findall('kernel family [^,]*[^.]*', shown)}")
    _, _, output = reference.run()
    compare("output", np.load(files["output"]), output)
    log = np.log(reference.total[..., 0], where=reference.total[..., 0] > 0, out=np.full(reference.total.shape[:2], -np.inf))
    high, low = (np.load(files[name]).astype(np.float64) for name in ("lse", "low"))
    is_row = np.isfinite(log)
    compare("log-sum-exp", np.where(is_row, (high - reference.largest[..., 0]) + low, 0), np.where(is_row, log, 0))
    expected = reference.gradients()
    results = {name: folder / f"{name}-gradient.npy" for name in expected}
    returned = [argument("do", reference.gradient)] + ([argument("dl", reference.lse_gradient, False)] if case.lse_gradient else [])
    given += [f"--arg={files['output']}{suffix}", f"--arg={files['lse']}", f"--arg={files['low']}", *returned]
    count = 4 + case.sink
    outs = [f"--out={results.get(name, folder / 'unused.npy')}" for name in ["q", "k", "v", "t", "sink"][:count]]
    execute(*common, "--entry=f_gradient", *given, *outs)
    for name, array in expected.items():
        compare(f"gradient of {name}", np.load(results[name]), array)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", choices=("cpu", "ptxsim"), default="cpu")
    parser.add_argument("--v4", default="v4", help="v4; v4-expanded means v3 for a processor without AVX-512")
    parser.add_argument("--only", default="", help="cases whose target and name contain this text")
    parser.add_argument("--shift", type=float, help="the shift of all rows; default: those of the script in turn")
    args = parser.parse_args()
    failures, count = [], 0
    for case in cases(args.device, "v3" if args.v4.endswith("-expanded") else args.v4):
        if args.only not in f"{case.target} {case.name}":
            continue
        count += 1
        with tempfile.TemporaryDirectory() as folder:
            try:
                failures += check(case, args.device, pathlib.Path(folder), SHIFTS if args.shift is None else [args.shift])
            except RuntimeError as error:
                failures.append(f"{case.target} {case.name}: {error}")
    print("\n".join(failures))
    print(f"{count} cases, {len(failures)} failures")
    return 1 if failures or not count else 0


if __name__ == "__main__":
    sys.exit(main())
