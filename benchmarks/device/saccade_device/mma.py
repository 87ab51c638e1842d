"""Conformance of mma.sync: eight warps with one instruction each, compared with exact sums."""

import random
import struct

from .cases import numbers
from .instructions import THREADS, entry

EPS = 2.0**-24


def pack(dtype, values):
    """The bytes of values that are exactly representable in the type."""
    if dtype == "f16":
        return struct.pack(f"<{len(values)}e", *values)
    if dtype == "s8":
        return struct.pack(f"<{len(values)}b", *map(int, values))
    words = struct.unpack(f"<{len(values)}I", struct.pack(f"<{len(values)}f", *values))
    if dtype == "bf16":
        return struct.pack(f"<{len(values)}H", *(word >> 16 for word in words))
    return struct.pack(f"<{len(values)}I", *words)


def number(dtype, rng, is_integer):
    """A random small integer, or a representable float near 1."""
    if is_integer:
        return float(rng.getrandbits(7) - 64)
    bits = {"f16": 10, "bf16": 7, "tf32": 10, "f32": 23}[dtype]
    magnitude = (1 + rng.getrandbits(bits) / 2**bits) * 2.0 ** (rng.getrandbits(3) - 5)
    return -magnitude if rng.getrandbits(1) else magnitude


class MmaSync:
    """mma.sync.aligned.m16n8k<depth>, with the fragment layouts of the PTX ISA manual.

    Lane 4 g + t holds 4-byte runs of rows g and g + 8 of A, runs of column g of B, and columns 2 t, 2 t + 1 of rows g
    and g + 8 of C.
    """

    def __init__(self, depth, dtype, is_integer):
        self.depth, self.dtype, self.is_integer = depth, dtype, is_integer
        self.sum_type = "s32" if dtype == "s8" else "f32"
        self.run = {"f16": 2, "bf16": 2, "tf32": 1, "s8": 4}[dtype]
        self.parts = depth // (4 * self.run)  # registers of B; A has as many for each of its two rows
        self.text = f"mma.sync.aligned.m16n8k{depth}.row.col.{self.sum_type}.{dtype}.{dtype}.{self.sum_type}"
        self.name = self.text + (" of integers" if is_integer else "")

    bytes = 16 * THREADS

    def ptx(self, name):
        count = 2 * self.parts
        registers = "  .reg .b32 %a<4>, %b<2>, %c<4>;\n  .reg .b64 %q;\n"
        loads = ""
        for n, (letter, used) in enumerate((("a", count), ("b", self.parts), ("c", 4))):
            loads += f"  add.s64 %q, %p{n}, %at;\n"
            loads += "".join(f"  ld.global.b32 %{letter}{i}, [%q+{4 * i}];\n" for i in range(used))
        rows = [", ".join(f"%{letter}{i}" for i in range(used))
                for letter, used in (("c", 4), ("a", count), ("b", self.parts))]
        mma = f"  {self.text} {{{rows[0]}}}, {{{rows[1]}}}, {{{rows[2]}}}, {{{rows[0]}}};\n"
        return entry(name, f"{loads}{mma}  add.s64 %q, %p3, %at;\n"
                           "  st.global.v4.b32 [%q], {%c0, %c1, %c2, %c3};\n", registers)

    def matrices(self, seed):
        """[(a, b, c)] of the warps; a and c by rows, b by columns."""
        rng = random.Random(1000 + seed)
        total = "s8" if self.dtype == "s8" else "f32"
        return [([[number(self.dtype, rng, self.is_integer) for _ in range(self.depth)] for _ in range(16)],
                 [[number(self.dtype, rng, self.is_integer) for _ in range(self.depth)] for _ in range(8)],
                 [[number(total, rng, self.is_integer) for _ in range(8)] for _ in range(16)])
                for _ in range(THREADS // 32)]

    def operands(self, seed):
        """The fragments of A, B and C, 16 bytes per lane each."""
        contents = [b"", b"", b""]
        for a, b, c in self.matrices(seed):
            for lane in range(32):
                g, t = divmod(lane, 4)
                runs = [slice((part * 4 + t) * self.run, (part * 4 + t + 1) * self.run) for part in range(self.parts)]
                of_a = b"".join(pack(self.dtype, a[row][run]) for run in runs for row in (g, g + 8))
                of_b = b"".join(pack(self.dtype, b[g][run]) for run in runs)
                sums = [c[row][2 * t + i] for row in (g, g + 8) for i in (0, 1)]
                of_c = struct.pack("<4i", *map(int, sums)) if self.sum_type == "s32" else pack("f32", sums)
                for n, content in enumerate((of_a, of_b, of_c)):
                    contents[n] += content.ljust(16, b"\0")
        return contents

    def compare(self, found, expected, seed):
        """Compares integers bitwise with the simulator, floats with the exact sums."""
        if self.is_integer:
            return sum(bin(x ^ y).count("1") for x, y in zip(found, expected)), 0, "different bits"
        values, worst, at = numbers("f32", found), 0.0, 0
        for a, b, c in self.matrices(seed):
            for lane in range(32):
                g, t = divmod(lane, 4)
                for row in (g, g + 8):
                    for column in (2 * t, 2 * t + 1):
                        terms = [x * y for x, y in zip(a[row], b[column])] + [c[row][column]]
                        error = abs(values[at] - sum(terms)) / sum(map(abs, terms)) / EPS
                        worst, at = max(worst, error if error == error else float("inf")), at + 1
        return worst, float(self.depth + 6), "eps"


MMA = [MmaSync(depth, dtype, is_integer) for is_integer in (True, False)
            for dtype, depth in (("f16", 16), ("f16", 8), ("bf16", 16), ("bf16", 8), ("tf32", 8), ("tf32", 4))] + [
    MmaSync(32, "s8", True), MmaSync(16, "s8", True)]
