"""Finds the innermost compute loops of an assembly file (x86 in AT&T syntax, or AArch64). As a program it prints those of standard input,
one per line:

    loop: N multiply-adds, I instructions, V vector spills
    loop: N dot products, I instructions, V vector spills
    loop: N int8 dot products, I instructions, V vector spills
and then every function that is called. A vector spill is a vector register moved to or from the stack, or an address in the
stack, which SVE registers need. %rbp counts as a stack access only in functions that use it as frame pointer.
"""

import dataclasses
import re
import sys

WORK = {"dot products": "vdpbf16ps|bfdot|bfmmla", "int8 dot products": "vpdpbusd|vpdpbssd|smmla", "multiply-adds": r"vfn?madd|mulp[sd]|fmla"}
VECTOR = r"%[xyz]mm|\b[qdz]\d"  # a vector register, of AArch64 as instructions that move it name it
STORED = r"%[xyz]mm\d+, \S*(?:{stack})|st[rpu]+\s+[qdz]\d.*{stack}"


@dataclasses.dataclass
class Loop:
    body: list[str]  # instructions
    stack: str  # pattern of stack operands

    def count(self, names):
        return sum(bool(re.match(names, line)) for line in self.body)

    def multiplications(self, width=""):
        """Vector multiplications in registers of this width ("zmm")."""
        return sum(any(re.match(names, line) for names in WORK.values()) and width in line for line in self.body)

    @property
    def is_exponential(self):
        """Whether the loop scales values by powers of 2."""
        return self.count(r"v?pslld|v?psllq|vscalef|(shl|lsl)\b.*#(23|52)$") > 0

    @property
    def spills(self):
        return sum(bool(re.search(self.stack, line) and re.search(rf"{VECTOR}|^(add|addvl|sub)\s+x\d", line)) for line in self.body)

    @property
    def stored_spills(self):
        stored = STORED.format(stack=self.stack)
        return sum(bool(re.search(stored, line)) for line in self.body)

    @property
    def reloads(self):
        """Instructions that read or write the stack."""
        return sum(bool(re.search(self.stack, line)) for line in self.body)


def innermost_loops(assembly):
    lines = assembly.split("\n")
    labels = {m.group(1): i for i, line in enumerate(lines) if (m := re.match(r"(\.L\w+):", line))}
    loops = []
    for i, line in enumerate(lines):
        jump = re.match(r"\s+(?:j\w+|b|b\.\w+|cbn?z\s+\w+,|tbn?z\s+\w+, \S+,)\s+(\.L\w+)", line)
        if jump and labels.get(jump.group(1), i) < i:
            loops.append((labels[jump.group(1)], i))
    for first, last in sorted(set(loops)):
        if any(first <= a and b <= last and (a, b) != (first, last) for a, b in loops):
            continue
        body = [l.strip() for l in lines[first : last + 1] if re.match(r"\t[^./]", l)]
        function = next((i for i in range(first, 0, -1) if re.match(r"[^.\s#]\S*:", lines[i])), 0)
        has_frame = any(re.match(r"\s+(movq\s+%rsp, %rbp|(mov|add)\s+x29, sp)", l) for l in lines[function:first])
        stack = r"\(%rsp|\[sp\b|^(add|addvl|sub)\s+x\d+, sp"
        yield Loop(body, stack + r"|\(%rbp|\[x29\b|^(add|sub)\s+x\d+, x29" if has_frame else stack)


def calls(assembly):
    return sorted(set(re.findall(r"^\s+(?:call\w*|bl)\s+(\S+)", assembly, re.M)))


if __name__ == "__main__":
    assembly = sys.stdin.read()
    for loop in innermost_loops(assembly):
        for name, instructions in WORK.items():
            if count := loop.count(instructions):
                print(f"loop: {count} {name}, {len(loop.body)} instructions, {loop.spills} vector spills")
    for name in calls(assembly):
        print(f"call: {name}")
