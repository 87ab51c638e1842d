#!/usr/bin/env python3
# REQUIRES: torch
# RUN: %python %s --first-seed 1 --count 2
"""Gradient checks of `saccade.attention` on programs of the pattern library (test/Python/Inputs/gradient_programs.py).

Usage: gradient_calls.py [--first-seed N] [--count N | --all] [--name NAME]. A seed chooses a program and its numbers; --all checks
every program with the numbers of the first seed.
"""

import argparse
import pathlib
import random
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "Python" / "Inputs"))

import gradient_programs


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=30)
    parser.add_argument("--all", action="store_true", help="check every program")
    parser.add_argument("--name", help="check one program")
    args = parser.parse_args()
    names = list(gradient_programs.PROGRAMS)
    seeds = range(args.first_seed, args.first_seed + args.count)
    cases = [(random.Random(seed).choice(names), seed) for seed in seeds]
    if args.all or args.name:
        cases = [(name, args.first_seed) for name in names if args.name in (None, name)]
    failed, start = 0, time.monotonic()
    for name, seed in cases:
        try:
            gradient_programs.check(name, seed)
        except Exception as error:
            failed += 1
            print(f"gradient_calls.py --first-seed {seed} --name {name!r}: {type(error).__name__}: {error}", flush=True)
    print(f"{len(cases)} programs of {len(names)}, {failed} failed, {time.monotonic() - start:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
