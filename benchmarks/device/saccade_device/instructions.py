"""Conformance of single PTX instructions: one kernel per instruction, its inputs and its tolerance.

The same kernels run on the simulator when a bundle is made, and on the GPU. Data movement, integers, conversions, rounded
arithmetic and mma of small integers must be bit-identical. Approximate functions have a tolerance in ulp. Other mma
results must be within (k + 6) eps (sum |a b| + |c|) of the exact sum, eps = 2^-24.
"""

import random
import struct

THREADS = 256
HEADER = ".version 8.0\n.target sm_80\n.address_size 64\n"
EXTREMES = {2: [0, 1, 0xFFFF, 0x8000, 0x7FFF, 0x3C00, 0x3F80, 0x7C00, 0xFC00, 0x7F80, 0x7E00, 0x0400, 0x83FF],
            4: [0, 1, 0xFFFFFFFF, 0x80000000, 0x7FFFFFFF, 0x3F800000, 0xBF800000, 0x7F800000, 0xFF800000, 0x7FC00000,
                0x00800000, 0x807FFFFF, 0x477FF000, 0x33000000, 0x3F801000, 0x3F808000],
            8: [0, 1, 2**64 - 1, 2**63, 2**63 - 1, 0x3FF0000000000000, 0xBFF0000000000000, 0x7FF0000000000000,
                0x7FF8000000000000, 0x0010000000000000, 0x3FF0000010000000, 0x47EFFFFFF0000000]}

# Text, result, sizes in bytes of the operands a, b, c. A result is bits (b) or a float (f, g for bf16) and its size in
# bytes. All NaNs of a float compare equal.
INTEGERS = [(f"{name} %d, %a, %b;", "b4", "44") for name in (
    "add.s32", "sub.s32", "add.sat.s32", "sub.sat.s32", "mul.lo.s32", "mul.hi.s32", "mul.hi.u32", "mul24.lo.s32",
    "mul24.lo.u32", "min.s32", "min.u32", "max.s32", "max.u32", "and.b32", "or.b32", "xor.b32", "shl.b32", "shr.u32",
    "shr.s32", "set.lt.u32.s32", "set.lo.u32.u32", "set.ne.u32.u32")] + [
    (f"{name} %d, %a, %b, %c;", "b4", "444") for name in (
        "mad.lo.s32", "mad.hi.u32", "mad.hi.s32", "sad.s32", "sad.u32", "shf.l.wrap.b32", "shf.r.wrap.b32",
        "shf.l.clamp.b32", "shf.r.clamp.b32", "bfe.u32", "bfe.s32", "prmt.b32", "prmt.b32.f4e", "prmt.b32.ecl",
        "slct.u32.s32")] + [
    (f"{name} %d, %a;", "b4", "4") for name in (
        "abs.s32", "neg.s32", "not.b32", "cnot.b32", "popc.b32", "clz.b32", "brev.b32", "bfind.u32", "bfind.s32",
        "bfind.shiftamt.u32")] + [
    (f"{name} %d, %a, %b;", "b8", "88") for name in (
        "add.s64", "sub.s64", "mul.lo.s64", "mul.hi.s64", "mul.hi.u64", "min.s64", "max.u64", "xor.b64")] + [
    (f"{name} %d, %a, %b;", "b8", "84") for name in ("shl.b64", "shr.u64", "shr.s64")] + [
    (f"{name} %d, %a, %b;", "b8", "44") for name in ("mul.wide.s32", "mul.wide.u32")] + [
    (f"{name} %d, %a, %b;", "b2", "22") for name in ("add.s16", "mul.lo.s16", "min.u16", "xor.b16")] + [
    ("or.b32 %b, %b, 1; div.u32 %d, %a, %b;", "b4", "44"), ("or.b32 %b, %b, 1; rem.u32 %d, %a, %b;", "b4", "44"),
    ("and.b32 %b, %b, 65535; or.b32 %b, %b, 1; div.s32 %d, %a, %b;", "b4", "44"),
    ("and.b32 %b, %b, 65535; or.b32 %b, %b, 1; rem.s32 %d, %a, %b;", "b4", "44"),
    ("bfi.b32 %d, %a, %b, 5, 9;", "b4", "44"), ("lop3.b32 %d, %a, %b, %c, 0xe8;", "b4", "444"),
    ("lop3.b32 %d, %a, %b, %c, 0x1b;", "b4", "444"), ("popc.b64 %d, %a;", "b4", "8"), ("clz.b64 %d, %a;", "b4", "8"),
    ("brev.b64 %d, %a;", "b8", "8")]
