#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 400 --cover 14
"""Random texts served with reproducible="stream", which must give the bits of one call for a whole text.

The seed determines element type, heads, head size, masks, rotary positions and quantization of the cache; the places at
which calls end, from single tokens to prompts; pages; the other sequence of the batch; and the number of threads. The whole
text is compared with float64 PyTorch too.
"""

import random
import sys
from pathlib import Path

import torch

sys.path[:0] = [str(Path(__file__).parent / "Inputs"), str(Path(__file__).parent.parent / "Python" / "Inputs")]
from cut_text import LENGTH, Text, random_cuts, serve
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade

ERRORS = {torch.float64: 1e-11, torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


class Served:
    def __init__(self, seed):
        rng = self.rng = random.Random(seed)
        self.seed, self.dtype = seed, rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64])
        self.kv_heads = rng.choice([1, 2, 3])
        self.heads, self.depth = self.kv_heads * rng.choice([1, 2, 5, 8, 12]), rng.choice([8, 16, 40, 64, 72])
        self.options = rng.choice([{}, {}, {"window_size": (rng.choice([0, 30, 300]), 0)}, {"softcap": 3.0}, {"softmax_scale": 0.3}])
        self.quantized = self.dtype != torch.float64 and rng.random() < 0.25
        self.has_rotary = rng.random() < 0.25
        self.pages, self.threads = rng.choice([0, 1, 5, 16, 64, 256]), rng.choice([1, 2])
        self.cuts = random_cuts(rng)
        self.others = rng.choice([(), (1,), (0, 9), (3, 0, 20)])
        if self.quantized or sum(self.others[i % len(self.others)] for i in range(len(self.cuts)) if self.others) > LENGTH:
            self.others = ()

    def features(self):
        drawn = {"type": self.dtype, "group": self.heads // self.kv_heads, "depth": self.depth, "mask": "".join(self.options),
                 "quantized": self.quantized, "rotary": self.has_rotary, "pages": self.pages, "others": len(self.others)}  # fmt: skip
        return {f"{name} {value}" for name, value in drawn.items()}

    def __str__(self):
        return ", ".join(f"{name} {value}" for name, value in vars(self).items() if name != "rng")

    def rotary(self, dtype):
        angles = torch.arange(LENGTH + 300)[:, None] / 100.0 ** torch.linspace(0, 1, self.depth // 2)
        return angles.cos().to(dtype), angles.sin().to(dtype)


def reference(text, call):
    """The outputs in float64, without rotary positions and quantization."""
    q, k, v = (x.double().transpose(0, 1) for x in (text.q, text.k, text.v))
    k, v = (x.repeat_interleave(call.heads // call.kv_heads, dim=0) for x in (k, v))
    scores = q @ k.mT * call.options.get("softmax_scale", call.depth**-0.5)
    if bound := call.options.get("softcap"):
        scores = bound * torch.tanh(scores / bound)
    distance = torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)
    hidden = (distance < 0) | (distance > call.options.get("window_size", (LENGTH, 0))[0])
    return (scores.masked_fill(hidden, -torch.inf).softmax(dim=-1) @ v).transpose(0, 1)


def check(seed, call):
    text = Text(seed, call.dtype, call.heads, call.kv_heads, call.depth, call.options)
    rotary = call.rotary(call.dtype) if call.has_rotary else None
    expected = serve(text, [LENGTH], quantized=call.quantized, rotary=rotary)
    if not call.quantized and not rotary:
        error = (expected.double() - reference(text, call)).abs().max()
        if not error <= ERRORS[call.dtype]:
            return f"the text as a whole has an error of {error:.2e}, at most {ERRORS[call.dtype]} is allowed"
    before = saccade.num_threads()
    saccade.set_num_threads(call.threads)
    try:
        found = serve(text, call.cuts, call.pages, call.quantized, call.others, rotary=rotary)
    finally:
        saccade.set_num_threads(before)
    wrong = (found != expected).flatten(1).any(dim=1).nonzero()
    return f"{len(wrong)} of {LENGTH} tokens have other bits, the first is {int(wrong[0])}" if len(wrong) else None


def main():
    args = seed_options(__doc__, 20).parse_args()
    seeds = chosen_seeds(args, lambda seed: Served(seed).features())
    if args.coverage:
        print_coverage([Served(seed).features() for seed in seeds])
        return 0
    failures = run_calls(__file__, args, seeds, Served, check)
    print(f"{len(seeds)} texts, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main())
