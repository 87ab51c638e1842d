"""`import saccade` is quick: it imports neither NumPy, torch nor tvm_ffi and loads no library. A missing compiler is an
ImportError that says so."""

import os
import shutil
import subprocess
import sys

import pytest

HEAVY = "{'numpy', 'torch', 'tvm_ffi', 'ml_dtypes', 'sympy'} & set(sys.modules)"
PROGRAM = "func.func @nothing() {\\n return }\\n"
COMPILING = f"""
import saccade
try:
    saccade.compile("{PROGRAM}")
except ImportError as error:
    print(error)
"""


def run(code, **environment):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_takes_no_heavy_package():
    assert run(f"import sys, saccade; print({HEAVY} or 'none')") == "none"


def test_import_loads_no_library():
    assert run("import saccade; print('libsaccade' in open('/proc/self/maps').read())") == "False"


def test_import_is_quick():
    # The modules of the package and of Python alone. Processor time, the best of five: other processes may hold the machine.
    timed = "import time; start = time.process_time(); import saccade; print(time.process_time() - start)"
    seconds = min(float(run(timed)) for _ in range(5))
    assert seconds < 0.3, f"import saccade takes {seconds:.2f} s, expected 0.3 at most"


def test_compiling_takes_no_heavy_package():
    printed = run(f"import sys, saccade; print(list(saccade.compile('{PROGRAM}')), {HEAVY} or 'none')")
    assert printed == "['nothing'] none"


@pytest.fixture
def package(build, tmp_path):
    """The package without its library and tools."""
    shutil.copytree(build / "python" / "saccade", tmp_path / "saccade", ignore=lambda *_: ["lib", "bin"])
    return tmp_path / "saccade"


def test_package_without_its_library_says_so(package):
    said = run(COMPILING, PYTHONPATH=str(package.parent))
    assert "saccade's compiler is not installed: there is no" in said
    assert "libsaccade.so" in said


def test_library_that_cannot_be_loaded_names_what_it_requires(package):
    (package / "lib").mkdir()
    (package / "lib" / "libsaccade.so").write_bytes(b"no library")
    said = run(COMPILING, PYTHONPATH=str(package.parent))
    assert "saccade's compiler cannot be loaded" in said
    assert "requires the shared libraries of LLVM and MLIR 22" in said
