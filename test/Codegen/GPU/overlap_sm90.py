#!/usr/bin/env python3
# RUN: saccade-compile %S/Inputs/forward.mlir --target=sm_90a --emit=ptx -o %t.ptx
# RUN: %python %s %t.ptx
"""The order of the instructions of warpgroups in PTX: a step starts Q·Kᵀ of its tile and P·V of the tile before, waits for
the first product, computes the softmax and waits for the second one, and packs the weights only then. Warpgroups start
products in turns, by named barriers."""

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
    "B": r"bra(\.uni)?\s+\$",
}
# Products of a tile with head size 64 and 128: Q·Kᵀ, then P·V of 128 keys.
PRODUCTS = {64: (4, 8), 128: (8, 8)}


def tokens(text):
    found = []
    for line in text.split("\n"):
        found += [name for name, pattern in TOKENS.items() if re.search(rf"(^|\s){pattern}", line)]
    return "".join(found)


def check(name, order):
    scores, sums = PRODUCTS[int(re.search(r"_(\d+)_body", name)[1])]
    first, second = f"FM{{{scores}}}C", f"FM{{{sums}}}C"
    # One step for partial tiles and one for full ones. Of the exponentials two are factors of rows.
    step = rf"WWY{first}{second}A1T[BX]*X{{62,}}[BX]*0TP{{32,}}"
    steps = len(re.findall(step, order))
    starts, ends = len(re.findall(rf"WB?Y{first}A0T", order)), len(re.findall(rf"WB?Y{second}0[^T]", order))
    assert (steps, starts, ends) == (2, 1, 1), f"{name}: {steps} steps, {starts} first and {ends} last products in {order}"
    assert order.count("M") == 3 * (scores + sums), f"{name}: {order.count('M')} wgmma"


def main():
    kernels = re.findall(r"\.entry (\w+_sm_90a)\((.*?)\n}\n", pathlib.Path(sys.argv[1]).read_text(), re.DOTALL)
    assert len(kernels) == 5, [name for name, _ in kernels]
    for name, text in kernels:
        assert ".local" not in text, f"{name} has memory of threads"
        check(name, tokens(text))


if __name__ == "__main__":
    main()
