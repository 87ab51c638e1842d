#!/usr/bin/env python3
# REQUIRES: torch, onnx, jax
# UNSUPPORTED: asan, tsan
# RUN: %python %s --build %build --first-seed 1 --count 1 --only clamp --only Clip
"""Drawn calls of single operators of PyTorch, ONNX and StableHLO, compared with their projects' own execution.

Usage: frontend_operators.py --build DIR [--first-seed N] [--count N] [--only TEXT ...] [--repeat CASE]
Draws every operator `count` times for each of its types. --only restricts the operators by their names; --repeat runs one
case by the name that a failure prints. The suite draws until every argument is covered (test/Python/*/test_*_schemas.py).
"""

import argparse
import os
import pathlib
import sys
import warnings

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree whose frontends are tested")
parser.add_argument("--first-seed", type=int, default=0)
parser.add_argument("--count", type=int, default=4)
parser.add_argument("--only", action="append", help="operators whose names contain this")
parser.add_argument("--repeat", help="the name of a case, such as 0/add.Tensor/3/0")
options = parser.parse_args()
os.environ["SACCADE_BUILD"] = str(options.build)
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Python" / "Inputs"))
warnings.simplefilter("ignore")

import onnx_targets
import stablehlo_targets
import torch_targets
from drawn_operators import attempt, run

failed = 0
for frontend in (torch_targets, onnx_targets, stablehlo_targets):
    targets = list(frontend.targets())
    if options.repeat:
        seed, name, number, _ = options.repeat.split("/")
        for target in targets:
            if target.name == name:
                print(attempt(target, seed, int(number), None, frontend.REFUSALS) or "agrees")
        continue
    chosen = [each for each in targets if not options.only or any(word in each.name for word in options.only)]
    outcome = run(chosen, frontend.REFUSALS, options.first_seed, options.count, most=options.count * 9)
    failed += len(outcome.failures)
    print(f"{frontend.__name__}: {outcome.draws} calls of {len(chosen)} operators, {outcome.agreed} agree, "
          f"{sum(outcome.refused.values())} refused, {len(outcome.failures)} failures", flush=True)
    for failure in outcome.failures:
        print(f"{failure}\n  {sys.executable} {__file__} --build {options.build} --repeat {failure.split(':')[0]}")
sys.exit(1 if failed else 0)
