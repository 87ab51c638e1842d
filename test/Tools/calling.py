"""The C program of docs/guides/calling.md compiles as C, links against the runtime, and prints what the page says; with
a shared library and its header it needs nothing else, and Python calls that too.

RUN: %python %s %src %build %t %cxx
"""

import pathlib
import re
import shutil
import subprocess
import sys

source, build, folder = map(pathlib.Path, sys.argv[1:4])
compiler = sys.argv[4]
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
page = (source / "docs" / "guides" / "calling.md").read_text()
(folder / "host.c").write_text(re.search(r"```c\n(.*?)```", page, re.S)[1])
expected = re.search(r"it prints `(.*?)`", page)[1]
tensor = "tensor<?x?x4xf32>"
(folder / "attend.mlir").write_text(f"""func.func @attend(%q: {tensor}, %k: {tensor}, %v: {tensor}) -> {tensor} {{
  %o = attn.attention %q[b,s,d], %k[b,s,d], %v[b,s,d] : ({tensor}, {tensor}, {tensor}) -> {tensor}
  return %o : {tensor}
}}
""")

# A build with sanitizers links its runtime with the same flags.
cache = (build / "CMakeCache.txt").read_text()
flags = re.search(r"^CMAKE_EXE_LINKER_FLAGS:\w+=(.*)$", cache, re.M)[1].split()


def run(*command):
    print("+", *command, flush=True)
    return subprocess.run([str(word) for word in command], cwd=folder, check=True, stdout=subprocess.PIPE, text=True).stdout


run("saccade-compile", "attend.mlir", "--emit=obj", "-o", "attend.o")
run(compiler, "-x", "c", "-std=c99", "-Wall", "-Werror", "-I", source / "include", "-c", "host.c", "-o", "host.o")
run(compiler, *flags, "host.o", "attend.o", build / "lib" / "libSaccadeRuntime.a", "-pthread", "-o", "host")
found = run("./host").strip()
assert found == expected, f"found {found!r}, expected {expected!r}"

# The same program with the generated header, and the same library from Python.
program = (folder / "host.c").read_text()
program, replaced = re.subn(r'#include "saccade-c/DLTensor.h"|^const char \*saccade.*;$', "", program, flags=re.M)
assert replaced == 3, program
(folder / "host.c").write_text('#include "attend.h"\n' + program)
commands = re.findall(r"^saccade-compile .*--emit=so.*\n(cc .*)$", page, re.M)
run("saccade-compile", "attend.mlir", "--emit=so", "-o", "attend.so")
run("sh", "-c", commands[0].replace("cc ", f"{compiler} -x c -std=c99 -Wall -Werror ", 1).replace("host.c", "host.c -x none"))
found = run("./host").strip()
assert found == expected, f"found {found!r}, expected {expected!r}"
try:
    import tvm_ffi  # noqa: F401
except ImportError:
    sys.exit()
(folder / "host.py").write_text(re.search(r"```python\n(.*?)```", page, re.S)[1])
found = run(sys.executable, "host.py").split()
assert [float(word) for word in found] == [float(word) for word in expected.split()[1:]], f"found {found}, expected {expected}"
