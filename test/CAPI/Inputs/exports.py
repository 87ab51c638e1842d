"""Compares what libsaccade.so exports with what saccade-c/saccade.h declares."""

import pathlib
import re
import subprocess
import sys

source, build = map(pathlib.Path, sys.argv[1:])
library = build / "lib" / "libsaccade.so"
header = (source / "include" / "saccade-c" / "saccade.h").read_text()
declared = set(re.findall(r"^SACCADE_API [^;{]*?\b(saccade_\w+)\(", header, re.M | re.S))
assert len(declared) > 20, declared
listed = subprocess.run(["llvm-nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
exported = {line.split()[-1]: line.split()[-2] for line in listed.splitlines()}
runtime_table = exported.pop("saccade_runtime_v1", None)
assert runtime_table == "u", f"saccade_runtime_v1 must be unique in a process, found {runtime_table}"
assert set(exported) == declared, f"exported only: {set(exported) - declared}; declared only: {declared - set(exported)}"
