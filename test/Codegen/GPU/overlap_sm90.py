#!/usr/bin/env python3
# RUN: saccade-compile %S/Inputs/forward.mlir --target=sm_90a --emit=ptx -o %t.ptx
# RUN: saccade-compile %S/Inputs/forward-regions.mlir --target=sm_90a --emit=ptx -o %t.regions.ptx
# RUN: %python %s %t.ptx %t.regions.ptx
"""The order of the instructions of warpgroups in PTX: a step starts Q·Kᵀ of its tile and P·V of the tile before, waits for
the first product, computes the softmax and waits for the second one, in no branch, and packs the weights only then. If it
updates maxima, it pauses in a branch before the wait, whose end keeps ptxas from moving the wait over the exponentials, and
rescales the accumulator in a branch behind it. Up to head size 128, warpgroups start products in turns, by named barriers."""

import pathlib
import re
import sys

TOKENS = {
    "W": r"mbarrier\.try_wait",
    "F": r"wgmma\.fence",
    "M": r"wgmma\.mma_async",
    "C": r"wgmma\.commit_group",
    "1": r"wgmma\.wait_group\S* 1;",
    "0": r"wgmma\.wait_group\S* 0;",
    "Y": r"bar\.sync\s+(%r\d+|2), 256",
    "A": r"bar\.arrive",
    "T": r"mbarrier\.arrive\.shared",
    "X": r"ex2\.approx",
    "P": r"cvt\.rn\.b?f16x2",
    "S": r"nanosleep",
    "B": r"bra(\.uni)?\s+\$",
}
# wgmma of a tile, by head sizes: Q·Kᵀ, 16 columns each, then P·V, 16 keys each.
PRODUCTS = {"64": (4, 8), "96": (6, 8), "128": (8, 8), "192": (12, 7), "192_128": (12, 8), "256": (16, 5)}


def tokens(text):
    found = []
    for line in text.split("\n"):
        found += [name for name, pattern in TOKENS.items() if re.search(rf"(^|\s){pattern}", line)]
    return "".join(found)


def blocks_of(text):
    """The basic blocks of a kernel as [(tokens, indices of successors)]."""
    parts = re.split(r"(?<=;)(?=\n)|\n(?=\$\w+:)", text)
    blocks, starts = [""], {}
    for part in parts:
        if label := re.match(r"\s*(\$\w+):", part):
            blocks.append("")
            starts[label[1]] = len(blocks) - 1
        blocks[-1] += part
        if re.search(r"\sbra(\.uni)?\s+\$|\sret;", part):
            blocks.append("")
    edges = []
    for i, block in enumerate(blocks):
        branch = re.search(r"(@\S+\s+)?bra(?:\.uni)?\s+(\$\w+);\s*$", block)
        falls_through = not re.search(r"\sret;\s*$", block) and (not branch or branch[1]) and i + 1 < len(blocks)
        edges.append([i + 1] * bool(falls_through) + ([starts[branch[2]]] if branch else []))
    return [(tokens(block), after) for block, after in zip(blocks, edges)]


def paths(blocks, first, last, visited=()):
    """The tokens of each path without a cycle from block `first` to one of the blocks `last`."""
    text, after = blocks[first]
    if first in last:
        yield text
    for block in [] if first in last else after:
        if block not in visited:
            yield from (text + rest for rest in paths(blocks, block, last, (*visited, first)))


def check(name, text):
    blocks, order = blocks_of(text), tokens(text)
    sizes = re.search(r"[a-z]_([\d_]+)_attention", name)[1]
    scores, sums = PRODUCTS[sizes]
    take, give = ("Y", "A") if int(sizes.split("_")[0]) <= 128 else ("", "")
    first, second = f"FM{{{scores}}}C", f"FM{{{sums}}}C"
    start = [i for i, (found, _) in enumerate(blocks) if "1" in found]
    ends = {i for i, (found, _) in enumerate(blocks) if "P" in found}
    assert len(start) == 1, f"{name}: {len(start)} steps in {order}"
    # With and without a mask, and with an update of the maxima, which pauses. One block has the wait, for all paths.
    step = rf"WW{take}{first}{second}{give}1T[BX]*X{{{8 * sums},}}B(S)?0TB{{1,2}}P{{{4 * sums}}}"
    waits = [text for text, _ in blocks if re.fullmatch(r"0TB", text)]
    assert len(waits) == 1, f"{name}: blocks with a wait: {waits}"
    steps = list(paths(blocks, start[0], ends))
    found = [re.search(step, path) for path in steps]
    assert all(found) and {each[1] for each in found} == {None, "S"}, f"{name}: {steps}"
    # An item releases its last values too, for the next one of the CTA.
    starts, last = len(re.findall(rf"WB?{take}{first}{give}0T", order)), len(re.findall(rf"WB?{take}{second}0T(?!P)", order))
    assert (starts, last) == (1, 1), f"{name}: {starts} first and {last} last products in {order}"
    assert order.count("M") == 2 * (scores + sums), f"{name}: {order.count('M')} wgmma"


def main():
    text = "".join(pathlib.Path(path).read_text() for path in sys.argv[1:])
    kernels = re.findall(r"\.entry (\w+_sm_90a)\((.*?)\n}\n", text, re.DOTALL)
    # Kernels of split-KV have one warpgroup, and a warp that copies.
    kernels = [(name, text) for name, text in kernels if ".reqntid 160" not in text]
    assert len(kernels) == 18, [name for name, _ in kernels]
    for name, text in kernels:
        assert ".local" not in text, f"{name} has memory of threads"
        check(name, text)


if __name__ == "__main__":
    main()