CONVERSIONS = [(f"cvt{kind} %d, %a;", result, size) for kind, result, size in [
    (f".{rounding}.{to}.f32", "b4", "4") for rounding in ("rzi", "rni", "rmi", "rpi") for to in ("s32", "u32")] + [
    (f".{rounding}.f32.{of}", "f4", "4") for rounding in ("rn", "rz", "rm", "rp") for of in ("s32", "u32")] + [
    (f".{rounding}.f32.f64", "f4", "8") for rounding in ("rn", "rz", "rm", "rp")] + [
    (f".{rounding}.f32.f32", "f4", "4") for rounding in ("rzi", "rni", "rmi", "rpi")] + [
    (".rn.f32.s64", "f4", "8"), (".rn.f32.u64", "f4", "8"), (".rn.f64.s32", "f8", "4"), (".rn.f64.s64", "f8", "8"),
    (".f64.f32", "f8", "4"), (".f32.f16", "f4", "2"), (".f32.bf16", "f4", "2"), (".rn.f16.f32", "f2", "4"),
    (".rz.f16.f32", "f2", "4"), (".rn.bf16.f32", "g2", "4"), (".rz.bf16.f32", "g2", "4"),
    (".rn.relu.f16.f32", "f2", "4"),
    (".rna.tf32.f32", "f4", "4"), (".sat.f32.f32", "f4", "4"), (".rn.f16.s32", "f2", "4"), (".sat.s8.s32", "b4", "4"),
    (".sat.u8.s32", "b4", "4"), (".sat.s32.u32", "b4", "4"), (".s32.s16", "b4", "4"), (".s32.s8", "b4", "4"),
    (".u32.u8", "b4", "4"), (".u64.u32", "b8", "4"), (".s64.s32", "b8", "4"), (".u32.u64", "b4", "8")]] + [
    ("cvt.rn.bf16x2.f32 %d, %a, %b;", "b4", "44"), ("cvt.rn.f16x2.f32 %d, %a, %b;", "b4", "44"),
    ("cvt.rn.relu.f16x2.f32 %d, %a, %b;", "b4", "44")]
ROUNDED = [(f"{name}.{rounding}.{kind} %d, %a, %b;", result, size * 2)
           for kind, result, size in (("f32", "f4", "4"), ("f64", "f8", "8"))
           for name in ("add", "sub", "mul", "div") for rounding in ("rn", "rz", "rm", "rp")] + [
    (f"fma.{rounding}.{kind} %d, %a, %b, %c;", result, size * 3)
    for kind, result, size in (("f32", "f4", "4"), ("f64", "f8", "8")) for rounding in ("rn", "rz", "rm", "rp")] + [
    (f"{name}.rn.{kind} %d, %a;", result, size) for kind, result, size in (("f32", "f4", "4"), ("f64", "f8", "8"))
    for name in ("sqrt", "rcp")] + [
    (f"{name} %d, %a, %b;", "f4", "44") for name in ("min.f32", "max.f32", "min.NaN.f32", "max.NaN.f32",
                                                     "add.rn.ftz.f32", "mul.rn.ftz.f32", "add.rn.sat.f32")] + [
    (f"{name} %d, %a, %b;", "b4", "44") for name in ("set.lt.u32.f32", "set.geu.u32.f32", "set.num.u32.f32",
                                                     "set.eq.u32.f32")] + [
    (f"{name} %d, %a, %b;", "f2", "22") for name in ("add.rn.f16", "sub.rn.f16", "mul.rn.f16", "min.f16",
                                                     "max.f16")] + [
    ("fma.rn.f16 %d, %a, %b, %c;", "f2", "222"), ("fma.rn.bf16 %d, %a, %b, %c;", "g2", "222")]
# Maximum ulp, and absolute error, according to the PTX ISA manual.
APPROXIMATE = [("ex2.approx.ftz.f32 %d, %a;", 2), ("ex2.approx.f32 %d, %a;", 2), ("rcp.approx.ftz.f32 %d, %a;", 1),
               ("rsqrt.approx.ftz.f32 %d, %a;", 2), ("sqrt.approx.ftz.f32 %d, %a;", 2),
               ("lg2.approx.ftz.f32 %d, %a;", 4, 2.0**-22),
               ("tanh.approx.f32 %d, %a;", 8192)]
