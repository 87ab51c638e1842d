"""Mutated PyTorch programs are compiled or rejected with a diagnostic; none crashes the importer.

RUN: %python %s %S/../Import/Torch/import-torch.mlir %S/Inputs/torch.mlir %t --count 60
"""

import argparse
import pathlib
import random
import re
import subprocess

options = argparse.ArgumentParser()
options.add_argument("programs", nargs=2, help="files of programs, separated as for --split-input-file")
options.add_argument("output", help="file for the current mutant")
options.add_argument("--count", type=int, default=60)
options.add_argument("--seed", type=int, default=0)
given = options.parse_args()
programs = [each for path in given.programs for each in pathlib.Path(path).read_text().split("// -----")]
NUMBERS = ["0", "1", "2", "-1", "3", "-3", "7", "64", "9223372036854775807", "-9223372036854775808"]
TYPES = ["f32", "i32", "i1", "bf16", "i64", "ui8", "index", "complex<f32>"]
VALUES = ["0 : i64", "-1 : i64", "1.5 : f64", "0x7FF8000000000000 : f64", "true", "unit", "[]", "[0, unit]", '"x"',
          "f32", "i1"]
NAMES = r'(?<=torch\.)[a-z_]+\.[a-z_0-9]+(?=")'
everywhere = sorted(set(re.findall(NAMES, "".join(programs))))


def mutate(text, choose):
    """One to three changes."""
    for _ in range(choose.randint(1, 3)):
        kind = choose.randrange(7)
        if kind < 2:
            found, new = r"(?<![%\w.])-?\d+(?![\w.])", choose.choice(NUMBERS)
        elif kind == 2:
            found, new = r"\b(?:f32|i32|i1|i64|f64|bf16)\b", choose.choice(TYPES)
        elif kind == 3:
            found, new = NAMES, choose.choice(everywhere)
        elif kind == 4:
            found, new = r"(?<=\w = )(?:\[[^]\"]*\]|[-\w.]+ : [if]64|\"\w*\"|true|false)", choose.choice(VALUES)
        elif kind == 5:
            new = choose.choice(["tensor<", "tensor<0x", "tensor<?x", "tensor<3x?x1x"])
            found = r"tensor<(?:[\d?]+x)+(?=[a-z])"
        else:
            found, new = (r"\n[^\n]*" if choose.random() < 0.3 else r"\b\w+ = [^,>}\[]+,? ?"), ""
        matches = list(re.finditer(found, text))
        if matches:
            match = choose.choice(matches)
            # Types change at all their uses, otherwise the text would not parse.
            if kind in (2, 5) and choose.random() < 0.8:
                text = text.replace(match[0], new) if kind == 5 else re.sub(rf"(?<=x|<){match[0]}\b", new, text)
            else:
                text = text[: match.start()] + new + text[match.end():]
    return text


refused = 0
for i in range(given.count):
    choose = random.Random(given.seed * 1_000_003 + i)
    text = mutate(choose.choice(programs), choose)
    pathlib.Path(given.output).write_text(text)
    done = subprocess.run(["saccade-opt", given.output, "--allow-unregistered-dialect", "--attn-import-torch",
                           "-o", "/dev/null"], capture_output=True, text=True, timeout=60)
    said = done.returncode == 0 or "error:" in done.stderr
    assert done.returncode in (0, 1) and said and "internal error" not in done.stderr, \
        f"mutant {i} of seed {given.seed}:\n{text}\n{done.stderr}"
    refused += done.returncode
print(f"{given.count} mutants, {refused} refused")
