#!/usr/bin/env python3
# REQUIRES: numpy
# RUN: %python %s
"""Kernels that skip blocks have the bits of kernels that compute all, and no wrong choice of blocks goes unnoticed.

A warp joins the mask of its lanes with redux.sync and skips the blocks of 16 × 16 pairs in which no bit is set. The PTX is
changed at these places. With all bits set, every block of a partial tile is computed: that kernel must have more
products and the same results. All other changes make the choice wrong, and PtxSim or the comparison with the reference
must report them.
"""

import re
import subprocess
import sys
import tempfile

from visited_tiles import DOCUMENTS, Runner, counts, document_ids

LENGTH = 192
JOIN = re.compile(r"\tredux\.sync\.or\.b32 \t(%r\d+), (%r\d+), (%r\d+);\n")
# The start of the block of code that ends with the first join, which evaluates the mask.
EVALUATION = re.compile(r"(?:^\$L\w+:\n)(?:(?!\$L)[^\n]*\n)*?(?=\tredux\.sync)", re.M)
JOINED = "\tredux.sync.or.b32 \t{0}, {1}, {2};\n"
CHANGES = {
    "each lane for itself": "\tmov.b32 \t{0}, {1};\n",
    "blocks in which no pair is visible": JOINED + "\tnot.b32 \t{0}, {0};\n",
    "blocks in which all lanes see a pair": "\tredux.sync.and.b32 \t{0}, {1}, {2};\n",
    "the block before each": JOINED + "\tshr.u32 \t{0}, {0}, {3};\n",
    "the block after each": JOINED + "\tshl.b32 \t{0}, {0}, {3};\n",
    "blocks in reverse order": JOINED + "\tbrev.b32 \t{0}, {0};\n",
}


def change_joins(ptx, text, where):
    """Changes the joins of the scores, whose blocks are 8 bits, or those of the values, whose blocks are one bit."""
    joins = list(JOIN.finditer(ptx))
    for join in reversed(joins):
        # The joins of the scores are in the code that evaluates the mask; one for each 32 scores.
        label = ptx.rfind("\n$L", 0, join.start())
        is_scores = len(re.findall(r"\tselp\.b32 \t%r\d+, -?\d+, 0, ", ptx[label:join.start()])) > 16
        if where == "both" or is_scores == (where == "scores"):
            new = text.format(join[1], join[2], join[3], 8 if is_scores else 1)
            ptx = ptx[:join.start()] + new + ptx[join.end():]
    return ptx


def swap_bits(ptx):
    """Exchanges the bits of each two scores that are evaluated."""
    def swapped(match):
        bit = int(match[2]) & 0xffffffff
        assert bit & (bit - 1) == 0
        other = bit << 1 if bit.bit_length() % 2 else bit >> 1
        return match[1] + str(other - (other >> 31 << 32))
    return EVALUATION.sub(lambda code: re.sub(r"(\tselp\.b32 \t%r\d+, )(-?\d+)(?=, 0, )", swapped, code[0]), ptx)


class Kernel:
    """A compiled kernel, and calls of its variants."""

    def __init__(self, runner, mask, ids):
        self.line, self.runner = runner.command(mask, LENGTH, LENGTH, ids), runner
        self.ptx = subprocess.run(["saccade-compile", self.line[1], "--target=sm_80"], capture_output=True, text=True,
                                  check=True).stdout

    def run(self, ptx):
        """(output, the bytes of the result, or None after an error)."""
        file, result = self.runner.folder / "kernel.ptx", self.runner.folder / "result.npy"
        result.unlink(missing_ok=True)
        file.write_text(ptx)
        done = subprocess.run([*self.line, f"--kernels={file}", f"--out={result}"], capture_output=True, text=True,
                              timeout=300)
        assert done.returncode >= 0, done.stderr
        return done.stdout + done.stderr, result.read_bytes() if done.returncode == 0 else None


def main():
    failures = []
    # Documents of 32 tokens and more, so that blocks at either end of a tile are skipped, and visible ones are partial.
    ids = document_ids(LENGTH, 6)
    masks = {"documents, causal": ("mask causal<top_left> " + DOCUMENTS, ids, list(CHANGES)),
             "causal": ("mask causal<5>", None, list(CHANGES)[:1])}
    with tempfile.TemporaryDirectory() as folder:
        for name, (mask, numbers, changes) in masks.items():
            kernel = Kernel(Runner(folder), mask, numbers)
            joins = len(JOIN.findall(kernel.ptx))
            assert joins >= 3, f"{joins} joins"
            output, result = kernel.run(kernel.ptx)
            all_output, all_result = kernel.run(change_joins(kernel.ptx, "\tmov.b32 \t{0}, -1;\n", "both"))
            print(f"{name}: {counts(output)[0]} products, {counts(all_output)[0]} of all blocks", flush=True)
            assert counts(output)[0] < counts(all_output)[0]
            assert result and result == all_result, "the bits differ if blocks are skipped"
            variants = {f"{change}, {where}": change_joins(kernel.ptx, CHANGES[change], where)
                        for change in changes for where in ("scores", "values")}
            variants["exchanged bits"] = swap_bits(kernel.ptx)
            for change, ptx in variants.items():
                assert ptx != kernel.ptx, change
                output, found = kernel.run(ptx)
                reason = re.search(r"divergence|differs", output)
                print(f"    {change}: {'MISSED' if found else reason and reason[0]}", flush=True)
                if found or not reason or ("itself" in change and "divergence" not in output):
                    failures.append((name, change))
    assert not failures, failures


if __name__ == "__main__":
    sys.exit(main())
