#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 100
"""Random calls of saccade.torch.scaled_dot_product_attention against PyTorch's, by the project's tolerance rule.

Usage: sdpa_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--no-shifts] [--calls-of-a-form N]
Types, ranks, broadcasting, strides, masks, grouped heads and empty tensors follow from the seed. Shape, type and strides are
those of PyTorch's result. The error against float64 is at most twice that of PyTorch's plain evaluation, in five orders of
the sums of scores, a rounding of the scores, and a few roundings of the result.
Each call is made directly and by PyTorch's function under saccade.torch.enabled(). Half of the calls have gradients of some of
the tensors, judged in the same way; the weights of a row, whose sum is a gradient of the values, sum to 1 within a few
roundings. Half have rows that are shifted by a constant of up to 1e30, or the lowest number. The line that repeats a failure is
printed.
"""

import pathlib
import sys
import warnings

import torch
import torch.nn.functional as F

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from drop_ins import add_form_option, add_options, options_of, size_of_scores, sum_of_weights
from random_calls import compare
from sdpa_call import Call
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade.torch


def check(call):
    """None, or what is wrong with the call's results."""
    expected = call(F.scaled_dot_product_attention)
    exact = call.by_math(is_exact=True)
    orders = [torch.randperm(call.width, generator=torch.Generator().manual_seed(i)) for i in range(4)]
    plain = [call.by_math(is_exact=False, order=order) for order in (None, *orders)]
    found = call(saccade.torch.scaled_dot_product_attention)
    again = call(saccade.torch.scaled_dot_product_attention)  # by the kernel that is known now
    with saccade.torch.enabled():
        replaced = call(F.scaled_dot_product_attention)
    for what, result in (("the output", found), ("the second output", again), ("the replaced output", replaced)):
        has_strides = result.stride() == expected.stride() or not result.numel()
        if result.dtype != expected.dtype or result.shape != expected.shape or not has_strides:
            return (f"{what} is {result.dtype} {tuple(result.shape)}/{result.stride()}, PyTorch's {expected.dtype} "
                    f"{tuple(expected.shape)}/{expected.stride()}")
        if not torch.equal(result, found):
            return f"{what} differs from the first"
    wrong = compare("the output", found, exact, plain, scores=size_of_scores(call.query, call.key, call.scale))
    return wrong or (check_gradients(call, orders) if call.extremes.has_gradients and found.numel() else None)


def check_gradients(call, orders):
    """None, or what is wrong with the gradients."""
    output, found = call.gradients(saccade.torch.scaled_dot_product_attention)
    with saccade.torch.enabled():
        replaced = call.gradients(F.scaled_dot_product_attention)
    exact_output, exact = call.gradients_by_math(is_exact=True)
    plain = [call.gradients_by_math(is_exact=False, order=order) for order in (None, *orders)]
    sizes, scores = call.sizes(), size_of_scores(call.query, call.key, call.scale)
    wrong = compare("the recorded output", output, exact_output, [each for each, _ in plain], scores=scores)
    for place, name in enumerate(("query", "key", "value", "attn_mask")):
        if wrong or found[place] is None:
            continue
        what = f"the gradient of {name}"
        if not torch.equal(found[place], replaced[1][place]):
            return f"{what} differs in enabled()"
        if found[place].dtype != call.tensors[place].dtype:
            return f"{what} is of {found[place].dtype}"
        wrong = compare(what, found[place], exact[place], [each[place] for _, each in plain], sizes[place],
                        scores)
    if not wrong and found[2] is not None:
        wrong = sum_of_weights(found[2], call.weight(output.shape), call.sees(), scores)
    return wrong


def main():
    args = add_form_option(add_options(seed_options(__doc__, count=2400))).parse_args()
    make = lambda seed: Call(seed, not args.no_shifts, args.calls_of_a_form)
    warnings.simplefilter("error")  # nothing is left to PyTorch
    seeds = chosen_seeds(args, lambda seed: make(seed).features)
    failures = run_calls(__file__, args, seeds, make, lambda seed, call: check(call), options_of(args))
    info = saccade.cache_info()
    print(f"{len(seeds)} calls, {failures} failures; {info.compilations} compilations")
    if args.coverage:
        print_coverage([make(seed).features for seed in seeds])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
