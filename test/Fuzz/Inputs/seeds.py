"""Options of the seed-based tests, and the coverage report."""

import argparse
import collections
import itertools
import pathlib
import traceback


def seed_options(doc, count):
    """A parser with the first line of `doc`, and options for seeds; `count` is the default number."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, help="run and print only this seed")
    parser.add_argument("--cover", type=int, metavar="N", help="of the seeds, run N that cover most pairs of features")
    parser.add_argument("--coverage", action="store_true", help="print how often each feature was drawn")
    return parser


def run_seeds(file, seeds, run, option=""):
    """Runs the seeds of a test `file`, prints those for which run(seed) returns an error, and returns their number."""
    failures = 0
    for seed in seeds:
        if wrong := run(seed):
            failures += 1
            print(f"FAIL test/Fuzz/{pathlib.Path(file).name} {option}--seed {seed}: {wrong}", flush=True)
    return failures


def run_calls(file, args, seeds, make, check, option=""):
    """Runs the random calls of a test `file` as `run_seeds`; one that raises fails with its traceback.

    make: returns the call of a seed.
    check: returns None, or what is wrong with a call.
    option: what the line that repeats a failure has before the seed.
    """
    def run(seed):
        call = None
        try:
            call = make(seed)
            wrong = check(seed, call)
        except Exception:
            wrong = traceback.format_exc(limit=6)
        if args.seed is not None:
            print(call)
        return wrong and f"{call}\n    {wrong}"

    return run_seeds(file, seeds, run, option)


def chosen_seeds(args, features=None, chosen=None):
    """The seeds selected by the parsed options.

    features: for --cover, returns the features of the case of a seed.
    chosen: returns whether the case of a seed is run at all.
    """
    if args.seed is not None:
        return [args.seed]
    seeds = range(args.first_seed, args.first_seed + args.count)
    if chosen:
        seeds = [seed for seed in seeds if chosen(seed)]
    if args.cover is None:
        return seeds
    return covering_seeds({seed: features(seed) for seed in seeds}, args.cover)


def covering_seeds(features, count):
    """Selects `count` seeds greedily, each with the most features and pairs of features that no earlier one has.

    100 of 600 random graphs cover more pairs than 300 random ones. See "t-wise testing" in the literature on
    combinatorial testing, for example Cohen et al., "The AETG system", 1997.

    features: seed -> the features of its case.
    """
    pairs = {
        seed: {frozenset(pair) for pair in itertools.combinations_with_replacement(set(drawn), 2)}
        for seed, drawn in features.items()
    }
    covered: set[frozenset[str]] = set()
    chosen = []
    while pairs and len(chosen) < count:
        best = max(pairs, key=lambda seed: len(pairs[seed] - covered))
        covered |= pairs.pop(best)
        chosen.append(best)
    return chosen


def print_coverage(drawn):
    """Prints the number of cases with each feature; `drawn` has the features of each case."""
    for feature, count in sorted(collections.Counter(feature for features in drawn for feature in set(features)).items()):
        print(f"{count:6d}  {feature}")
