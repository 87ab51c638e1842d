#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""The work items of kernels with warpgroups: a CTA takes several, from a counter, and the longest ones come first.

The results are the same for any number of multiprocessors. To see which items come first, the PTX is changed so that no
CTA gets an item after that of its index: the rows of all others stay unwritten.
"""

import math
import pathlib
import re
import subprocess
import sys
import tempfile

INPUTS = pathlib.Path(__file__).resolve().parents[2] / "Codegen" / "GPU" / "Inputs"
PROGRAM = INPUTS / "forward.mlir"
TARGET = "--target=sm_90a"
# Two query heads read the same keys and values.
GROUPED = """func.func @grouped(%q: tensor<1x6x301x256xf16>, %k: tensor<1x3x11000x256xf16>, %v: tensor<1x3x11000x256xf16>) -> tensor<1x6x301x256xf16> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] mask causal<top_left>
    : (tensor<1x6x301x256xf16>, tensor<1x3x11000x256xf16>, tensor<1x3x11000x256xf16>) -> tensor<1x6x301x256xf16>
  return %o : tensor<1x6x301x256xf16>
}"""
TAKES = r"atom\.(?:\w+\.)*global\.add\.u32\s+(%r\d+), \[%rd\d+\], 1;"


def run(entry, shapes, multiprocessors, *options, program=PROGRAM):
    arguments = [f"--arg={shape}:{number}" for number, shape in enumerate(shapes, 1)]
    done = subprocess.run(["saccade-run", program, "--device=ptxsim", TARGET, "--explain", f"--entry={entry}",
                           f"--multiprocessors={multiprocessors}", *arguments, *options], capture_output=True, text=True)  # fmt: skip
    return done.returncode, done.stdout + done.stderr


def rows_of_first_items(entry, shapes, multiprocessors, row_bytes, kernels, program=PROGRAM):
    """How many rows the first item of each CTA writes."""
    code, output = run(entry, shapes, multiprocessors, f"--kernels={kernels}", program=program)
    if code == 0:
        return math.inf  # all
    found = re.search(r"kernels left (\d+) of (\d+) bytes of result", output)
    assert code and found, output
    return (int(found[2]) - int(found[1])) // row_bytes


def check_counts(folder):
    """CTAs of six items, with an odd number of rows, of three chunks and two heads."""
    shapes = ["1x300x2x128:bf16"] * 3
    results, work = [], []
    for multiprocessors in (1, 2, 5, 6, 100):
        out = [folder / f"{multiprocessors}-{name}.npy" for name in ("o", "l")]
        code, output = run("causal_128", shapes, multiprocessors, "--check", "--global-races", *[f"--out={path}" for path in out])
        assert code == 0, output
        ctas, instructions = map(int, re.search(r"kernel family sm_90a, ran (\d+) CTAs?, (\d+) instructions", output).groups())
        assert ctas == min(multiprocessors, 6), f"{ctas} CTAs on {multiprocessors} multiprocessors"
        work.append(instructions)
        results.append([path.read_bytes() for path in out])
    assert all(result == results[0] for result in results), "results depend on the number of multiprocessors"
    # An item that two CTAs compute would be a sixth more.
    assert max(work) < 1.1 * min(work), work


def kernels_of_first_items(program, expected, folder):
    """PTX of a program in which no CTA gets a second item."""
    ptx = subprocess.run(["saccade-compile", program, TARGET], capture_output=True, text=True, check=True).stdout
    kernels = folder / "first.ptx"
    text, count = re.subn(TAKES, r"mov.u32 \1, 1000000;", ptx)
    assert count == expected, f"{count} kernels take items"
    kernels.write_text(text)
    return kernels


def check_order(folder):
    kernels = kernels_of_first_items(PROGRAM, 10, folder)  # with those of split-KV
    # Under a causal mask the last chunk of queries is the longest item. Of 301 rows it has 93, the others 104.
    causal = [rows_of_first_items("causal_128", ["1x301x1x128:bf16"] * 3, n, 256, kernels) for n in (1, 2)]
    assert causal == [93, 93 + 104], causal
    # Those of all heads come first.
    heads = [rows_of_first_items("causal_128", ["1x301x3x128:bf16"] * 3, n, 256, kernels) for n in (3, 4)]
    assert heads == [3 * 93, 3 * 93 + 104], heads
    # Without a mask all have the same keys; the first chunk comes first.
    plain = [rows_of_first_items("plain_128", ["1x1x301x128:f16"] * 3, n, 256, kernels) for n in (1, 2)]
    assert plain == [104, 208], plain


def check_sections(folder):
    """Keys and values of two KV heads fit into the cache: a section of four heads is followed by one of two."""
    program = folder / "grouped.mlir"
    program.write_text(GROUPED)
    kernels = kernels_of_first_items(program, 1, folder)
    shapes = ["1x6x301x256:f16", *["1x3x11000x256:f16"] * 2]
    rows = {n: rows_of_first_items("grouped", shapes, n, 512, kernels, program) for n in (4, 12, 14, 17, 18)}
    first = 4 * 301
    # 18 CTAs leave no row, so each item is that of one of them.
    assert rows == {4: 4 * 93, 12: first, 14: first + 2 * 93, 17: first + 2 * 93 + 3 * 104, 18: math.inf}, rows


def main():
    with tempfile.TemporaryDirectory() as name:
        check_counts(pathlib.Path(name))
        check_order(pathlib.Path(name))
        check_sections(pathlib.Path(name))


if __name__ == "__main__":
    sys.exit(main())
