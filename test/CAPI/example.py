"""The program of docs/reference/c-api.md compiles as the page says, and prints what it says.

RUN: %python %s %src %t %c99
"""

import pathlib
import re
import shutil
import subprocess
import sys

source, folder = map(pathlib.Path, sys.argv[1:3])
compile_command = sys.argv[3:]
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
page = (source / "docs" / "reference" / "c-api.md").read_text()
(folder / "host.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
expected = re.search(r"It prints\s+`(.*?)`", page, re.S)[1]
subprocess.run([*compile_command, "host.c", "-o", "host"], cwd=folder, check=True)
found = subprocess.run(["./host"], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
assert found == expected, f"found {found!r}, expected {expected!r}"
