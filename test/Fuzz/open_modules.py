#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 200 --cover 10
"""Random modules with open batches and lengths, compiled by saccade.torch.compile, against the modules in float64.

Usage: open_modules.py [--first-seed N] [--count N] [--cover N] [--seed N] [--coverage]
nn.MultiheadAttention, the layers and stacks of nn.Transformer with masks, and attention whose heads are split after tokens were
joined, padded or dropped, follow from the seed, and so do the open dimensions. A module is compiled once and called with six
sizes, a batch of one among them. It is equal for all of them, or it is refused when it is compiled. A call that PyTorch takes
and the compiled module does not is a failure.
"""

import copy
import logging
import pathlib
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).parent / "Inputs"))
from open_module import Case
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade
import saccade.torch

TOLERANCE = 2e-5  # of the largest element of the output


def exact(module, inputs):
    wide = lambda x: x.double() if x.is_floating_point() else x
    with torch.no_grad():
        return module(*torch.utils._pytree.tree_map(wide, inputs))


def check(case, refused):
    """None, or what is wrong with the module."""
    inputs = case.inputs({})
    try:
        exported = torch.export.export(case.module, inputs, dynamic_shapes=case.shapes)
    except Exception:  # such as a dimension that the module makes a constant
        refused["by torch.export"] = refused.get("by torch.export", 0) + 1
        return None
    try:
        compiled = saccade.torch.compile(exported)
    except saccade.CompileError as error:
        reason = str(error).splitlines()[0]
        refused[reason] = refused.get(reason, 0) + 1
        return None
    wide = copy.deepcopy(case.module).double()
    for sizes in case.variants():
        inputs = case.inputs(sizes)
        expected = exact(wide, inputs)
        try:
            found = compiled(*inputs)
        except Exception as error:
            return f"{sizes}: {type(error).__name__}: {error}"
        if found.shape != expected.shape:
            return f"{sizes}: the shape is {tuple(found.shape)}, expected {tuple(expected.shape)}"
        wrong = (found - expected).abs().max().item() if found.numel() else 0
        if not wrong <= TOLERANCE * max(1, expected.abs().max().item() if found.numel() else 1):
            return f"{sizes}: the error is {wrong:.3g}"
    return None


def main():
    args = seed_options(__doc__, count=300).parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("torch").setLevel(logging.CRITICAL)
    torch.backends.mha.set_fastpath_enabled(False)  # gives 0 at padded positions
    seeds = chosen_seeds(args, lambda seed: Case(seed).features)
    refused: dict[str, int] = {}
    failures = run_calls(__file__, args, seeds, Case, lambda seed, case: check(case, refused))
    print(f"{len(seeds)} modules, {sum(refused.values())} refused, {failures} failures")
    for reason, count in sorted(refused.items()):
        print(f"{count:6d}  {reason}")
    if args.coverage:
        print_coverage([Case(seed).features for seed in seeds])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
