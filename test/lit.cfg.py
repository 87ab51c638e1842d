# Configuration of the test suite. The tools of Saccade, FileCheck and `not` are on the PATH. Substitutions:
#
#   %python    Python of .venv, with NumPy and the built package, or the system's without .venv
#   %src       root of the source tree          %build   root of the build tree
#   %cxx       the C++ compiler of the build
#   %ptxas     ptxas, from .venv or the PATH
#   %{on-aarch64}, %{on-longer-sve}, %{on-older-aarch64}   the option by which saccade-run calls code for AArch64 under an
#              emulator: of all features, with SVE registers of 256 or of 512 bits, and of those of ARMv8.0
#   %{with-tiles}, %{with-int8}   the option by which saccade-run executes the tile instructions of v4-amx, or vpdpbssd of v3-int8,
#              in software
#   %{v4}, %{v4-bf16}, %{v4-amx}   the CPU target of this name, or its expanded form if the processor lacks its features
#
# Features for REQUIRES: numpy, ml_dtypes, torch, onnx, onnxruntime, jax, onnxscript, transformers (in .venv, the last with torch), expecttest and
# attn_gym (for tests of other projects); ptxas, nvdisasm, libdevice; qemu (qemu-x86_64 7.2 or later, which emulates AVX2 but not
# AVX-512); aarch64 (qemu-aarch64, and a build with the runtime for AArch64); llvm-mca; asan, tsan; int8-handler
# and tile-handler (a handler can execute vpdpbssd of v3-int8; the processor runs v4-bf16, so that it can execute the tile instructions of v4-amx). No other is a processor feature: with AVX2, every machine runs the kernels of every x86-64 target. With
# `--param expanded=1` a machine with AVX-512 runs the expanded targets too.
import glob
import os
import re
import shutil
import subprocess
import sys

import lit.formats

config.name = "Saccade"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py"]
config.test_source_root = os.path.dirname(__file__)
# test_*.py are run by pytest.
package_tests = os.path.join(config.test_source_root, "Python")
config.excludes = ["lit.cfg.py", "lit.site.cfg.py", "Inputs", "Support", "Unit", "conftest.py"]
config.excludes += map(os.path.basename, glob.glob(os.path.join(package_tests, "**", "test_*.py"), recursive=True))
config.test_exec_root = os.path.join(config.saccade_build_dir, "test")

tools = os.path.join(config.saccade_build_dir, "bin")
config.environment["PATH"] = os.pathsep.join([tools, config.llvm_tools_dir, os.environ["PATH"]])
# Waiting OpenMP threads must not spin: tests share the cores.
config.environment["OMP_WAIT_POLICY"] = "passive"
# saccade-run calls compiled code on guarded memory (docs/internals/testing.md).
config.environment["SACCADE_RUN_GUARD"] = "end"
# Tests compile what they test, and keep no files of the user.
config.environment["SACCADE_CACHE"] = "0"
config.environment["PYTHONPATH"] = os.path.join(config.saccade_build_dir, "python")

