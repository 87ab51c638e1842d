# RUN: rm -rf %t && mkdir %t
# RUN: %python %s %src/examples/alibi.mlir %t
"""The code for a target in a library for several targets is that of a library for this target alone, with its own instructions
only, and does not depend on the number of threads of the compiler. Targets with equal code have one copy of it, and so have
equal constants."""

import collections
import os
import pathlib
import re
import subprocess
import sys

REGISTERS = ["xmm", "ymm", "zmm"]
TARGETS = ["portable", "v3", "v3-int8", "v4", "v4-bf16", "v4-amx"]
WIDTHS = {"portable": 0, "v3": 1, "v3-int8": 1}  # numbers of registers; of other targets the last

folder = pathlib.Path(sys.argv[2])


def compile_library(program, targets, name, threads=None):
    """Compiles a library. `threads` is the number of processors that the compiler may use; None for all."""
    library = folder / name
    limit = threads and (lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads]))
    subprocess.run(["saccade-compile", program, "--emit=so", f"--target={','.join(targets)}", "-o", library], check=True,
                   preexec_fn=limit, stderr=subprocess.DEVNULL)  # fmt: skip
    return library


def disassemble(library):
    """The instructions of each function, without addresses and without those that fill the space after it."""
    text = subprocess.run(["llvm-objdump", "-d", "--no-leading-addr", "--no-show-raw-insn", library], check=True,
                          stdout=subprocess.PIPE, text=True).stdout  # fmt: skip
    functions = re.findall(r"^<(.*)>:\n((?:.+\n)+)", text, re.M)
    names = [name for name, _ in functions]
    assert len(set(names)) == len(names), "functions with equal names"
    found = {}
    for name, body in functions:
        lines = re.sub(r"-?0x[0-9a-f]+ <.*>|-?0x[0-9a-f]+\(%rip\).*", "", body).split("\n")
        while re.fullmatch(r"\s*|.*\t(int3|nop[lw]?)\b.*", lines[-1]):
            lines.pop()
        found[name] = lines
    return found


def widest(body):
    """The number of the widest vector registers of a function."""
    used = [i for i, register in enumerate(REGISTERS) if any(f"%{register}" in line for line in body)]
    masks = 2 * any(re.search(r"%k[0-7]\b", line) for line in body)
    return max([masks, *used], default=0)


def check(program, entry, codes, among=TARGETS, again=False):
    """`codes` has the targets for which the code of the targets is generated. Those of `among` are compiled alone too, and if
    `again` is set, the library by a compiler with one thread."""
    joined = compile_library(program, TARGETS, f"{entry}.so")
    if again:
        other = compile_library(program, TARGETS, f"{entry}.again.so", threads=1)
        assert other.read_bytes() == joined.read_bytes(), "another library with one thread"
    found = disassemble(joined)
    kinds = collections.defaultdict(set)
    for name in found:
        if match := re.fullmatch(rf"(.*\b{entry}\b.*)\.({'|'.join(TARGETS)})", name):
            kinds[match[2]].add(match[1])
    assert kinds.keys() == set(codes), kinds.keys()
    for target, code in zip(TARGETS, codes):
        if target not in among:
            continue
        alone = disassemble(compile_library(program, [target], f"{entry}.alone.so"))
        assert any(name.endswith("_run") for name in kinds[code])
        for name in kinds[code]:
            differ = [pair for pair in zip(alone[name], found[f"{name}.{code}"]) if pair[0] != pair[1]]
            assert alone[name] == found[f"{name}.{code}"], f"{name} for {target}: {differ[:3]}"
        # Code without the name of a target selects one.
        width = max(widest(found[f"{name}.{code}"]) for name in kinds[code])
        assert width == WIDTHS.get(code, 2), f"{code} uses {REGISTERS[width]}"
    for name, body in found.items():
        assert widest(body) == 0 or name.endswith(tuple(codes)), f"{name} uses {REGISTERS[widest(body)]}"


# v3-int8 and v4-amx have the code of other targets.
check(sys.argv[1], "alibi", ["portable", "v3", "v3", "v4", "v4", "v4"], ["portable", "v3-int8", "v4-amx"])

# The instructions for bf16 differ.
bf16 = folder / "bf16.mlir"
types = "tensor<?x?x64xbf16>, tensor<?x?x64xbf16>, tensor<?x?x64xbf16>"
bf16.write_text(f"""func.func @attend(%q: tensor<?x?x64xbf16>, %k: tensor<?x?x64xbf16>, %v: tensor<?x?x64xbf16>) -> tensor<?x?x64xbf16> {{
  %o = attn.attention %q[h,s,d], %k[h,s,d], %v[h,s,d] : ({types}) -> tensor<?x?x64xbf16>
  return %o : tensor<?x?x64xbf16>
}}""")
check(bf16, "attend", TARGETS, again=True)

# The stages give one program for v4-bf16 and v4-amx, but LLVM selects instructions for bf16 by feature.
add = folder / "add.mlir"
add.write_text("""func.func @add(%x: tensor<?xbf16>) -> tensor<?xbf16> {
  %sum = arith.addf %x, %x : tensor<?xbf16>
  return %sum : tensor<?xbf16>
}""")
check(add, "add", TARGETS)

weights = folder / "weights.mlir"
content = bytes((7 * i * i + i // 11) % 251 for i in range(64 * 64))
floats = b"".join(bytes([low, 1, 2, 0x3F]) for low in content)
weights.write_text(f"""func.func @linear(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {{
  %w = arith.constant dense<"0x{floats.hex()}"> : tensor<64x64xf32>
  %zero = arith.constant 0.0 : f32
  %axis = arith.constant 0 : index
  %rows = tensor.dim %x, %axis : tensor<?x64xf32>
  %empty = tensor.empty(%rows) : tensor<?x64xf32>
  %init = linalg.fill ins(%zero : f32) outs(%empty : tensor<?x64xf32>) -> tensor<?x64xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x64xf32>, tensor<64x64xf32>) outs(%init : tensor<?x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}}""")
assert compile_library(weights, ["portable", "v3", "v4"], "weights.so").read_bytes().count(floats) == 1
