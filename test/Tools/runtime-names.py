"""No entry may have the name of a runtime function: the compiler's list of them equals that of the archive.

RUN: %python %s %src %build %t
"""

import pathlib
import re
import shutil
import subprocess
import sys

source, build, folder = map(pathlib.Path, sys.argv[1:4])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
listed = subprocess.run(["llvm-nm", "--defined-only", "--extern-only", build / "lib" / "libSaccadeRuntime.a"],
                        check=True, stdout=subprocess.PIPE, text=True).stdout
symbols = set(re.findall(r"\b(saccade_\w+)", listed))
assert "saccade_parallel_for" in symbols, symbols
text = (source / "lib" / "Target" / "EmitEntryPoints.cpp").read_text()
names = re.findall(r'"(\w+)"', re.search(r"runtimeSymbols\[\] = {([^}]*)}", text)[1])
assert sorted(names) == sorted(symbols), (names, symbols)


def compile_entry(name):
    program = folder / f"{name}.mlir"
    program.write_text(f"func.func @{name}(%a: tensor<?xf32>) -> tensor<?xf32> {{ return %a : tensor<?xf32> }}\n")
    return subprocess.run(["saccade-compile", program, "-o", folder / "out.o"], stderr=subprocess.PIPE, text=True)


assert compile_entry("parallel").returncode == 0
for symbol in sorted(symbols):
    done = compile_entry(symbol.removeprefix("saccade_"))
    expected = f"defines the symbol '{symbol}', which belongs to the runtime"
    assert done.returncode == 1 and expected in done.stderr, (symbol, done)
