# The inner loops of the microkernels contain one instruction per product and operand, and little else: addresses are
# computed outside of them, and no register is reloaded from the stack.
# RUN: %python %s

import re
import subprocess

ATTENTION = """func.func @attention(%q: tensor<?x?x?x64xf32>, %k: tensor<?x?x?x64xf32>, %v: tensor<?x?x?x64xf32>)
    -> tensor<?x?x?x64xf32> {
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] : (tensor<?x?x?x64xf32>, tensor<?x?x?x64xf32>,
    tensor<?x?x?x64xf32>) -> tensor<?x?x?x64xf32>
  return %o : tensor<?x?x?x64xf32>
}
"""
MATMUL = """func.func @matmul(%x: tensor<?x?xf32>, %w: tensor<?x?xf32>, %m: index, %n: index) -> tensor<?x?xf32> {
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%m, %n) : tensor<?x?xf32>
  %z = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<?x?xf32>) outs(%z : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}
"""


def assembly(program, target):
    command = ["saccade-compile", "-", f"--target={target}", "--emit=asm", "-o", "-"]
    return subprocess.run(command, input=program, capture_output=True, text=True, check=True).stdout


def loops(text):
    """The instructions of each loop."""
    labels, instructions = {}, []
    for line in map(str.strip, text.splitlines()):
        if label := re.match(r"(\.LBB\w+):", line):
            labels[label[1]] = len(instructions)
        elif line and not line.startswith((".", "#")) and not line.endswith(":"):
            instructions.append(line)
    for end, instruction in enumerate(instructions):
        jump = re.match(r"j\w+\s+(\.LBB\w+)", instruction)
        if jump and labels.get(jump[1], end + 1) <= end:
            yield instructions[labels[jump[1]] : end + 1]


def inner_loops(text):
    """The instructions of each loop that contains no other jump."""
    for body in loops(text):
        if not any(each.startswith("j") for each in body[:-1]):
            yield body


def count(body, text):
    return sum(text in each for each in body)


def check(name, program, target, products):
    """Checks the loops with `products` multiply-adds, which are those of whole blocks of registers."""
    found = 0
    for body in inner_loops(assembly(program, target)):
        if sum(each.startswith("vfmadd231ps") for each in body) != products:
            continue
        found += 1
        # A load or broadcast per row and per vector, one counter and one pointer, the comparison and the jump.
        operands = {12: 6 + 2, 24: 12 + 2}[products]
        assert len(body) <= products + operands + 4, f"{name}, {target}: {len(body)} instructions\n" + "\n".join(body)
        assert not any("(%rsp)" in each or "(%rbp)" in each for each in body), f"{name}, {target}:\n" + "\n".join(body)
    assert found >= 2, f"{name}, {target}: {found} loops with {products} products"


check("attention", ATTENTION, "v3", 12)
check("matmul", MATMUL, "v3", 12)
check("attention", ATTENTION, "v4", 24)

# Beside the products, the loop over the panels of a copied LHS initializes, adds and stores 12 sums, and prefetches 6 lines of rows
# and 8 of panels. The partial sums of a block, and the lines of a panel, have constant distances.
# Rows that are copied are read from one pointer.
copied = [body for body in loops(assembly(MATMUL, "v3"))
          if count(body, "vfmadd231ps") == 48 and count(body, "prefetcht1") >= 14
          and len({each.split("(")[1].split(",")[0] for each in body if each.startswith("vbroadcastss")}) == 1]  # fmt: skip
smallest = min(copied, key=len)
assert len(smallest) <= 270 and count(smallest, "prefetcht1") == 14, "\n".join([f"{len(smallest)} instructions", *smallest])
