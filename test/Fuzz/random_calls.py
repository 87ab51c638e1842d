#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 500 --cover 18
"""Random calls of saccade.attention against float64 PyTorch, by the project's tolerance rule.

Usage: random_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage]
Score and mask functions, grouped heads, layouts, strides, types and lengths follow from the seed. Every call is made
again with other lengths and batch, which must not compile anything. The line that repeats a failure is printed.
"""

import pathlib
import sys
import traceback

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from attention_call import TYPES, Call
from seeds import chosen_seeds, print_coverage, seed_options

import saccade

# include/saccade/Reference/Tolerance.h has the rule and where its constants come from.
REFERENCE_FACTOR, FLOOR_FACTOR, FLOOR_PROBE, ORACLE_ERROR = 2, 2, 0.3, 1e-12


def compare(what, found, exact, plain, size=0, scores=0):
    """None, or how far `found` is from `exact` beyond what plain evaluation explains.

    size: how large the terms are of which the results are sums.
    scores: how large the products are that are added to a score. One rounding of a score changes its weight by as many.
    """
    found = torch.as_tensor(found)
    if tuple(found.shape) != tuple(exact.shape):
        return f"{what} has shape {tuple(found.shape)}, expected {tuple(exact.shape)}"
    type = found.dtype
    # Numbers beyond the type are infinite in it.
    exact = torch.where(exact.abs() > torch.finfo(type).max, exact.sign() * float("inf"), exact)
    found, finite = found.double(), exact.isfinite()
    if not torch.allclose(found[~finite], exact[~finite].double(), equal_nan=True) or found[finite].isnan().any():
        return f"{what} differs in NaN or Inf"

    def error_of(numbers):
        # An infinite number is at least as wrong as the largest one, which a type of 16 bits may not be by much.
        numbers = numbers.clamp(-torch.finfo(type).max, torch.finfo(type).max)
        return (numbers - exact)[finite].abs().max().item() if finite.any() else 0

    error = error_of(found)
    largest = exact[finite].abs().max().item() if finite.any() else 0
    plain_error = max([0, *[each for each in (error_of(p.to(type).double()) for p in plain) if each == each]])
    floor = torch.finfo(type).eps * (max(largest, size) + FLOOR_PROBE)
    of_scores = torch.finfo(torch.promote_types(type, torch.float32)).eps * scores
    allowed = REFERENCE_FACTOR * plain_error + FLOOR_FACTOR * floor + (ORACLE_ERROR + of_scores) * max(largest, size)
    return None if error <= allowed else f"{what} is off by {error:.3g}, {allowed:.3g} allowed (ratio {error / allowed:.2f})"


def check(call):
    """None, or what is wrong with the call's results."""
    found = saccade.attention(*call.arguments, **call.keyword_arguments())
    output, lse = found if "return_lse" in call.options else (found, None)
    exact = call.evaluate()
    plain = [call.evaluate(exact=False, backwards=backwards) for backwards in (False, True)]
    if torch.as_tensor(output).dtype != TYPES[call.type] or isinstance(output, torch.Tensor) == call.numpy:
        return f"the output is {type(output)} of {output.dtype}"
    pack = lambda tensor: call.ragged(tensor, 0) if call.lengths else tensor
    lay = lambda tensor: call.laid_out(pack(tensor), call.layout)
    wrong = compare("the output", output, lay(exact[0]), [lay(p[0]) for p in plain])
    if wrong or lse is None:
        return wrong
    wanted_dims = "".join(dim for dim in "bhs" if dim in call.layout)
    lay = lambda tensor: call.laid_out(pack(tensor), wanted_dims)
    return compare("the log-sum-exp", lse, lay(exact[1]), [lay(p[1]) for p in plain])


def run(seed):
    """(the call, None or what went wrong, whether it compiled at most one kernel)"""
    call = Call(seed)
    before = saccade.cache_info().compilations
    try:
        wrong = check(call)
        compiled = saccade.cache_info().compilations - before
        if wrong is None and compiled > 1:
            wrong = f"one call compiled {compiled} kernels"
        if wrong is None:
            again = call.with_other_sizes()
            before = saccade.cache_info().compilations
            wrong = check(again)
            if wrong is None and saccade.cache_info().compilations != before:
                wrong = f"other sizes compiled a kernel: {again}"
            elif wrong:
                wrong = f"with other sizes, {again}: {wrong}"
    except Exception:
        wrong = traceback.format_exc(limit=4)
    return call, wrong


def main():
    args = seed_options(__doc__, count=500).parse_args()
    torch.set_num_threads(2)
    seeds = chosen_seeds(args, lambda seed: Call(seed).features)
    features, failures = [], 0
    for seed in seeds:
        call, wrong = run(seed)
        features.append(call.features)
        if args.seed is not None:
            print(call)
        if wrong:
            failures += 1
            print(f"FAIL test/Fuzz/random_calls.py --seed {seed}: {call}\n    {wrong}", flush=True)
    info = saccade.cache_info()
    print(f"{2 * len(seeds)} calls, {failures} failures; {info.compilations} compilations, {info.hits} found again")
    if args.coverage:
        print_coverage(features)
    # Kernels are found again across calls too: seeds draw the same types, head sizes and options time and again.
    return 1 if failures or info.compilations > len(seeds) else 0


if __name__ == "__main__":
    sys.exit(main())
