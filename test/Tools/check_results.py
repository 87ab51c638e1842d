# RUN: %python %s %cxx %t
"""saccade-run --check compares every result: with any set of wrong results, it names these and ends with exit code 5."""
import itertools
import os
import re
import subprocess
import sys

cxx, scratch = sys.argv[1:3]
os.makedirs(scratch, exist_ok=True)
COUNT = 3

# Compiled code calls tanf, the reference does not: results with a tangent are wrong.
source, library, program = (os.path.join(scratch, name) for name in ("tan.c", "tan.so", "subsets.mlir"))
with open(source, "w") as file:
    file.write("float tanf(float x) { return x + 1; }\n")
subprocess.run([cxx, "-x", "c", "-shared", "-fPIC", "-o", library, source], check=True)

subsets = list(itertools.product([False, True], repeat=COUNT))
types = ", ".join(["tensor<5xf32>"] * COUNT)
with open(program, "w") as file:
    for number, wrong in enumerate(subsets):
        file.write(f"func.func @f{number}(%x: tensor<5xf32>) -> ({types}) {{\n")
        for i, is_wrong in enumerate(wrong):
            op = "math.tan %x" if is_wrong else "arith.addf %x, %x"
            file.write(f"  %r{i} = {op} : tensor<5xf32>\n")
        file.write(f"  return {', '.join(f'%r{i}' for i in range(COUNT))} : {types}\n}}\n")

failures = 0
for number, wrong in enumerate(subsets):
    command = ["saccade-run", program, f"--entry=f{number}", "--check", "--arg=5:f32:1"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": library})
    found = {int(i): text.startswith("agrees") for i, text in re.findall(r"check result #(\d+),.*?: (\w.*)", done.stdout)}
    if done.returncode != (5 if any(wrong) else 0) or found != {i: not each for i, each in enumerate(wrong)}:
        failures += 1
        print(f"FAILED: wrong results {wrong}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
sys.exit(failures != 0)
