"""Limits contenders to the instructions of a CPU target: CPU features are hidden from their processes. Where that is not
possible, options of libraries limit some of them."""

import dataclasses
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
# FMA, AVX and F16C; BMI1, AVX2 and BMI2; GFNI, VAES and VPCLMULQDQ; LZCNT. SSE3 to SSE4.2 and POPCNT remain, without
# which NumPy does not load.
AVX = ["1.0.c.30001000", "7.0.b.128", "7.0.c.700", "80000001.0.c.20"]
# The features that a processor of a CPU target does not have, as LEAF.SUBLEAF.REGISTER.MASK of CPUID.
HIDDEN = {"portable": AMX + DOT_PRODUCTS + AVX512 + AVX, "v3": AMX + DOT_PRODUCTS + AVX512, "v4": AMX + DOT_PRODUCTS,
          "v4-bf16": [*AMX, "7.0.d.800000"]}  # fmt: skip

# Packages that do not load without AVX.
NEED_AVX = {"jax"}
# The instructions of a target as options of libraries name them, of ATen, MKL, oneDNN and XLA.
NAMES = {"portable": ("default", "SSE4_2", "SSE41", "SSE4_2"), "v3": ("avx2", "AVX2", "AVX2", "AVX2"),
         "v4": ("avx512", "AVX512", "AVX512_CORE", "AVX512"),
         "v4-bf16": ("avx512", "AVX512", "AVX512_CORE_BF16", "AVX512_BF16")}  # fmt: skip
# Packages whose kernels these options limit. XLA also calls kernels that are compiled before. ONNX Runtime has no option.
HAVE_OPTIONS = {"torch"}


def options(target):
    """The environment variables of libraries, which they document as limits of instructions."""
    aten, mkl, onednn, xla = NAMES[target]
    return {"ATEN_CPU_CAPABILITY": aten, "MKL_ENABLE_INSTRUCTIONS": mkl, "ONEDNN_MAX_CPU_ISA": onednn,
            "XLA_FLAGS": f"--xla_cpu_max_isa={xla}"}  # fmt: skip


@dataclasses.dataclass
class Limits:
    """The limits of contenders for a CPU target; none for targets that no contender is limited to."""

    target: str
    hidden: dict  # environment variables that hide features; empty if CPUID cannot be intercepted

    def hides_from(self, package):
        """Whether the process of a contender that uses `package` sees the features of the target only."""
        return bool(self.hidden) and not (self.target == "portable" and package in NEED_AVX)

    def variables(self, package=None):
        """The environment variables of a contender, of ours without a package."""
        if self.target not in HIDDEN:
            return {}
        return self.hidden if self.hides_from(package) else options(self.target)

    def describe(self, packages):
        """A sentence for tables; empty without limits."""
        if self.target not in HIDDEN:
            return ""
        features = " (with SSE3 to SSE4.2, which NumPy needs)" if self.target == "portable" else ""
        limited = [each for each in packages if self.hides_from(each) or each in HAVE_OPTIONS]
        others = [each for each in packages if each not in limited]
        text = f" Limited to the instructions of {self.target}{features}: {', '.join(limited)}." if limited else ""
        return text + (f" Not limited, with more instructions than {self.target} has: {', '.join(others)}." if others else "")


def limits(build, folder, target):
    """The limits of contenders for a CPU target. Without a way to hide features, a message says so."""
    if target not in HIDDEN:
        return Limits(target, {})
    folder.mkdir(parents=True, exist_ok=True)
    library = folder / "limit_cpuid.so"
    compiler, *flags = toolchain(build)
    source = pathlib.Path(__file__).with_name("limit_cpuid.c")
    run([compiler, *flags, "-x", "c", "-O2", "-shared", "-fPIC", source, "-o", library])
    preload = " ".join(filter(None, [str(library), os.environ.get("LD_PRELOAD")]))
    made = {"LD_PRELOAD": preload, "SACCADE_HIDDEN_CPUID": ",".join(HIDDEN[target])}
    if subprocess.run([sys.executable, "-c", ""], env={**os.environ, **made}, capture_output=True).returncode == 0:
        return Limits(target, made)
    print(f"CPUID cannot be intercepted on this machine: some peers may use more instructions than {target} has",
          file=sys.stderr)  # fmt: skip
    return Limits(target, {})
