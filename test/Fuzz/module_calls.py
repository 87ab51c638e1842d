#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 100
"""Random modules with attention of PyTorch under saccade.torch.enabled() and in torch.compile(backend="saccade") against float64.

Usage: module_calls.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage] [--no-shifts]
nn.MultiheadAttention, nn.TransformerEncoderLayer and nn.TransformerDecoderLayer with random options, masks and inputs follow from
the seed. The output and the gradients of the inputs and all parameters are compared with PyTorch's module in float64: the error is
at most twice that of PyTorch in the module's type, with its fused kernels and without them, and a few roundings. Every 30th module
is compiled too.
"""

import pathlib
import sys
import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from drop_ins import add_options
from module_call import Call
from random_calls import compare
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade.torch
from saccade.torch.backend import saccade as backend


def compiled(module):
    torch._dynamo.reset()
    return torch.compile(module, backend=lambda graph, inputs: backend(graph, inputs, options={"inner": "aot_eager"}))


def check(call, is_compiled):
    """None, or what is wrong with the call's results."""
    torch.backends.mha.set_fastpath_enabled(False)
    with sdpa_kernel(SDPBackend.MATH):
        exact, plain = call.results(torch.float64), [call.results()]
    plain.append(call.results())
    with saccade.torch.enabled():
        found = {"": call.results()}
    if is_compiled:
        found["compiled: "] = call.results(wrap=compiled)
    for route, results in found.items():
        if results.keys() != exact.keys():
            return f"{route}the results are {sorted(results)}, expected {sorted(exact)}"
        size = max((x[x.isfinite()].abs().max().item() for x in exact.values() if x.isfinite().any()), default=0)
        for name, expected in exact.items():
            wrong = compare(route + name, results[name], expected, [each[name] for each in plain],
                            size if name.startswith("the gradient") else 0)
            if wrong:
                return wrong
    return None


def main():
    args = add_options(seed_options(__doc__, count=300)).parse_args()
    warnings.filterwarnings("ignore", message=".*mismatched.*mask.*")  # booleans with numbers, which PyTorch converts
    make = lambda seed: Call(seed, shifts=not args.no_shifts)
    seeds = chosen_seeds(args, lambda seed: make(seed).features)
    failures = run_calls(__file__, args, seeds, make, lambda seed, call: check(call, seed % 30 == 7))
    print(f"{len(seeds)} modules, {failures} failures")
    if args.coverage:
        print_coverage([make(seed).features for seed in seeds])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
