"""Mutated StableHLO programs are compiled or rejected with a diagnostic; none crashes the importer.

RUN: %python %s %S/../Import/StableHLO/import-stablehlo.mlir %t --count 60
"""

import argparse
import pathlib
import random
import re
import subprocess

options = argparse.ArgumentParser()
options.add_argument("programs", help="programs, separated as for --split-input-file")
options.add_argument("output", help="file for the current mutant")
options.add_argument("--count", type=int, default=60)
options.add_argument("--seed", type=int, default=0)
given = options.parse_args()
programs = pathlib.Path(given.programs).read_text().split("// -----")
NUMBERS = ["0", "1", "2", "-1", "3", "7", "64", "9223372036854775807", "-9223372036854775808"]
WORDS = ["f32", "i32", "i1", "bf16", "i64", "ui8", "index"]


def mutate(text, choose):
    """One to three changes."""
    for _ in range(choose.randint(1, 3)):
        kind = choose.randrange(5)
        if kind < 2:
            found = list(re.finditer(r"(?<![%\w])-?\d+(?!\w)", text))
            new = choose.choice(NUMBERS)
        elif kind == 2:
            # Upstream's own parser does not survive array<index: ...>.
            found = list(re.finditer(r"(?<!array<)\b(?:f32|i32|i1|i64)\b", text))
            new = choose.choice(WORDS)
        elif kind == 3:
            found = list(re.finditer(r"(?<=stablehlo\.)[a-z_]+(?=\")", text))
            new = choose.choice([match[0] for match in found] or ["add"])
        else:
            found = list(re.finditer(r"\n[^\n]*",
                                     text)) if choose.random() < 0.3 else list(re.finditer(r"\w+ = [^,>}]+,? ?", text))
            new = ""
        if found:
            match = choose.choice(found)
            text = text[: match.start()] + new + text[match.end():]
    return text


refused = 0
for i in range(given.count):
    choose = random.Random(given.seed * 1_000_003 + i)
    text = mutate(choose.choice(programs), choose)
    pathlib.Path(given.output).write_text(text)
    done = subprocess.run(["saccade-opt", given.output, "--allow-unregistered-dialect", "--attn-import-stablehlo", "-o",
                           "/dev/null"],
                          capture_output=True, text=True, timeout=60)
    survived = done.returncode in (0, 1) and "internal error" not in done.stderr
    assert survived, f"mutant {i} of seed {given.seed}:\n{text}\n{done.stderr}"
    refused += done.returncode
print(f"{given.count} mutants, {refused} refused")
