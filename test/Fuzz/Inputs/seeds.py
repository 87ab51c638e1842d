"""Options of the seed-based tests, and the coverage report."""

import argparse
import collections


def seed_options(doc, count):
    """A parser with the first line of `doc`, and options for seeds; `count` is the default number."""
    parser = argparse.ArgumentParser(description=doc.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=count)
    parser.add_argument("--seed", type=int, help="run and print only this seed")
    parser.add_argument("--coverage", action="store_true", help="print how often each feature was drawn")
    return parser


def chosen_seeds(args):
    """The seeds selected by the parsed options."""
    return [args.seed] if args.seed is not None else range(args.first_seed, args.first_seed + args.count)


def print_coverage(drawn):
    """Prints the number of cases with each feature; `drawn` has the features of each case."""
    for feature, count in sorted(collections.Counter(feature for features in drawn for feature in set(features)).items()):
        print(f"{count:6d}  {feature}")
