"""Times a step of decoding with caches in pages of memory of 4 KiB and of 2 MiB, in turn.

    python benchmarks/large_pages.py --threads 1

Transparent large pages must be `madvise` (/sys/kernel/mm/transparent_hugepage/enabled): with `always`, PyTorch's tensors
have large pages too.
"""

import argparse
import time

BATCH, POSITIONS, HEADS, DEPTH = 4, 8192, 4, 128


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1, help="threads (1)")
    parser.add_argument("--rounds", type=int, default=9, help="rounds, of which the best counts (9)")
    parser.add_argument("--pages", type=int, nargs="*", default=[0, 16, 1], help="positions of a page of the cache, 0 for none (0 16 1)")
    options = parser.parse_args()
    import torch

    import saccade
    from saccade.torch import cache, flash_attn_with_kvcache

    saccade.set_num_threads(options.threads)
    print("| element | pages of the cache | 4 KiB, ms | 2 MiB, ms | ratio |\n|---|---|---:|---:|---:|")
    for dtype in (torch.float32, torch.bfloat16):
        for page in options.pages:
            shape = (BATCH * POSITIONS // page, page) if page else (BATCH, POSITIONS)
            small = torch.randn(2, *shape, HEADS, DEPTH).to(dtype)
            large = cache(*small.shape, dtype=dtype).copy_(small)
            q, lengths = torch.randn(BATCH, 1, 2 * HEADS, DEPTH).to(dtype), torch.full((BATCH,), POSITIONS, dtype=torch.int32)
            table = {"page_table": torch.randperm(shape[0]).view(BATCH, -1).int()} if page else {}
            best = {}
            for _ in range(options.rounds):
                for name, (keys, values) in (("small", small), ("large", large)):
                    begin = time.perf_counter()
                    flash_attn_with_kvcache(q, keys, values, cache_seqlens=lengths, **table)
                    best[name] = min(best.get(name, float("inf")), time.perf_counter() - begin)
            element = str(dtype).removeprefix("torch.")
            pages = f"{page} position{'s' * (page > 1)}" if page else "none"
            print(f"| {element} | {pages} | {best['small'] * 1e3:.1f} | {best['large'] * 1e3:.1f} | {best['small'] / best['large']:.2f} |", flush=True)


if __name__ == "__main__":
    main()
