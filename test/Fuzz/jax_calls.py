#!/usr/bin/env python3
# REQUIRES: jax
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 160 --cover 3
"""Random calls of saccade.jax.dot_product_attention against jax.nn.dot_product_attention.

Usage: jax_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage]
Types, heads, biases, masks, lengths, windows and `jit` or `vmap` follow from the seed. Every call is made again with
other lengths, batch and heads, which must not compile anything. The line that repeats a failure is printed.
"""

import pathlib
import sys
import traceback

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from jax_call import Call
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


def main():
    args = seed_options(__doc__, count=160).parse_args()
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
