#!/usr/bin/env python3
# REQUIRES: torch
# UNSUPPORTED: asan, tsan
# RUN: %python %s --first-seed 0 --count 400 --cover 18
"""Statistics of random calls of saccade.attention against float64 PyTorch.

The calls are those of random_calls.py, with sinks, dropout, pages and scores of -inf besides.
"""

import math
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent / "Inputs"))
from attention_call import Call
from seeds import chosen_seeds, print_coverage, run_calls, seed_options

import saccade
from saccade import stats

NAMES = ("entropy", "effective_keys", "max", "argmax", "sink", "diagonal", "distance", "band", "segments", "heatmap",
         "received", "own")  # fmt: skip


class Hidden:
    """A score function that hides keys."""

    @staticmethod
    def function(s, b, h, i, j):
        return torch.where((i + j) % 3 == 0, -math.inf, s)

    def evaluate(self, exact, *arguments):
        return self.function(*arguments)


class StatsCall(Call):
    """A call with statistics."""

    def draw_options(self, rng):
        super().draw_options(rng)
        own = random.Random(f"{self.seed} statistics")
        self.chosen = own.sample(NAMES, own.randint(1, 5))
        if self.lengths and "heatmap" in self.chosen:
            self.chosen.remove("heatmap")
        self.sink = None
        if own.random() < 0.4:
            shape = (self.heads,) if "h" in self.layout and own.random() < 0.6 else ()
            self.sink = torch.randn(shape, generator=torch.Generator().manual_seed(self.seed)) * 2
            self.sink = self.sink.double() if self.type == "f64" else self.sink
            self.sink = -math.inf if own.random() < 0.1 else self.sink if shape else float(self.sink)
            self.options["sink"] = self.given(self.sink) if isinstance(self.sink, torch.Tensor) else self.sink
        if own.random() < 0.2:
            self.options |= {"dropout_p": 0.3, "seed": 5}
        if own.random() < 0.2:
            self.options["return_max"] = True
        if own.random() < 0.15 and "score" not in self.options and not self.numpy:
            self.options["score"] = Hidden()
        self.is_paged = self.layout in ("bhsd", "bshd") and own.random() < 0.3
        self.widths = own.randint(0, 9), own.randint(0, 9)
        self.ids = torch.randint(-1, 6, (self.keys,), generator=torch.Generator().manual_seed(self.seed))
        self.features += [*self.chosen, *["paged"] * self.is_paged, *[x for x in ("sink", "seed") if x in self.options]]

    def given(self, tensor):
        return tensor.numpy() if self.numpy else tensor

    def keyword_arguments(self):
        return {name: getattr(value, "function", value) for name, value in self.options.items()}

    def packed(self, x, side):
        """A batch × head × position (× more) tensor as calls of the layout return it; of queries (0) or keys (1)."""
        x = self.ragged(x, side) if self.lengths else x
        for letter, position in (("h", 1), ("b", 0)):
            x = x if letter in self.layout else x.select(position, 0)
        return x

    def statistics(self):
        made = {"band": stats.band(self.widths), "segments": stats.segments(self.given(self.ids), 5),
                "heatmap": stats.heatmap(7, 9), "distance": stats.distance(5),
                "own": stats.tally(lambda s, b, h, i, j: ((i + 2 * j) % 3, 0.5 * s + h), 3, "own")}  # fmt: skip
        return [made.get(name, name) for name in self.chosen]

    def pages(self):
        """Keys and values in pages of 4 in another order, and the table."""
        count = max(-(-self.keys // 4), 1)
        order = torch.randperm(self.batch * count, generator=torch.Generator().manual_seed(self.seed))
        table = order.reshape(self.batch, count).to(torch.int32)
        pools = []
        for x in self.canonical[1:]:
            pool = x.new_zeros(self.batch * count, x.shape[1], 4, x.shape[3])
            padded = torch.nn.functional.pad(x, (0, 0, 0, count * 4 - self.keys))
            pool[order] = padded.unflatten(2, (count, 4)).movedim(2, 1).flatten(0, 1)
            pools.append(self.given(pool if self.layout == "bhsd" else pool.transpose(1, 2).contiguous()))
        return pools, self.given(table)

    def found(self):
        options, arguments = self.keyword_arguments(), list(self.arguments)
        if self.is_paged:
            arguments[1:], options["page_table"] = self.pages()
            options.setdefault("kv_len", self.keys)
        *others, found = saccade.attention(*arguments, **options, stats=self.statistics())
        return others, found

    def expected(self, found):
        """By name: batch × head × query (× more), and `received` with keys in place of queries."""
        scores = self.scores()
        sink = torch.full((), -math.inf) if self.sink is None else torch.as_tensor(self.sink)
        sink = sink.double().reshape(1, -1, 1).expand(self.batch, self.heads, self.queries)
        lse = torch.logsumexp(torch.cat((scores, sink[..., None]), -1), -1)
        finite = torch.where(lse.isinf(), 0.0, lse)
        p, p_sink = torch.exp(scores - finite[..., None]), torch.exp(sink - finite)
        entropy = -torch.special.xlogy(p, p).sum(-1) - torch.special.xlogy(p_sink, p_sink)
        queries, keys = self.lengths or (self.queries, self.keys)
        queries, keys = (torch.as_tensor(n).reshape(-1, 1, 1, 1) for n in (queries, keys))
        keys = torch.as_tensor(self.options["kv_len"]).reshape(-1, 1, 1, 1) if "kv_len" in self.options else keys
        causal = self.options.get("causal")
        i, j = torch.arange(self.queries)[:, None], torch.arange(self.keys)
        away = j - i - {"bottom_right": keys - queries}.get(causal, causal if isinstance(causal, int) else 0)
        by = lambda bins, count, of=p: torch.stack([(of * (bins == n)).sum(-1) for n in range(count)], -1)
        safe = torch.where(scores.isinf(), 0.0, scores)
        heads = torch.arange(self.heads)[:, None, None]
        results = {
            "entropy": entropy, "effective_keys": torch.where(lse == -math.inf, 0.0, entropy.exp()),
            "max": scores.amax(-1) if self.keys else torch.full_like(lse, -math.inf), "sink": p[..., :4].sum(-1),
            "diagonal": (p * (away == 0)).sum(-1), "received": (p * (i < queries)).sum(-2), "segments": by(self.ids, 5),
            "band": (p * ((away >= -self.widths[0]) & (away <= self.widths[1]))).sum(-1),
            "distance": by(sum((away.abs() >= 2**n).long() for n in range(4)), 5),
            "own": by((i + 2 * j) % 3, 3, p * (0.5 * safe + heads)),
        }  # fmt: skip
        results["argmax"] = results["max"] if self.keys else torch.full_like(lse, -1)
        if "heatmap" in found:
            rows, columns = found["heatmap_row_size"], found["heatmap_column_size"]
            width = found["heatmap"].shape[-1] * columns
            wide = torch.nn.functional.pad(p, (0, width - self.keys)).unflatten(-1, (-1, columns)).sum(-1)
            blocks = [block.mean(-2) for block in wide.split(rows, -2)]
            results["heatmap"] = torch.stack(blocks, -2) if self.queries else wide.new_zeros(*wide.shape[:2], 1, wide.shape[3])
        return results, scores


def check(seed, call):
    """None, or what is wrong with the statistics of a call."""
    _, found = call.found()
    expected, scores = call.expected(found)
    of_f64 = 1e-12 if "score" not in call.options else 3e-7  # functions compute with elements of float32
    tolerance = {"f64": of_f64, "f32": 3e-5}.get(call.type, 6e-3)
    size = 1 + (scores[scores.isfinite()].abs().max().item() if scores.isfinite().any() else 0)
    sizes = {"entropy": size, "max": size, "own": size, "argmax": size, "received": 1 + call.queries,
             "effective_keys": size * (1 + call.keys)}  # fmt: skip
    for name in call.chosen:
        side = 1 if name == "received" else 0
        exact, x = call.packed(expected[name], side), torch.as_tensor(found[name])
        if name == "argmax" and call.keys:  # equal scores in float64 may differ in float32
            x = call.packed(scores, 0).gather(-1, x.clamp(min=0)[..., None])[..., 0].masked_fill(x < 0, -math.inf)
        if name == "received" and call.is_paged:
            x = x[..., : call.keys]
        if x.shape != exact.shape:
            return f"{name} has shape {tuple(x.shape)}, expected {tuple(exact.shape)}"
        allowed = tolerance * sizes.get(name, 1)
        if not torch.allclose(x.double(), exact.double(), rtol=0, atol=allowed):
            return f"{name} is off by {(x.double() - exact).abs().max():.3g}, {allowed:.3g} allowed"
    return None


def main():
    args = seed_options(__doc__, count=500).parse_args()
    seeds = chosen_seeds(args, lambda seed: StatsCall(seed).features)
    failures = run_calls(__file__, args, seeds, StatsCall, check)
    if args.coverage:
        print_coverage([StatsCall(seed).features for seed in seeds])
    print(f"{len(seeds)} calls, {failures} failures; {saccade.cache_info().compilations} compilations")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
