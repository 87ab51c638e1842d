# REQUIRES: qemu
# RUN: %python %s %t %build/test/Unit/RuntimeTests
"""Emulated processors without AVX-512, or without one of the instructions of v3: the tools select the highest target
that the processor runs, and refuse the others."""

import pathlib
import shutil
import subprocess
import sys

folder = pathlib.Path(sys.argv[1])
folder.mkdir(exist_ok=True)
program = folder / "program.mlir"
program.write_text("""func.func @program(%x: tensor<?xf32>) -> tensor<?xf32> {
  %sum = arith.addf %x, %x : tensor<?xf32>
  return %sum : tensor<?xf32>
}
""")
failures = 0


def emulated(cpu, tool, *arguments):
    return subprocess.run(["qemu-x86_64", "-cpu", cpu, shutil.which(tool), *arguments], capture_output=True, text=True)


def check(good, done, what):
    global failures
    if not good:
        failures += 1
        print(f"FAILED: {what}: {done.args}, exit code {done.returncode}\n{done.stdout}{done.stderr}")


def refuses(cpu, target):
    done = emulated(cpu, "saccade-run", program, "--arg=9:f32", f"--target={target}")
    check(done.returncode == 4 and f"this machine cannot run code for target '{target}'" in done.stderr, done, "refusal")


def selects(cpu, target):
    """The target `host` is this one."""
    ours, expected = folder / "host.s", folder / "expected.s"
    done = emulated(cpu, "saccade-compile", program, "--emit=asm", "-o", ours)
    subprocess.run(["saccade-compile", program, f"--target={target}", "--emit=asm", "-o", expected], check=True)
    check(done.returncode == 0 and ours.read_bytes() == expected.read_bytes(), done, f"not {target}")


for target in ("v3-int8", "v4", "v4-bf16", "v4-amx"):
    refuses("max,-avx512f", target)
selects("max,-avx512f", "v3")
for feature in ("avx", "avx2", "fma", "f16c", "bmi2", "abm", "movbe", "popcnt"):  # "abm" is LZCNT
    refuses(f"max,-{feature}", "v3")
refuses("max,-avx2", "v4-expanded")
selects("max,-avx2", "portable")
# The runtime detects the same features.
for cpu in ("max,-avx512f", "max,-avx2", "max,-abm", "max,-movbe", "max,-xsave"):
    done = emulated(cpu, sys.argv[2], "--gtest_filter=EntryTargets.*")
    check(done.returncode == 0 and "[  PASSED  ]" in done.stdout, done, "selection of the code of a call")

sys.exit(1 if failures else 0)
