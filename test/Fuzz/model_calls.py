#!/usr/bin/env python3
# REQUIRES: torch, transformers
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 4
"""Random calls of models of Transformers with attn_implementation="saccade" against "eager".

Usage: model_calls.py [--first-seed N] [--count N]

A call has a random family, batch, length, padding and mask (none, 2-D, or 4-D boolean or additive), a cache (none, dynamic,
static or growing) and, with a cache, chunks of random lengths. Without a cache, gradients are compared too. The exit code is
1 if a result differs.
"""

import argparse
import dataclasses
import pathlib
import random
import sys
import warnings

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "Python" / "Inputs"))
warnings.simplefilter("ignore")

import torch
import transformers
from transformers_families import FAMILIES

import saccade.transformers

NAMES = ("llama", "llama4", "mistral", "qwen3", "gemma2", "gemma3", "gpt_oss", "gpt_neox", "deepseek_v3", "deepseek_v32",
         "deepseek_v4")  # fmt: skip
CACHES = {"dynamic": lambda model, length: transformers.DynamicCache(config=model.config),
          "static": lambda model, length: transformers.StaticCache(config=model.config, max_cache_len=length + 3),
          "growing": lambda model, length: saccade.transformers.GrowingCache(config=model.config)}  # fmt: skip
TOLERANCE = 2e-4
MODELS = {}


@dataclasses.dataclass
class Call:
    """A random call; `chunks` are the numbers of tokens of each part."""

    family: str
    batch: int
    chunks: list
    cache: str
    padding: str
    mask: str

    @property
    def length(self):
        return sum(self.chunks)


def random_call(seed):
    rng = random.Random(seed)
    cache = rng.choice(["none", *CACHES])
    chunks = [rng.choice([1, 1, 2, 3, 5, 8]) for _ in range(rng.randint(1, 6))] if cache != "none" else [rng.randint(1, 18)]
    mask = "2-D" if cache != "none" else rng.choice(["none", "2-D", "2-D", "boolean", "additive"])
    padding = "none" if mask == "none" else rng.choice(["none", "left", "right", "middle"])
    return Call(rng.choice(NAMES), rng.randint(1, 3), chunks, cache, padding, mask)


def padding_of(call, rng):
    valid = torch.ones(call.batch, call.length, dtype=torch.bool)
    for row in valid:
        n = rng.randint(0, call.length - 1)
        start = {"none": call.length, "left": 0, "right": call.length - n, "middle": rng.randint(0, call.length - n)}[call.padding]
        row[start : start + n] = False
    return valid


def mask_of(call, valid, end, implementation):
    """The mask of the first `end` tokens. "eager" takes 4-D masks that are additive."""
    if call.mask == "none":
        return None
    if call.mask == "2-D":
        return valid[:, :end].long()
    mask = valid[:, None, None, :] & torch.ones(call.length, call.length, dtype=torch.bool).tril()
    mask |= torch.eye(call.length, dtype=torch.bool)
    if call.mask == "boolean" and implementation == "saccade":
        return mask
    return torch.where(mask, 0.0, torch.finfo(torch.float32).min)


def results_of(model, call, tokens, valid, implementation):
    """Logits of the tokens that are no padding and, without a cache, the gradients of their squares."""
    model.set_attn_implementation(implementation)
    model.zero_grad()
    with torch.set_grad_enabled(call.cache == "none"):
        cache = CACHES[call.cache](model, call.length) if call.cache != "none" else None
        logits, start = [], 0
        for length in call.chunks:
            end = start + length
            logits.append(model(tokens[:, start:end], attention_mask=mask_of(call, valid, end, implementation),
                                past_key_values=cache, use_cache=cache is not None).logits)  # fmt: skip
            start = end
        found = torch.cat(logits, 1)[valid]
        if cache is not None:
            return {"logits": found}
        found.square().mean().backward()
    gradients = [each.grad.flatten() for each in model.parameters() if each.grad is not None]
    return {"logits": found.detach(), "gradients": torch.cat(gradients)}


def check(seed):
    """None, or what differs; "eager" refuses some calls."""
    call, rng = random_call(seed), random.Random(seed + 1)
    if call.family not in MODELS:
        MODELS[call.family] = FAMILIES[call.family].build()
    model, valid = MODELS[call.family], padding_of(call, rng)
    torch.manual_seed(seed)
    tokens = torch.randint(3, 99, (call.batch, call.length))
    try:
        expected = results_of(model, call, tokens, valid, "eager")
    except Exception:
        return None
    found = results_of(model, call, tokens, valid, "saccade")
    for name, value in expected.items():
        error = ((found[name] - value).norm() / value.norm()).item()
        if not error <= TOLERANCE and value.isfinite().all():
            return f"seed {seed}: {call}: {name} differ by {error:.1e}"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0
    for seed in range(args.first_seed, args.first_seed + args.count):
        try:
            message = check(seed)
        except Exception as error:
            message = f"seed {seed}: {random_call(seed)}: {type(error).__name__}: {error}"
        if message:
            failures += 1
            print(message, flush=True)
    print(f"{args.count} calls from seed {args.first_seed}, {failures} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
