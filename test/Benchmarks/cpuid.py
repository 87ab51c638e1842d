"""Hidden CPU features: a process for v3 sees AVX2 and not AVX-512, one for portable neither, in every thread, also after
it has installed a handler of SIGSEGV, which gets the other faults; without a handler these end it as before. A table
names the peers that are not limited.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: %python %s %src %build %t
"""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(sys.argv[1]) / "benchmarks"))

from saccade_bench import cpuid

FEATURES = """
import threading
import numpy as np
def show():
    features = np._core._multiarray_umath.__cpu_features__
    print([name for name in ("AVX2", "FMA3", "AVX512F", "AVX512_SPR", "AMX") if features.get(name)])
thread = threading.Thread(target=show)
thread.start()
thread.join()
"""

build, folder = pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
everything = ["torch", "onnxruntime", "jax"]
host = cpuid.limits(build, folder, "host")
assert host.variables("torch") == {} and host.describe(everything) == ""

# Without a way to hide features: options of libraries.
without = cpuid.Limits("portable", {})
assert without.variables("torch")["ATEN_CPU_CAPABILITY"] == "default"
assert "SSE4.2, which NumPy needs): torch. Not limited, with more instructions than portable has: onnxruntime, jax." in without.describe(everything)
assert cpuid.Limits("v3", {}).variables()["ONEDNN_MAX_CPU_ISA"] == "AVX2"

v3 = cpuid.limits(build, folder, "v3")
if not v3.hidden:
    print("CPUID cannot be intercepted here")
    sys.exit(0)
assert v3.describe(everything) == " Limited to the instructions of v3: torch, onnxruntime, jax."
portable = cpuid.limits(build, folder, "portable")
# jaxlib does not load without AVX.
assert portable.variables("jax") == cpuid.options("portable") and portable.variables("torch") == portable.hidden
assert portable.describe(everything).endswith("torch, onnxruntime. Not limited, with more instructions than portable has: jax.")


def run(code, limits):
    environment = {**os.environ, **limits.variables()}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)


expected = [name for name in ("AVX2", "FMA3") if f" {name[:4].lower().rstrip('3')}" in pathlib.Path("/proc/cpuinfo").read_text()]
for limits, features in ((v3, expected), (portable, [])):
    found = run(FEATURES, limits)
    assert found.returncode == 0 and found.stdout.strip() == str(features), found
FAULT = "import ctypes; ctypes.string_at(0)"
fault = run(FAULT, v3)
assert fault.returncode == -11 and fault.stderr == "", fault

# GCC installs such a handler, and torch.compile runs GCC.
HANDLER = "import faulthandler; faulthandler.enable()\n"
found = run(HANDLER + FEATURES, v3)
assert found.returncode == 0 and found.stdout.strip() == str(expected), found
fault = run(HANDLER + FAULT, v3)
assert fault.returncode == -11 and "Segmentation fault" in fault.stderr, fault
