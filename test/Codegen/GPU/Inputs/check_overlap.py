"""Checks the order of the machine instructions of attention on warpgroups, in the loop over tiles: all exponentials of a step lie
between the last wgmma of P·V of the tile before and the wait for it. Turns are taken before the first wgmma, and passed on
between the last one and the first wait. Kernels of split-KV, whose only warpgroup computes, are left out.

Usage: check_overlap.py ROOT PTX CUBIN"""

import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))
from saccade_bench.sass import count_classes, count_in_flight, main_loop
from sass import find_tool

TOKENS = {"S": r"BAR\.SYNC", "A": r"BAR\.ARV", "M": "HGMMA", "1": r"WARPGROUP\.DEPBAR\.LE gsb0, 0x1",
          "0": r"WARPGROUP\.DEPBAR\.LE gsb0, 0x0"}  # fmt: skip
# wgmma of a tile at most, by the head sizes in the name of a kernel: Q·Kᵀ and P·V.
PRODUCTS = {"64": 12, "96": 14, "128": 16, "192": 19, "192_128": 20, "256": 21}


def main():
    text = subprocess.run([find_tool("nvdisasm"), "-c", sys.argv[3]], check=True, capture_output=True, text=True).stdout
    kernels = re.findall(r"^\.text\.([a-z_]+?_([\d_]+)_attention_sm_90a):", text, re.MULTILINE)
    ptx = pathlib.Path(sys.argv[2]).read_text()
    kernels = [each for each in kernels if not re.search(rf"\.entry {each[0]}\([^)]*\)\s+\.reqntid 160\b", ptx)]
    assert kernels
    for name, sizes in sorted(kernels):
        path = main_loop(text, name, PRODUCTS[sizes])
        order = "".join(token for each in path for token, pattern in TOKENS.items() if re.match(pattern, each.opcode + each.operands))
        take, give = ("S", "A") if int(sizes.split("_")[0]) <= 128 else ("", "")
        total, (of_scores, of_values) = count_classes(path)["MUFU"], (each["MUFU"] for each in count_in_flight(path))
        print(f"{name}: {of_values} of {total} special functions while P·V is in flight")
        assert re.fullmatch(f"{take}M+{give}10", order), f"{name}: {order}"
        assert (of_scores, of_values) == (0, total), f"{name}: {of_scores} and {of_values} of {total}"


if __name__ == "__main__":
    main()
