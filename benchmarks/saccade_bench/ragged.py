"""Ragged batches against padding and masks: python -m saccade_bench.ragged [--documents N] [--tokens N] [--rounds N]

Every round runs all variants; times are medians. GFLOP/s count the work within documents, 4·H·D·Σ L², for all variants.
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import torch

import saccade

HEADS, DEPTH = 8, 64


def variants(lengths: torch.Tensor, dtype: torch.dtype) -> dict[str, Callable[[], object]]:
    """The compared calls by name; all except "equal lengths" compute the same result."""
    documents, tokens, longest = len(lengths), int(lengths.sum()), int(lengths.max())
    offsets = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).int()
    ends = offsets.tolist()
    ragged = [torch.randn(tokens, HEADS, DEPTH).to(dtype) for _ in range(3)]
    padded = [torch.zeros(documents, HEADS, longest, DEPTH, dtype=dtype) for _ in range(3)]
    for whole, batch in zip(ragged, padded):
        for i in range(documents):
            batch[i, :, : lengths[i]] = whole[ends[i] : ends[i + 1]].transpose(0, 1)
    same = round((int((lengths * lengths).sum()) / documents) ** 0.5)
    equal = [torch.randn(documents, HEADS, same, DEPTH).to(dtype) for _ in range(3)]
    row = [x.transpose(0, 1)[None] for x in ragged]
    mask = saccade.masks.documents(torch.repeat_interleave(torch.arange(documents), lengths))
    counts = lengths.int()
    plain = torch.nn.functional.scaled_dot_product_attention

    def one_by_one() -> None:
        for begin, end in itertools.pairwise(ends):
            plain(*(x[:, :, begin:end] for x in row))

    return {
        "ragged (cu_seqlens)": lambda: saccade.attention(*ragged, cu_seqlens_q=offsets, cu_seqlens_k=offsets),
        "equal lengths": lambda: saccade.attention(*equal),
        "document mask": lambda: saccade.attention(*row, mask=mask),
        "padded": lambda: saccade.attention(*padded, kv_len=counts),
        "torch one by one": one_by_one,
        "torch padded": lambda: plain(*padded),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--documents", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    generator = torch.Generator().manual_seed(3)
    cuts = torch.randperm(args.tokens - 1, generator=generator)[: args.documents - 1] + 1
    bounds = torch.cat([torch.tensor([0]), cuts.sort().values, torch.tensor([args.tokens])])
    lengths = bounds.diff()
    work = 4 * HEADS * DEPTH * int((lengths * lengths).sum())
    print(f"{args.documents} documents of 1 to {int(lengths.max())} tokens, {work / 1e9:.2f} GFLOP")
    for dtype in (torch.float32, torch.bfloat16):
        runs = variants(lengths, dtype)
        times: dict[str, list[float]] = {name: [] for name in runs}
        with torch.inference_mode():
            for round in range(args.rounds + 1):
                for name, run in runs.items():
                    begin = time.perf_counter()
                    run()
                    if round:  # the first compiles
                        times[name].append(time.perf_counter() - begin)
        for name, taken in times.items():
            middle = statistics.median(taken)
            print(f"{dtype!s:15s} {name:19s} {middle * 1e3:8.2f} ms {work / middle / 1e9:6.0f} GFLOP/s")


if __name__ == "__main__":
    main()
