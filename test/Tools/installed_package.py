# RUN: %python %s %src %build %cxx %t
# UNSUPPORTED: asan, tsan
"""The installed package, by the commands of docs/guides/passes.md: an installation that was moved builds examples/plugin,
whose tests pass with its tools, and the plugin works in Python and is refused by another version.

Usage: installed_package.py SOURCE BUILD CXX FOLDER
"""

import os
import pathlib
import shutil
import subprocess
import sys

source, build, cxx, folder = sys.argv[1:]
source, build, folder = map(pathlib.Path, (source, build, folder))
installed, moved = folder / "installed", folder / "moved"
prefix, plugin = moved / "saccade", folder / "build" / "plugin"
sys.path.append(str(source / "test" / "Python" / "Inputs"))
from documentation_process import blocks_of

PYTHON = """
import numpy as np
import saccade
library, folder = {library!r}, {folder!r}
def program(name):
    return open(f"{{folder}}/{{name}}.mlir").read()
x = np.linspace(-3, 3, 24, dtype=np.float32).reshape(3, 8)
gelu = saccade.compile(program("quick-gelu"), load_dialect_plugin=[library])
assert np.allclose(gelu.activate(x), x / (1 + np.exp(-1.702 * x)), atol=1e-6)
v = np.linspace(-3, 3, 5 * 64, dtype=np.float32).reshape(5, 64)
near = saccade.compile(program("limit-window"), load_pass_plugin=library,
                       insert_after=[("transforms.raise", "example-limit-window{{window=0}}")])
assert np.allclose(near.attend(v, v, v), v)
"""


def run(*command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-4000:]}{done.stderr[-4000:]}"


def refused(library, words):
    line = [prefix / "bin" / "saccade-opt", f"--load-pass-plugin={library}", source / "examples" / "soft-cap.mlir"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 3, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def run_commands(lines, home):
    """Runs commands of the page; `$HOME/saccade` is the installation."""
    compilers = {"CXX": cxx, "CC": cxx.replace("clang++", "clang"), "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    path = os.pathsep.join([str(home / "saccade" / "bin"), os.environ["PATH"]])
    run("bash", "-ec", lines, cwd=folder, env={**os.environ, **compilers, "HOME": str(home), "PATH": path})


shutil.rmtree(folder, ignore_errors=True)
plugin.parent.mkdir(parents=True)
(folder / "examples").symlink_to(source / "examples")
(folder / "build" / "release").symlink_to(build)
(block,) = (code for _, _, code, _ in blocks_of(source / "docs" / "guides" / "passes.md") if "cmake --install" in code)
install, others = block.split("\n", 1)
run_commands(install, installed)
installed.rename(moved)
for file in prefix.rglob("*.cmake"):
    assert str(build) not in file.read_text() and str(source) not in file.read_text(), f"{file} names the build"
run_commands(others, moved)

library = plugin / "ExamplePlugin.so"
examples = source / "examples" / "plugin" / "test"
run(sys.executable, "-c", PYTHON.format(library=str(library), folder=str(examples)), env={**os.environ, "SACCADE_CACHE": "0"})

# The same plugin of another version, and one that needs another version of MLIR.
content = library.read_bytes()
begin = content.index(b"Saccade 0.")
older = folder / "older.so"
older.write_bytes(content[:begin] + b"Saccade 9." + content[begin + 10 :])
refused(older, ["cannot load the plugin", "it was built for Saccade 9.", "expected Saccade 0.", "build it again"])
other = folder / "other.so"
assert b"libMLIR.so.22" in content
other.write_bytes(content.replace(b"libMLIR.so.22", b"libMLIR.so.20"))
refused(other, ["it needs 'libMLIR.so.20", "but Saccade uses 'libMLIR.so.22"])
