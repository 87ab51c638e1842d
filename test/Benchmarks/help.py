"""The help of each benchmark and of other commands needs no package: `./dev bench NAME --help` installs nothing.

RUN: %python %s %src %t
"""

import os
import pathlib
import shutil
import subprocess
import sys

COMMANDS = ("demo", "test", "build", "lint", "device", "soak", "mutants", "wheel", "docs", "format")
source, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
shutil.rmtree(folder, ignore_errors=True)
shutil.copytree(source / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("results", "__pycache__"))
for script in ("dev", "test/Fuzz/soak.py", "test/Mutants", "cmake/wheel.py", "cmake/lint.py"):
    (folder / script).parent.mkdir(parents=True, exist_ok=True)
    copy = shutil.copytree if (source / script).is_dir() else shutil.copy
    copy(source / script, folder / script)
missing, programs = folder / "missing", folder / "programs"
for place in (missing, programs):
    place.mkdir()
for package in ("numpy", "torch", "jax", "onnxruntime", "saccade"):
    (missing / f"{package}.py").write_text(f"raise ModuleNotFoundError('{package} is not installed')\n")
# ./dev takes this interpreter.
(programs / "python3").symlink_to(sys.executable)
environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PYTHONPATH": str(missing)}
names = ["cpu", *sorted(script.stem for script in (folder / "benchmarks").glob("*.py") if script.stem != "bench")]
assert {"sass", "masks", "models", "generate"} < set(names), names
for command in (*(["bench", name] for name in names), *([name] for name in COMMANDS)):
    done = subprocess.run([folder / "dev", *command, "--help"], env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith("usage:"), f"{command}: {done.stdout}{done.stderr}"
    assert not done.stderr, f"{command}: {done.stderr}"
done = subprocess.run([sys.executable, folder / "benchmarks" / "bench.py", "--compiles", "0"], env=environment,
                      capture_output=True, text=True)
assert done.returncode == 2 and "--compiles must be at least 1" in done.stderr, done.stderr
assert not (folder / ".venv").exists() and not (folder / "build").exists()