venv = os.path.join(config.saccade_source_dir, ".venv", "bin", "python")
python = venv if os.path.exists(venv) else sys.executable
if python == venv:
    config.available_features.add("numpy")
    if glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", "torch")):
        config.available_features.add("torch")
    if glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", "onnx", "__init__.py")):
        config.available_features.add("onnx")
    if glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", "jax")):
        config.available_features.add("jax")
    if all(glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", each))
           for each in ("torch", "transformers")):
        config.available_features.add("transformers")
    if glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", "onnxscript")):
        config.available_features.add("onnxscript")
    for name in ("expecttest", "attn_gym", "ml_dtypes", "onnxruntime"):
        if glob.glob(os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", name)):
            config.available_features.add(name)
packaged = glob.glob(
    os.path.join(config.saccade_source_dir, ".venv", "lib", "python*", "site-packages", "nvidia", "cu*", "bin", "ptxas")
)
ptxas = packaged[0] if packaged else shutil.which("ptxas")
if ptxas:
    config.available_features.add("ptxas")
nvdisasm = packaged and os.path.join(os.path.dirname(packaged[0]), "nvdisasm")
if nvdisasm and os.path.exists(nvdisasm) or shutil.which("nvdisasm"):
    config.available_features.add("nvdisasm")
if packaged:
    config.environment["PATH"] += os.pathsep + os.path.dirname(packaged[0])
toolkits = [os.path.dirname(os.path.dirname(os.path.realpath(ptxas)))] * bool(ptxas) + ["/usr/local/cuda"]
if any(os.path.exists(os.path.join(toolkit, "nvvm", "libdevice", "libdevice.10.bc")) for toolkit in toolkits):
    config.available_features.add("libdevice")
if shutil.which("qemu-x86_64"):
    version = subprocess.run(["qemu-x86_64", "--version"], capture_output=True, text=True).stdout
    if [int(part) for part in re.findall(r"version (\d+)\.(\d+)", version)[0]] >= [7, 2]:
        config.available_features.add("qemu")
if shutil.which("llvm-mca", path=config.environment["PATH"]):
    config.available_features.add("llvm-mca")
# Libraries for AArch64 run under an emulator of all its features, with the C library of the cross-compiler.
call = os.path.join(tools, "saccade-call-aarch64")
libraries = "/usr/aarch64-linux-gnu"
if shutil.which("qemu-aarch64") and os.path.exists(call) and os.path.exists(os.path.join(libraries, "lib", "libc.so.6")):
    config.available_features.add("aarch64")
config.substitutions += [
    ("%{on-aarch64}", f"--runner='qemu-aarch64 -cpu max,sve-default-vector-length=32 -L {libraries} {call}'"),
    ("%{on-longer-sve}", f"--runner='qemu-aarch64 -cpu max,sve-default-vector-length=64 -L {libraries} {call}'"),
    ("%{on-older-aarch64}", f"--runner='qemu-aarch64 -cpu cortex-a72 -L {libraries} {call}'"),
    ("%ptxas", ptxas or "ptxas"),
    ("%python", python),
    ("%src", config.saccade_source_dir),
    ("%build", config.saccade_build_dir),
    ("%cxx", config.cxx),
]

with open("/proc/cpuinfo") as cpuinfo:
    flags = next((set(line.split(":")[1].split()) for line in cpuinfo if line.startswith("flags")), set())
if lit_config.params.get("expanded"):
    flags = set()
# The features of targets, as Linux names them: without case and underscores, except for two older names.
with open(os.path.join(config.saccade_source_dir, "include", "saccade", "Runtime", "CPUTargets.def")) as table:
    rows = re.findall(r'^SACCADE_CPU_TARGET\((\w+), "([^"]+)", X86, ([^\n]+)\)$', table.read(), re.M)
flags = {flag.replace("_", "") for flag in flags}
needs = {}
for row, _, features in rows:
    needs[row] = set()
    for base, feature in re.findall(r"F\((\w+)\)|([A-Z]\w+)", features):
        flag = {"LZCNT": "abm", "BMI": "bmi1"}.get(feature, feature.lower())
        needs[row] |= needs[base] if base else {flag}
needs = {name: needs[row] for row, name, _ in rows if "avx512f" in needs[row]}
tile_handler = os.path.join(config.test_exec_root, "Support", "TileHandler", "saccade-call-tiles")
trap_tiles = os.path.join(config.test_source_root, "Support", "TileHandler", "trap_tiles.py")
if os.path.exists(tile_handler) and not config.sanitizers:
    config.available_features |= {"int8-handler"} | ({"tile-handler"} if needs["v4-bf16"] <= flags else set())
config.substitutions += [(name, f"--runner='{python} {trap_tiles} {tile_handler}'") for name in ("%{with-tiles}", "%{with-int8}")]
config.substitutions += [("%{" + name + "}", name if needed <= flags else name + "-expanded") for name, needed in needs.items()]
for sanitizer, feature in [("address", "asan"), ("thread", "tsan")]:
    if sanitizer in config.sanitizers:
        config.available_features.add(feature)
