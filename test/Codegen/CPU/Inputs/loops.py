"""Prints the innermost loops of an assembly file (AT&T syntax, from standard input) that compute, one a line:

    loop: N multiply-adds, I instructions, V vector spills
    loop: N dot products, I instructions, V vector spills
and then every function that is called. A vector spill is a vector register moved to or from the stack; %rbp is a register
like any other in a function that makes no frame of it.
"""

import re
import sys

lines = sys.stdin.read().split("\n")
labels = {m.group(1): i for i, line in enumerate(lines) if (m := re.match(r"(\.L\w+):", line))}
loops = []
for i, line in enumerate(lines):
    jump = re.match(r"\s+j\w+\s+(\.L\w+)", line)
    if jump and labels.get(jump.group(1), i) < i:
        loops.append((labels[jump.group(1)], i))
for first, last in sorted(set(loops)):
    if any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
        continue
    body = [l.strip() for l in lines[first : last + 1] if l.startswith("\t") and not l.strip().startswith(".")]
    count = lambda names: sum(bool(re.match(names, l)) for l in body)
    work = {"dot products": count("vdpbf16ps"), "multiply-adds": count(r"vfn?madd|mulp[sd]")}
    function = next((i for i in range(first, 0, -1) if re.match(r"[^.\s#]\S*:", lines[i])), 0)
    has_frame = any(re.match(r"\s+movq\s+%rsp, %rbp", l) for l in lines[function:first])
    stack = r"\(%rsp|\(%rbp" if has_frame else r"\(%rsp"
    spills = sum(bool(re.search(stack, l) and re.search(r"%[xyz]mm", l)) for l in body)
    for name, products in work.items():
        if products:
            print(f"loop: {products} {name}, {len(body)} instructions, {spills} vector spills")
for name in sorted({m.group(1) for l in lines if (m := re.match(r"\s+call\w*\s+(\S+)", l))}):
    print(f"call: {name}")
