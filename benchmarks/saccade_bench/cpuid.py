"""Hides CPU features from the contenders, so that peers too run on the instructions of the measured CPU target."""

import os
import pathlib
import subprocess
import sys

from .artifact import run, toolchain

AMX = ["7.0.d.1400000", "7.0.d.2000000"]  # AMX-BF16 and AMX-TILE, AMX-INT8
# AVX512-VNNI, AVX512-FP16; AVX-VNNI, AVX512-BF16 and later; AVX-VNNI-INT8, AVX-NE-CONVERT, AVX-VNNI-INT16 and AVX10.
DOT_PRODUCTS = ["7.0.c.800", "7.0.d.800000", "7.1.a.ffffffff", "7.1.d.80530"]
# F, DQ, IFMA, CD, BW and VL; VBMI, VBMI2, BITALG and VPOPCNTDQ; VP2INTERSECT.
AVX512 = ["7.0.b.d0230000", "7.0.c.5042", "7.0.d.100"]
# The features that a processor of a CPU target does not have, as LEAF.SUBLEAF.REGISTER.MASK of CPUID.
HIDDEN = {"v3": AMX + DOT_PRODUCTS + AVX512, "v4": AMX + DOT_PRODUCTS, "v4-bf16": [*AMX, "7.0.d.800000"]}


def variables(build, folder, target):
    """The environment of workers for a CPU target. Without a way to hide features, a message says so and it is empty."""
    if target not in HIDDEN:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "limit_cpuid.so"
    compiler, *flags = toolchain(build)
    source = pathlib.Path(__file__).with_name("limit_cpuid.c")
    run([compiler, *flags, "-x", "c", "-O2", "-shared", "-fPIC", source, "-o", library])
    preload = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    made = {"LD_PRELOAD": preload, "SACCADE_HIDDEN_CPUID": ",".join(HIDDEN[target])}
    if subprocess.run([sys.executable, "-c", ""], env={**os.environ, **made}, capture_output=True).returncode == 0:
        print(f"all contenders see the features of {target} only")
        return made
    print(f"CPUID cannot be intercepted on this machine: peers use more instructions than {target} has", file=sys.stderr)
    return {}
