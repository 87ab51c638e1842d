# RUN: %python %s %src/examples/alibi.mlir %t.so
"""In a library for several targets, the code for a target has only its own instructions. LLVM writes all of it with one machine
description, that of the preferred target."""

import collections
import re
import subprocess
import sys

REGISTERS = ["xmm", "ymm", "zmm"]


def widest(library):
    """The widest vector registers of each function."""
    text = subprocess.run(["llvm-objdump", "-d", "--no-show-raw-insn", library], check=True, stdout=subprocess.PIPE, text=True).stdout
    found = collections.defaultdict(int)
    for name, body in re.findall(r"^[0-9a-f]+ <(.*)>:\n((?:.+\n)+)", text, re.M):
        used = [i for i, register in enumerate(REGISTERS) if f"%{register}" in body]
        masks = 2 * bool(re.search(r"%k[0-7]\b", body))
        found[name] = max([masks, *used])
    return found


program, library = sys.argv[1:]
targets = ["portable", "v3", "v4", "v4-bf16", "v4-amx"]
expected = [0, 1, 2, 2, 2]
subprocess.run(["saccade-compile", program, "--emit=so", f"--target={','.join(targets)}", "-o", library], check=True)
found = widest(library)
tasks = sorted(register for name, register in found.items() if re.match(r"alibi\.body_task0(\.\d+)?$", name))
assert tasks == expected, f"the tasks of the targets use {[REGISTERS[i] for i in tasks]}"
entries = {name: REGISTERS[register] for name, register in found.items()
           if register > 0 and "alibi" in name and "_task" not in name}  # fmt: skip
# Shape functions and bodies that start the tasks are code of their target; what selects a target is portable.
assert all(re.search(r"\.(body|shapes)(\.\d+)?$", name) for name in entries), entries
print(tasks, entries)
