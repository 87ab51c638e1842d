#!/usr/bin/env python3
# REQUIRES: jax
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 160 --cover 3
# RUN: %python %s --first-seed 0 --count 160 --cover 4 --values 75
"""Random calls of saccade.jax.dot_product_attention against jax.nn.dot_product_attention.

Usage: jax_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--values N [--no-shifts]]
Types, heads, biases, masks, lengths, windows and `jit` or `vmap` follow from the seed. Every call is made again with
other lengths, batch and heads, which must not compile anything. The line that repeats a failure is printed.
With --values the calls of a seed are made N times with other numbers in float64 or float32, and the output, the residual and
the gradients of a random subset of the operands are compared with JAX's, whose softmax is then in float64, too. Biases and masks
hide all keys of some rows, in every combination, or shift a row by up to 1e30, which --no-shifts leaves out.
"""

import contextlib
import pathlib
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from jax_call import Call
from jax_values import difference, draw_values, exact_softmax
from seeds import chosen_seeds, print_coverage, seed_options

import saccade
import saccade.jax

jax.config.update("jax_enable_x64", True)

# JAX rounds the weights to the type of the values, and computes every softmax in f32.
JAX_FACTOR, FLOOR_FACTOR, SOFTMAX_ERROR = 2, 4, 1e-6


def compare(what, found, plain, exact):
    """None, or how far `found` is from `exact` beyond what JAX's result `plain` in the same type explains."""
    if found.shape != plain.shape or found.dtype != plain.dtype:
        return f"{what} is {found.dtype}{found.shape}, expected {plain.dtype}{plain.shape}"
    eps = float(jnp.finfo(found.dtype).eps)
    found, plain, exact = (np.asarray(x, np.float64) for x in (found, plain, exact))
    finite = np.isfinite(plain)
    if not np.array_equal(found[~finite], plain[~finite], equal_nan=True):
        return f"{what} differs in NaN or Inf"
    if not finite.any():
        return None
    largest = np.abs(exact[finite]).max()
    allowed = (JAX_FACTOR * np.abs(plain - exact)[finite].max() + FLOOR_FACTOR * eps * (largest + 0.3)
               + SOFTMAX_ERROR * largest)
    error = np.abs(found - exact)[finite].max()
    return None if error <= allowed else f"{what} is off by {error:.3g}, {allowed:.3g} allowed"


def check(call, variant):
    """None, or what is wrong with the call's results."""
    arrays, options = call.arguments(variant)
    found = call.run(saccade.jax.dot_product_attention, arrays, options)
    reference = jax.jit(lambda arrays: call.run(jax.nn.dot_product_attention, arrays, options))
    wide = {name: x.astype(jnp.float64) if jnp.issubdtype(x.dtype, jnp.floating) else x for name, x in arrays.items()}
    exact = reference(wide)
    # JAX 0.10 on a CPU has no product of f16 that jit could compile.
    narrow = lambda x: x.astype(jnp.float16)
    plain = jax.tree_util.tree_map(narrow, exact) if call.type == "f16" else reference(arrays)
    names = ("the output", "the residual") if call.return_residual else ("the output",)
    for name, *results in zip(names, *map(jax.tree_util.tree_leaves, (found, plain, exact))):
        if wrong := compare(name, *results):
            return wrong
    return None


# --- many values, with gradients --------------------------------------------------------------------------------------

TOLERANCE = {"f64": 1e-11, "f32": 3e-5}
ROUNDING = {"f64": 2.3e-16, "f32": 1.2e-7}


