"""Hidden CPU features: a process for v3 sees AVX2 and not AVX-512, in every thread; other faults end it as before.

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
assert cpuid.variables(build, folder, "host") == {}
hidden = cpuid.variables(build, folder, "v3")
if not hidden:
    print("CPUID cannot be intercepted here")
    sys.exit(0)


def run(code):
    return subprocess.run([sys.executable, "-c", code], env={**os.environ, **hidden}, capture_output=True, text=True)


expected = [name for name in ("AVX2", "FMA3") if f" {name[:4].lower().rstrip('3')}" in pathlib.Path("/proc/cpuinfo").read_text()]
found = run(FEATURES)
assert found.returncode == 0 and found.stdout.strip() == str(expected), found
fault = run("import ctypes; ctypes.string_at(0)")
assert fault.returncode == -11, fault
