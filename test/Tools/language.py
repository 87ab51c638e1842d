"""Every program that docs/reference/language.md shows is parsed, verified, printed back and compiled.

RUN: %python %s %src %t
"""

import pathlib
import re
import shutil
import subprocess
import sys

source, folder = map(pathlib.Path, sys.argv[1:])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
blocks = re.findall(r"```mlir\n(.*?)```", (source / "docs" / "reference" / "language.md").read_text(), re.S)
assert len(blocks) >= 5, len(blocks)
for number, block in enumerate(blocks):
    program = folder / f"{number}.mlir"
    program.write_text(block)
    for command in (["saccade-opt", program], ["saccade-compile", program, "-o", folder / f"{number}.o"]):
        print("+", *command, flush=True)
        subprocess.run(command, check=True)
