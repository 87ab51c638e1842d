#!/usr/bin/env python3
"""The cost of statistics of weights: calls of saccade.attention with `stats=` beside calls without, in processor time.

Usage: statistics_cost.py [--keys N] [--heads N] [--rounds N]
Calls alternate in each round, on one thread; a figure is the lower quartile of the rounds divided by that of the call
without statistics. The first calls compile and are not counted.
"""

import argparse
import os
import time

os.environ["SACCADE_NUM_THREADS"] = "1"

CASES = {
    "none": {},
    "log-sum-exp": {"return_lse": True},
    "entropy": {"stats": ("entropy",)},
    "entropy, max, sink": {"stats": ("entropy", "max", "sink")},
    "entropy, max, argmax, sink": {"stats": ("entropy", "max", "argmax", "sink")},
    "diagonal": {"stats": ("diagonal",)},
    "distance": {"stats": ("distance",)},
    "heatmap": {"stats": ("heatmap",)},
    "received": {"stats": ("received",)},
}


def measure(q, k, v, rounds):
    """The lower quartile of the seconds of each case."""
    import saccade

    times = {name: [] for name in CASES}
    for turn in range(rounds + 1):
        for name, options in CASES.items():
            start = time.process_time()
            saccade.attention(q, k, v, **options)
            if turn:
                times[name].append(time.process_time() - start)
    return {name: sorted(each)[len(each) // 4] for name, each in times.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=2048)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=12)
    args = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    columns = [(dtype, depth) for dtype in (torch.float32, torch.bfloat16) for depth in (64, 128)]
    found = [measure(*[torch.randn(1, args.heads, args.keys, depth).to(dtype) for _ in range(3)], args.rounds)
             for dtype, depth in columns]  # fmt: skip
    print("| statistics |" + "".join(f" {str(dtype)[6:]}, d {depth} |" for dtype, depth in columns))
    print("|---|" + "---|" * len(columns))
    for name in CASES:
        cells = [f"{each[name] * 1e3:.1f} ms" if name == "none" else f"{each[name] / each['none']:.2f}" for each in found]
        print(f"| {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
