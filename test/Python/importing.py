"""`import saccade` is quick: it imports neither NumPy, torch nor tvm_ffi and loads no library. A missing compiler is an
ImportError that says so.

REQUIRES: numpy
UNSUPPORTED: asan, tsan
RUN: rm -rf %t && mkdir %t
RUN: %python %s %build %t
"""

import os
import pathlib
import shutil
import subprocess
import sys

build, folder = map(pathlib.Path, sys.argv[1:])


def run(code, **environment):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


heavy = "{'numpy', 'torch', 'tvm_ffi', 'ml_dtypes', 'sympy'} & set(sys.modules)"
assert run(f"import sys, saccade; print({heavy} or 'none')") == "none"
assert run("import saccade; print('libsaccade' in open('/proc/self/maps').read())") == "False"
# The modules of the package and of Python alone; the best of five, as other processes may hold the machine.
timed = "import time; start = time.perf_counter(); import saccade; print(time.perf_counter() - start)"
seconds = min(float(run(timed)) for _ in range(5))
assert seconds < 0.3, f"import saccade takes {seconds:.2f} s, expected 0.3 at most"

# Compiling takes none of them either.
program = "func.func @nothing() {\\n return }\\n"
assert run(f"import sys, saccade; print(list(saccade.compile('{program}')), {heavy} or 'none')") == "['nothing'] none"

# A package without its library, and one whose library lacks LLVM.
shutil.copytree(build / "python" / "saccade", folder / "saccade", ignore=lambda *_: ["lib", "bin"])
compiling = f"""
import saccade
try:
    saccade.compile("{program}")
except ImportError as error:
    print(error)
"""
said = run(compiling, PYTHONPATH=str(folder))
assert "saccade's compiler is not installed: there is no" in said and "libsaccade.so" in said, said
(folder / "saccade" / "lib").mkdir()
(folder / "saccade" / "lib" / "libsaccade.so").write_bytes(b"no library")
said = run(compiling, PYTHONPATH=str(folder))
assert "saccade's compiler cannot be loaded" in said and "needs the shared libraries of LLVM and MLIR 22" in said, said
