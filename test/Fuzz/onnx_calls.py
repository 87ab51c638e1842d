#!/usr/bin/env python3
# REQUIRES: onnx
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 400 --cover 56
"""Random nodes of ONNX's Attention, compiled, against ONNX's reference evaluator and the operator's function body in float64.

Usage: onnx_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage]
Types, ranks, heads, caches, lengths, masks of every rank and length, causal masks, windows, soft-caps, scales and modes of the
score output follow from the seed. A node with symbolic extents is compiled once and called with eight shapes. Rows of masks are
shifted by up to the lowest float. All outputs are compared, those that are not finite too.
docs/guides/onnx.md has the differences that are deliberate. The line that repeats a failure is printed.
"""

import pathlib
import sys

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
import ml_dtypes
from onnx_call import OPSET_OF_PADDING, TYPES, Call
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

from saccade.onnx import backend

VARIANTS = 8  # of a node with symbolic extents, which is compiled once
# Errors of a score, in units of its size and of the terms of its sum. Scores are f32, or f64.
ROUNDINGS = 8
# From this error of scores on, weights are unknown: the output is only a mean of values.
UNKNOWN = 0.25


class Rows:
    """What bounds the error of a call's rows: scores, bias, weights, values, in float64."""

    def __init__(self, call, arrays):
        heads = lambda x, count: x if call.rank == 4 else x.reshape(*x.shape[:2], count, -1).transpose(0, 2, 1, 3)
        wide = {name: np.asarray(each, np.float64) for name, each in arrays.items()}
        q = heads(wide["q"], call.kv_heads * call.group)
        k, v = (heads(wide[name], call.kv_heads) for name in "kv")
        if "pk" in arrays:
            k, v = (np.concatenate([wide[past], new], axis=2) for past, new in (("pk", k), ("pv", v)))
        self.key, self.value = k, v
        k, self.values = (np.repeat(each, call.group, axis=1) for each in (k, v))
        scale = call.exact_scale
        raw = scale * q @ k.transpose(0, 1, 3, 2)
        self.terms = scale * np.abs(q) @ np.abs(k).transpose(0, 1, 3, 2)
        self.scores = call.softcap * np.tanh(raw / call.softcap) if call.softcap else raw
        self.bias = call.bias(arrays, raw.shape)
        self.epsilon = np.finfo(np.float64 if call.type == "f64" else np.float32).eps
        # As compiled code adds them: the sum is rounded to the type of scores.
        narrow = np.float64 if call.type == "f64" else np.float32
        with np.errstate(all="ignore"):
            total = (self.scores.astype(narrow) + self.bias.astype(narrow)).astype(np.float64)
        self.weights = softmax(total)
        self.rounded = self.weights @ self.values
        inner = ROUNDINGS * self.epsilon * (self.terms + np.abs(self.scores) + 1)
        size = np.where(np.isfinite(self.bias), np.abs(self.bias), 0)
        self.inner, self.outer = inner, 2 * self.epsilon * size


def softmax(scores):
    """The weights; 0 for a row without keys."""
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = powers.sum(axis=-1, keepdims=True)
    return powers / np.where(total == 0, 1, total)


def compare_weighted(what, call, found, exact, rounded, rows, of):
    """Compares Σ p `of`, where `of` are values, or the unit for weights themselves."""
    found = found.astype(np.float64)
    if not np.isfinite(found).all():
        return f"{what} is not finite"
    eps = float(ml_dtypes.finfo(TYPES[call.type]).eps)
    tiny = float(ml_dtypes.finfo(TYPES[call.type]).smallest_subnormal)
    has_weight = rows.weights > 0
    worst_inner = np.where(has_weight, rows.inner, 0).max(axis=-1, keepdims=True, initial=0)
    worst = np.where(has_weight, rows.inner + rows.outer, 0).max(axis=-1, keepdims=True, initial=0)
    terms = of(rows.weights)
    hull = of(np.where(has_weight, 1.0, 0.0), largest=True)
    base = 3 * eps * terms + 2 * tiny + 16 * rows.epsilon * hull
    bound = base + 2 * np.expm1(np.minimum(2 * worst, 1)) * hull
    near = np.abs(found - exact) <= bound
    # Where the sum with the mask absorbs the score, weights are those of equal scores.
    absorbed = np.abs(found - rounded) <= base + 2 * np.expm1(np.minimum(2 * worst_inner, 1)) * hull
    unknown = (worst > UNKNOWN) & (np.abs(found) <= hull * (1 + 4 * eps) + tiny)
    absorbs = (rows.outer > 64 * np.abs(rows.scores)).all(axis=-1, keepdims=True) | ~has_weight.any(axis=-1, keepdims=True)
    agrees = near & (worst <= UNKNOWN) | absorbed | unknown & ~absorbs
    if agrees.all():
        return None
    at = np.unravel_index(np.argmin(agrees), agrees.shape)
    return f"{what} at {[int(i) for i in at]} is {found[at]:.7g}, expected {exact[at]:.7g} (rounded scores: {rounded[at]:.7g})"


