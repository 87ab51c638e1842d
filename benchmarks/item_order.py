"""Simulates the end of a launch of causal attention on a GPU, for two orders of work items: heads one after the other, and by length
over sections of heads whose keys and values fit into the L2 cache (lib/Tiling/HeadSections.h).

Each multiprocessor takes the next item when it has finished one. The cost of an item is its number of tiles of keys, and one more for its
start and end. A table cell is the time of the launch divided by that of items spread evenly. Shapes are those of FlashAttention-3's
benchmarks: 16,384 positions in all batches, and heads with 2,048 columns together.
"""

import argparse
import heapq

POSITIONS, COLUMNS, SECTION = 16384, 2048, 32 << 20
TILES = {64: (192, 128), 128: (128, 128), 256: (128, 80)}  # rows and keys by head size (WarpgroupShape)
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)


def costs(length, depth):
    """Of the chunks of a head, the longest first."""
    rows, keys = TILES[depth]
    chunk = -(-length // -(-length // rows))
    chunk = -(-chunk // 8) * 8
    ends = range(chunk, length + chunk, chunk)
    return [-(-min(end, length) // keys) + 1 for end in reversed(ends)]


def order(length, depth, heads, group, has_sections):
    """The costs of all items in the order in which they start; `group` heads share keys and values."""
    size = 1
    if has_sections:
        fitting = max(1, SECTION // (length * 2 * depth * 2))
        kv_heads = heads // group
        size = -(-kv_heads // -(-kv_heads // fitting)) * group
    sections = [min(size, heads - first) for first in range(0, heads, size)]
    return [cost for section in sections for cost in costs(length, depth) for _ in range(section)]


def time(items, multiprocessors):
    ends = [0] * multiprocessors
    for cost in items:
        heapq.heapreplace(ends, ends[0] + cost)
    return max(ends)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--multiprocessors", type=int, default=132, help="132: H100 SXM5")
    parser.add_argument("--group", type=int, default=1, help="query heads that share keys and values")
    parser.add_argument("--batch", type=int, help="default: 16,384 positions")
    args = parser.parse_args()
    print("| head size | order | " + " | ".join(f"{length:,}" for length in LENGTHS) + " |")
    print("|---" * (len(LENGTHS) + 2) + "|")
    for depth in TILES:
        for has_sections, name in ((False, "by head"), (True, "by length")):
            cells = []
            for length in LENGTHS:
                heads = (args.batch or max(1, POSITIONS // length)) * COLUMNS // depth
                items = order(length, depth, heads, args.group, has_sections)
                cells.append(f"{time(items, args.multiprocessors) * args.multiprocessors / sum(items):.3f}")
            print(f"| {depth} | {name} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
