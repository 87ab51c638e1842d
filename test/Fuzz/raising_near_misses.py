#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s --build %build --first-seed 1 --count 600
"""Whatever is raised to attention computes the same: random near misses of graphs that are raised.

Usage: raising_near_misses.py --build DIR [--first-seed N] [--count N] [--keep FILE]
Draws graphs that are raised: the patterns of test/Import/Raise with several sizes, random ones, and the twins of both;
and graphs that miss by one step which raising is known to look at, such as a mask on the numerator only.
raising-search then changes each by one to three steps, raises what it got, and compares every raised graph with the plain
one in f64. The forms themselves must be raised; of the near misses, some must be raised and some refused.
"""

import argparse
import importlib.util
import pathlib
import re
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
PATTERNS = HERE.parent / "Import" / "Raise" / "Inputs"
sys.path[:0] = [str(PATTERNS), str(HERE / "Inputs")]

from raising_forms import RandomForm, of_pattern

# Batches, heads, queries, keys and head size: different ones, and equal ones, under which wrong maps type-check.
SIZES = {"different": (2, 4, 3, 5, 6), "equal": (4, 4, 4, 4, 4), "dynamic": (2, 4, 3, 5, 2)}


def patterns(sizes):
    """PATTERNS of patterns.py with these sizes."""
    spec = importlib.util.spec_from_file_location("patterns", PATTERNS / "patterns.py")
    module = importlib.util.module_from_spec(spec)
    module.SIZES = sizes
    spec.loader.exec_module(module)
    return module.PATTERNS


def forms(seed, count):
    """The text of all graphs of a run with `count` near misses."""
    texts = []
    for suffix, sizes in SIZES.items():
        for name, pattern in patterns(sizes).items():
            texts.append(of_pattern(name, pattern, sizes[2:4], suffix, commuted=len(texts) % 2 == 1))
    for number in range(max(count // 20, 40)):
        texts.append(RandomForm(f"random__{number}", f"{seed}.{number // 2}", commuted=number % 2 == 1).text)
    for number in range(max(count, 600)):
        miss = RandomForm.MISSES[number % len(RandomForm.MISSES)]
        name = f"miss__{miss.replace(' ', '_')}__{number}"
        texts.append(RandomForm(name, f"{seed}.miss.{number}", commuted=number % 2 == 1, miss=miss).text)
    return "module {\n" + "".join(texts) + "}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="the build tree whose raising is tested")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=600)
    parser.add_argument("--case", type=int, help="only this near miss; its IR is printed")
    parser.add_argument("--keep", type=pathlib.Path, help="write the graphs to this file")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = args.keep or pathlib.Path(folder) / "graphs.mlir"
        path.write_text(forms(args.first_seed, args.count))
        line = [args.build / "test" / "Fuzz" / "raising-search", path, f"--seed={args.first_seed}", f"--count={args.count}"]
        line += [f"--case={args.case}"] * (args.case is not None)
        done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    print(done.stdout)
    if done.returncode != 0:
        print(f"reproduce: {' '.join(sys.argv)} --case=N")
        return 1
    if args.case is None:
        raised, refused, undetermined = map(int, re.search(r"all: raised (\d+) refused (\d+) undetermined (\d+)", done.stdout).groups())
        assert raised + refused + undetermined >= 0.95 * args.count, "few near misses could be built"
        assert raised >= 0.1 * args.count and refused >= 0.2 * args.count, "the near misses show little"
        assert undetermined <= 0.1 * args.count, "many results cannot be compared"
    return 0


if __name__ == "__main__":
    sys.exit(main())