def compare_scores(call, found, exact, rows):
    """Compares the score output of modes 0 to 2."""
    with np.errstate(over="ignore"):
        expected = exact.astype(TYPES[call.type]).astype(np.float64)
    found = found.astype(np.float64)
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "the scores differ in NaN or Inf"
    eps = float(ml_dtypes.finfo(TYPES[call.type]).eps)
    tiny = float(ml_dtypes.finfo(TYPES[call.type]).smallest_subnormal)
    size = np.where(finite, np.abs(expected), 0)
    allowed = (rows.inner + 2 * max(eps, rows.epsilon) * size + tiny)[finite]
    wrong = np.abs(found[finite] - expected[finite]) - allowed
    return f"the scores are off by {wrong.max():.3g} more than allowed" if (wrong > 0).any() else None


def check_body(call, arrays, exact):
    """Whether ONNX's function body and its reference evaluator agree, as they have to for one of them to be the reference."""
    is_short = "m" in arrays and arrays["m"].shape[-1] != exact["keys"]
    if "" in call.node(list(arrays), ["y"]).input or (
            call.opset < OPSET_OF_PADDING and is_short and arrays["m"].shape[-1] != 1):
        return None  # ONNX's inliner does not expand these, and the body refuses short masks in operator set 23
    body = call.reference(arrays, expands=True)
    for name, each in body.items():
        if not np.allclose(each, exact[name], rtol=1e-5, atol=1e-5, equal_nan=True):
            return f"ONNX's function body and reference evaluator differ in {name}"
    return None


def check(call, model, arrays, checks_body=True):
    """None, or what is wrong with the results."""
    rows = Rows(call, arrays)
    given = call.follows_body(arrays)
    exact = call.reference(given) | {"keys": rows.scores.shape[-1]}
    if call.mode == 0 and call.softcap:  # the reference evaluator gives soft-capped scores; function body: raw ones
        exact["s"] = call.reference(given, softcap=0.0)["s"]
    results = dict(zip([name for name in call.outputs if name], model.run(arrays)))
    for name, each in results.items():
        if each.dtype != TYPES[call.type] or each.shape != exact[name].shape:
            return f"{name} is {each.dtype}{each.shape}, expected {TYPES[call.type].__name__}{exact[name].shape}"
    if call.gives_present:
        for name, expected in (("key", rows.key), ("value", rows.value)):
            if not np.array_equal(results[name].astype(np.float64), expected):
                return f"the present {name} differs"

    def of_values(weights, largest=False):
        weighted = weights @ np.abs(rows.values) if not largest else np.where(
            weights[..., None] > 0, np.abs(rows.values)[:, :, None], 0).max(axis=-2, initial=0)
        return weighted

    split = lambda y: y if call.rank == 4 else y.reshape(*y.shape[:2], call.kv_heads * call.group, -1).transpose(0, 2, 1, 3)
    wrong = compare_weighted("the output", call, split(results["y"]), split(exact["y"]), rows.rounded, rows, of_values)
    if not wrong and call.mode == 3:
        wrong = compare_weighted("the weights", call, results["s"], exact["s"], rows.weights, rows, lambda w, largest=False: w if not largest else np.ones_like(w))
    elif not wrong and call.mode is not None:
        wrong = compare_scores(call, results["s"], exact["s"], rows)
    return wrong or (check_body(call, arrays, exact) if checks_body else None)


def main():
    args = seed_options(__doc__, count=300).parse_args()
    seeds = chosen_seeds(args, lambda seed: Call(seed).features)
    calls = 0

    def check_node(_, call):
        nonlocal calls
        model = None
        for variant in range(VARIANTS if call.is_dynamic else 1):
            arrays = call.arrays(variant)
            model = model or backend.prepare(call.model(arrays))
            calls += 1
            if wrong := check(call, model, arrays, checks_body=variant == 0):
                return f"call {variant}: {wrong}"
        return None

    failures = run_calls(__file__, args, seeds, Call, check_node)
    print(f"{len(seeds)} nodes, {calls} calls, {failures} failures")
    if args.coverage:
        print_coverage([Call(seed).features for seed in seeds])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
