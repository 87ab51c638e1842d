"""The README's graph is examples/soft-cap.mlir; its commands write what they promise.

REQUIRES: numpy
RUN: %python %s %src %t
"""

import pathlib
import re
import shutil
import subprocess
import sys

import numpy as np

source, folder = map(pathlib.Path, sys.argv[1:])
readme = (source / "README.md").read_text()
graph = re.search(r"```mlir\n(.*?)```", readme, re.S)[1]
assert graph == (source / "examples" / "soft-cap.mlir").read_text(), "the README's graph is not examples/soft-cap.mlir"

shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
(folder / "examples").symlink_to(source / "examples")

commands = [
    line.split("  #")[0]
    for block in re.findall(r"```sh\n(.*?)```", readme, re.S)
    for line in block.replace("\\\n", " ").splitlines()
    if line.startswith("saccade-")
]
assert len(commands) >= 4, commands
for command in commands:
    print("+", command, flush=True)
    subprocess.run(command, shell=True, check=True, cwd=folder)
assert np.load(folder / "o.npy").shape == (2, 8, 100, 64)
assert (folder / "soft_cap.so").stat().st_size > 0 and "saccade_soft_cap(" in (folder / "soft_cap.h").read_text()