MOVES = [f"shfl.sync.{how} %d, %a, {lane}, -1;" for how, lane in (
    ("idx.b32", "5, 31"), ("up.b32", "3, 0"), ("down.b32", "7, 31"), ("bfly.b32", "1, 31"), ("bfly.b32", "16, 31"),
    ("idx.b32", "%b, 31"), ("down.b32", "2, 0x181f"))]
LOADS = [f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16" for count in (1, 2, 4) for trans in ("", ".trans")]


def inputs(size, seed):
    """256 operands in 8-byte slots: extremes, small integers, floats near 1, random bits."""
    rng, bits = random.Random(seed), 8 * size
    mantissa = {2: 10, 4: 23, 8: 52}[size]
    one = {2: 0x3C00, 4: 0x3F800000, 8: 0x3FF << 52}[size]
    words = []
    for i in range(THREADS):
        kind = rng.getrandbits(2)
        if kind == 0:
            word = EXTREMES[size][rng.getrandbits(16) % len(EXTREMES[size])]
        elif kind == 1:
            word = rng.getrandbits(6)
        elif kind == 2:
            exponent, sign = rng.getrandbits(5) - 16, rng.getrandbits(1)
            word = one + (exponent << mantissa) + rng.getrandbits(mantissa) | sign << bits - 1
        else:
            word = rng.getrandbits(bits)
        words.append(word & (1 << bits) - 1)
    return struct.pack(f"<{THREADS}Q", *words)


def entry(name, body, registers=""):
    """A kernel with pointers a, b, c, d; %p0 to %p3 address the 8-byte slots of the thread."""
    return (f".visible .entry {name}(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd) {{\n"
            f"  .reg .b64 %p<4>, %at;\n  .reg .b32 %i, %block;\n{registers}"
            "  mov.u32 %i, %tid.x;\n  mul.wide.u32 %at, %i, 8;\n" +
            "".join(f"  ld.param.u64 %p{n}, [p{letter}];\n  add.s64 %p{n}, %p{n}, %at;\n"
                    for n, letter in enumerate("abcd")) +
            f"{body}  ret;\n}}\n")


def scalar(name, text, result, sizes):
    registers = "".join(f"  .reg .b{8 * int(size)} %{letter};\n" for letter, size in zip("abc", sizes))
    registers += f"  .reg .b{8 * int(result[1])} %d;\n"
    loads = "".join(f"  ld.global.b{8 * int(size)} %{letter}, [%p{n}];\n"
                    for n, (letter, size) in enumerate(zip("abc", sizes)))
    return entry(name, f"{loads}  {text}\n  st.global.b{8 * int(result[1])} [%p3], %d;\n", registers)


def matrix_load(name, text):
    """ldmatrix after cp.async: thread r copies row r of the four matrices, 16 bytes, and stores 16 bytes of results."""
    count = int(text.split(".x")[1][0])
    into = "{" + ", ".join(f"%r{i}" for i in range(count)) + "}"
    registers = "  .reg .b32 %r<4>, %s, %low, %high;\n  .reg .b64 %q;\n  .shared .align 16 .b8 tile[4096];\n"
    body = ("  mov.u32 %s, tile;\n  shl.b32 %low, %i, 4;\n  add.u32 %s, %s, %low;\n"
            "  add.s64 %q, %p0, %at;\n  cp.async.cg.shared.global [%s], [%q], 16;\n"
            "  cp.async.commit_group;\n  cp.async.wait_group 0;\n  bar.sync 0;\n"
            f"  mov.b32 %r0, 0;\n  mov.b32 %r1, 0;\n  mov.b32 %r2, 0;\n  mov.b32 %r3, 0;\n  {text} {into}, [%s];\n"
            "  add.s64 %q, %p3, %at;\n  st.global.v4.b32 [%q], {%r0, %r1, %r2, %r3};\n")
    return entry(name, body, registers)


class Scalar:
    """An instruction that each lane executes independently."""

    def __init__(self, text, result, sizes, units=0, absolute=0.0):
        self.name, self.text, self.result, self.sizes = text.rstrip(";"), text, result, sizes
        self.units, self.absolute = units, absolute  # tolerance: either is sufficient

    def ptx(self, name):
        return scalar(name, self.text, self.result, self.sizes)

    def operands(self, seed):
        return [inputs(int(size), 4 * seed + n) for n, size in enumerate(self.sizes)]

    bytes = 8 * THREADS

    def compare(self, found, expected, seed):
        """(largest distance, tolerance, unit)."""
        count, size = len(found) // 8, int(self.result[1])
        both = zip(struct.unpack(f"<{count}Q", found), struct.unpack(f"<{count}Q", expected))
        worst = max(self._distance(x, y, size) for x, y in both)
        return worst, self.units, "ulp" if self.units else "different bits"

    def _distance(self, x, y, size):
        if x == y:
            return 0
        infinity = {"f2": 0x7C00, "g2": 0x7F80, "f4": 0x7F800000, "f8": 0x7FF << 52}.get(self.result)
        below = (1 << 8 * size - 1) - 1
        if infinity and x & below > infinity and y & below > infinity and max(x, y) < 1 << 8 * size:
            return 0
        if not self.units:
            return bin(x ^ y).count("1")
        one, other = (struct.unpack("<f", struct.pack("<I", z))[0] for z in (x, y))
        if abs(one - other) <= self.absolute:
            return 0
        ordered = [-(z & below) if z > below else z for z in (x, y)]
        return abs(ordered[0] - ordered[1])


class Move(Scalar):
    """A warp-wide data movement instruction."""

    def __init__(self, text):
        super().__init__(text, "b4", "44")


class MatrixLoad:
    """cp.async, a barrier, and ldmatrix."""

    bytes = 16 * THREADS

    def __init__(self, text):
        self.name, self.text = text, text

    def ptx(self, name):
        return matrix_load(name, self.text)

    def operands(self, seed):
        return [inputs(8, seed) + inputs(8, seed + 1)]

    def compare(self, found, expected, seed):
        return sum(bin(x ^ y).count("1") for x, y in zip(found, expected)), 0, "different bits"


def group_of(instructions):
    """The PTX module of a group; kernels are named k0, k1, ..."""
    return HEADER + "".join(each.ptx(f"k{i}") for i, each in enumerate(instructions))


def groups():
    from .mma import MMA
    return {
        "data movement": [Move(text) for text in MOVES] + [MatrixLoad(text) for text in LOADS],
        "integers": [Scalar(*each) for each in INTEGERS],
        "conversions": [Scalar(*each) for each in CONVERSIONS],
        "rounded arithmetic": [Scalar(*each) for each in ROUNDED],
        "approximate functions": [Scalar(text, "f4", "4", *allowed) for text, *allowed in APPROXIMATE],
        "mma": MMA,
    }


def execute(driver, instructions):
    """The results of a group on a driver's GPU."""
    module, results = driver.load(group_of(instructions)), []
    for i, each in enumerate(instructions):
        operands = [driver.put(content) for content in each.operands(i)]
        result = driver.put(bytes(each.bytes))
        pointers = operands + [operands[0]] * (3 - len(operands)) + [result]
        driver.launch(module, f"k{i}", struct.pack("<4Q", *pointers), THREADS)
        results.append(driver.get(result))
        driver.release()
    return results


def record(driver, folder):
    """Writes the results of a driver's GPU, for `check`."""
    for name, instructions in groups().items():
        (folder / f"instructions-{name.replace(' ', '-')}.bin").write_bytes(b"".join(execute(driver, instructions)))


def check(driver, folder, name):
    """Compares a group with `record`: ([(group, instruction, distance, tolerance, unit)], passed, description)."""
    expected = (folder / f"instructions-{name.replace(' ', '-')}.bin").read_bytes()
    lines, failed, at = [], [], 0
    instructions = groups()[name]
    for i, (each, content) in enumerate(zip(instructions, execute(driver, instructions))):
        worst, allowed, unit = each.compare(content, expected[at:at + each.bytes], i)
        at += each.bytes
        lines.append((name, each.name, worst, allowed, unit))
        if not worst <= allowed:
            failed.append(f"; {each.name}: error {worst:.3g} {unit}, expected at most {allowed:.3g}")
    return lines, not failed, f"{len(lines) - len(failed)} of {len(lines)} as simulated" + "".join(failed)
