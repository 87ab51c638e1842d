# RUN: %python %s %S/Inputs %t
"""Errors of --emit=so; a failed write neither changes existing files nor leaves temporary ones."""

import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys

inputs, folder = map(pathlib.Path, sys.argv[1:3])
shutil.rmtree(folder, ignore_errors=True)
folder.mkdir(parents=True)
(folder / "temporary").mkdir()
program = str(inputs / "attention.mlir")
failures = 0


def expect(code, words, *arguments, left=(), environment=None, prepare=None):
    """Runs saccade-compile in the folder, which must then contain the files `left` and no others."""
    global failures
    done = subprocess.run(
        ["saccade-compile", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        preexec_fn=prepare,
        restore_signals=False,
        env=os.environ | {"TMPDIR": str(folder / "temporary")} | (environment or {}),
    )
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if str(path) != str(folder / "temporary"))
    text = done.stdout + done.stderr
    if done.returncode != code or words not in text or files != sorted(left):
        failures += 1
        print(arguments, "ended with", done.returncode, "expected", code, "with", repr(words), "and", left, "found", files)
        print(text, flush=True)
    for name in files:
        if code and (folder / name).read_bytes() != b"old":
            failures += 1
            print(arguments, "changed", name)
        (folder / name).unlink()


def source(name, text):
    path = folder.parent / (folder.name + "." + name)
    path.write_text(text)
    return str(path)


def function(name, visibility=""):
    return (f"func.func {visibility} @{name}(%x: tensor<?xf32>) -> tensor<?xf32> {{\n"
            "  %y = arith.addf %x, %x : tensor<?xf32>\n  return %y : tensor<?xf32>\n}\n")


# The command line.
expect(2, "a shared library needs a file: -o FILE", program, "--emit=so")
expect(2, "a shared library needs a file: -o FILE", program, "--emit=so", "-o", "-")
expect(2, "cannot both be 'x.h'", program, "--emit=so", "-o", "x.h")
expect(2, "cannot both be 'x.so'", program, "--emit=so", "-o", "x.so", "--header=x.so")
expect(2, "--header goes with --emit=so only", program, "--emit=obj", "-o", "x.o", "--header=x.h")
expect(2, "expected mlir, llvm, asm, obj, so, header, ptx or cubin", program, "--emit=dll", "-o", "x")
expect(2, "--stop-after requires --emit=mlir, got --emit=so", program, "--emit=so", "-o", "x.so", "--stop-after=tiling")

# The program.
for emit in ("--emit=so", "--emit=header"):
    output = ("-o", "x.so")
    expect(1, "has no public function", source("empty.mlir", "module {}\n"), emit, *output)
    expect(1, "has no public function", source("private.mlir", function("hidden", "private")), emit, *output)
    expect(1, "the name of entry 'a-b' cannot be part of a C identifier", source("name.mlir", function('"a-b"')), emit,
           *output)
    expect(1, "'saccade_twice_shapes'", source("meet.mlir", function("twice") + function("twice_shapes")), emit, *output)
    for name in ("parallel_for", "set_parallel_for", "entry_call", "runtime_v1"):
        expect(1, f"'saccade_{name}'", source("runtime.mlir", function(name)), emit, *output)
    expect(1, "query has 7 heads", str(inputs / "wrong-heads.mlir"), emit, *output)
# Keywords of C and leading digits are valid, because the names have a prefix.
expect(0, "", source("keyword.mlir", function("int") + function('"2nd"')), "--emit=so", "-o", "x.so", left=["x.so", "x.h"])

# Files.
expect(0, "", program, "--emit=so", "-o", "x.so", "--header=y.hpp", left=["x.so", "y.hpp"])
expect(0, "const char *saccade_attend(", program, "--emit=so", "-o", "x.so", "--header=-", left=["x.so"])
expect(0, "", program, "--emit=so", "-o", "/dev/null")
expect(3, "cannot write 'missing/x.so'", program, "--emit=so", "-o", "missing/x.so", "--header=x.h")
expect(3, "cannot write 'missing/x.h'", program, "--emit=so", "-o", "x.so", "--header=missing/x.h")
expect(3, "cannot write '/dev/full'", program, "--emit=so", "-o", "/dev/full")
expect(3, "cannot write '/dev/full'", program, "--emit=so", "-o", "/dev/full", "--header=x.h")
expect(3, "cannot write '/dev/full'", program, "--emit=so", "-o", "x.so", "--header=/dev/full")
for temporary in ("missing", "/dev/null"):
    expect(3, "linking needs temporary files", program, "--emit=so", "-o", "x.so", environment={"TMPDIR": temporary})

# A full disk, simulated by a limit on file sizes, for every large file that is written.
subprocess.run(["saccade-compile", program, "--emit=so", "-o", folder / "x.so"], check=True)
size = (folder / "x.so").stat().st_size


def limit(size):
    def prepare():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return prepare


for limit_bytes in (0, 1000, size // 2, size - 1):
    (folder / "x.so").write_text("old")
    (folder / "x.h").write_text("old")
    expect(3, "error: ", program, "--emit=so", "-o", "x.so", prepare=limit(limit_bytes), left=["x.so", "x.h"])
sys.exit(1 if failures else 0)