class Derived:
    """The call of a seed in float64 or float32, compiled once with its gradients, ours and JAX's."""

    def __init__(self, call):
        self.call = call
        call.type = "f64" if call.type not in ("f32", "f64") or call.seed % 4 else call.type
        call.bias_type = call.type  # gradients of a bias are rounded to its type
        call.mode = "jit" if call.mode == "eager" else call.mode
        self.arrays, self.options = call.arguments(0)
        draw = np.random.default_rng([call.seed, 7])
        names = [name for name in ("query", "key", "value", "bias") if name in self.arrays]
        self.requested = [name for name in names if draw.random() < 0.6] or [names[draw.integers(len(names))]]
        self.ours = jax.jit(lambda *x: self._derive(saccade.jax.dot_product_attention, *x))
        self.theirs = jax.jit(lambda *x: self._derive(jax.nn.dot_product_attention, *x))

    def _derive(self, function, arrays, scale, weight):
        options = dict(self.options, **({"scale": scale} if "scale" in self.options else {}))
        chosen = {name: arrays[name] for name in self.requested}
        results, pull = jax.vjp(lambda chosen: self.call.run(function, {**arrays, **chosen}, options), chosen)
        first = results[0] if self.call.return_residual else results
        cotangent = jax.random.normal(jax.random.key(weight), first.shape, first.dtype)
        given = (cotangent, jnp.zeros_like(results[1])) if self.call.return_residual else cotangent
        return results, pull(given)[0]

    def check(self, number, has_shifts):
        """None, or what is wrong with the results for the values of a number."""
        rng = np.random.default_rng([self.call.seed, 11, number])
        arrays, shift = draw_values(self.call, self.arrays, rng, has_shifts)
        scale = rng.uniform(0.05, 0.5)
        results, gradients = self.ours(arrays, scale, number)
        with exact_softmax() if self.call.type == "f64" else contextlib.nullcontext():
            expected, expected_gradients = self.theirs(arrays, scale, number)
        tolerance = TOLERANCE[self.call.type] + 64 * ROUNDING[self.call.type] * shift
        names = ("the output", "the residual") if self.call.return_residual else ("the output",)
        pairs = [*zip(names, *map(jax.tree_util.tree_leaves, (results, expected)))]
        pairs += [(f"the gradient of {name}", gradients[name], expected_gradients[name]) for name in self.requested]
        wrong = [difference(*pair, tolerance) for pair in pairs]
        return "; ".join(filter(None, wrong)) or None


def check_values(args):
    """Runs the calls of all seeds with many values; returns the exit code."""
    failed = calls = 0
    for seed in chosen_seeds(args, lambda seed: Call(seed).features):
        derived = Derived(Call(seed))
        numbers = range(args.values) if args.number is None else [args.number]
        for number in numbers:
            calls += 1
            try:
                wrong = derived.check(number, not args.no_shifts)
            except Exception:
                wrong = traceback.format_exc()
            if wrong:
                failed += 1
                flag = " --no-shifts" * args.no_shifts
                print(f"{derived.call}\n{wrong}\n  {sys.executable} {__file__} --seed {seed} --values 1 --number {number}"
                      f"{flag}", flush=True)
        jax.clear_caches()
    print(f"{calls} calls with gradients, {failed} differ, {saccade.cache_info().compilations} kernels")
    return 1 if failed else 0


def main():
    parser = seed_options(__doc__, count=160)
    parser.add_argument("--values", type=int, metavar="N", help="compare gradients, with N sets of numbers for every seed")
    parser.add_argument("--number", type=int, help="with --values, the only set of numbers")
    parser.add_argument("--no-shifts", action="store_true", help="with --values, no finite number shifts a whole row")
    args = parser.parse_args()
    if args.values:
        return check_values(args)
    failed = calls = 0
    drawn = [Call(seed) for seed in chosen_seeds(args, lambda seed: Call(seed).features)]
    for call in drawn:
        try:
            wrong = check(call, 0)
            before = saccade.cache_info().compilations
            wrong = wrong or check(call, 1)
            calls += 2
            if not wrong and saccade.cache_info().compilations != before:
                wrong = "other lengths compiled a kernel"
        except Exception:
            wrong = traceback.format_exc()
        jax.clear_caches()  # of JAX's own executables, which are many
        if wrong:
            failed += 1
            print(f"{call}\n{wrong}\n  {sys.executable} {__file__} --seed {call.seed}", flush=True)
    print(f"{calls} calls, {failed} seeds with failures, {saccade.cache_info().compilations} kernels")
    if args.coverage:
        print_coverage([call.features for call in drawn])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
