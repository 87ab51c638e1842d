"""Prints a program whose score region adds elements of many tensors, or runs it: many_captures.py COUNT [PROGRAM]."""

import subprocess
import sys

count = int(sys.argv[1])
TENSOR, CAPTURE = "tensor<?x?x?x64xbf16>", "tensor<?x?x?x?xf32>"
names = [f"%a{i}" for i in range(count)]
if len(sys.argv) > 2:
    shapes = ["1x1x10x64:bf16"] * 3 + ["1x1x10x10:f32"] * count
    arguments = [f"--arg={shape}:{seed}" for seed, shape in enumerate(shapes, 1)]
    sys.exit(subprocess.run(["saccade-run", "--device=ptxsim", "--check", sys.argv[2], *arguments]).returncode)
body, sum = "", "%s"
for i, name in enumerate(names):
    body += f"      %x{i} = tensor.extract %c{i}[%b, %h, %i, %j] : {CAPTURE}\n"
    body += f"      %s{i} = arith.addf {sum}, %x{i} : f32\n"
    sum = f"%s{i}"
print(f"""func.func @attend(%q: {TENSOR}, %k: {TENSOR}, %v: {TENSOR}, {", ".join(f"{name}: {CAPTURE}" for name in names)}) -> {TENSOR} {{
  %o = attn.attention %q[b,h,s,d], %k[b,h,s,d], %v[b,h,s,d] captures({", ".join(names)} : {", ".join([CAPTURE] * count)})
    score(%s, %b, %h, %i, %j, {", ".join(f"%c{i}" for i in range(count))}) {{
{body}      attn.yield {sum} : f32
    }} : ({TENSOR}, {TENSOR}, {TENSOR}) -> {TENSOR}
  return %o : {TENSOR}
}}""")
