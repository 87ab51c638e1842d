"""Bundles libraries, inputs and expected results, to check and time this build on another machine with a GPU.

There, `python device.py --out DIR` in the bundle runs everything. It needs neither LLVM nor this repository nor NumPy.
"""

import argparse
import concurrent.futures
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np

from checks import ALLOWED, bundle_case, bundle_linear, cases, linear_cases
from rows import TARGETS, benchmark
from saccade_device import instructions
from saccade_device.driver import Driver

HERE = pathlib.Path(__file__).resolve().parent
LIMIT = 60 << 20  # bytes of the bundle
# Programs of f32 with several kernels: file, entry, shapes of the arguments.
PROGRAMS = [("multi-head", "multi_head_attention", [(2, 9, 512)] + 4 * [(512, 512), (512,)])]
# What the name of a kernel for warpgroups ends in; a library for sm_90a without one has the code of sm_80.
WARPGROUPS = b"_sm_90a("


def compile_library(source, library, bin, target, options=()):
    """Compiles a library; whether it contains machine code (not PTX only)."""
    command = [bin / "saccade-compile", source, "--emit=so", f"--target={target}", *options, "-o", library]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bundle.py: {source}: {done.stderr}")
    library.with_suffix(".h").unlink()
    return "PTX only" not in done.stderr


class Libraries:
    """The libraries of the bundle: {kind: {target: file}}."""

    def __init__(self, folder, bin):
        self.folder, self.bin, self.files, self.has_code = folder, bin, {}, True

    def compile(self, name, source, targets, options=()):
        """Compiles a program for each target; for sm_90a only if it has kernels of its own there."""
        self.files[name] = {}
        for target in targets:
            library = self.folder / f"{name}.{target}.so"
            self.has_code &= compile_library(source, library, self.bin, target, options)
            if target == "sm_90a" and "sm_80" in targets and WARPGROUPS not in library.read_bytes():
                library.unlink()  # the same code as that of sm_80
            else:
                self.files[name][target] = library.name
                library.with_name(f"{library.name}.gz").write_bytes(gzip.compress(library.read_bytes()))
                library.unlink()

    def compile_kind(self, kind, targets):
        source, options = self.folder / f"{kind.name}.mlir", []
        source.write_text(kind.program())
        if "sm_80" in targets and getattr(kind, "variant", ""):
            targets = ["sm_80"]  # variants are those of warps
        if getattr(kind, "script", None):
            script = self.folder / f"{kind.name}.script.mlir"
            script.write_text(kind.script)
            options = [f"--transform-script=codegen.kernels:{script}"]
        self.compile(kind.name, source, targets, options)
        for file in self.folder.glob(f"{kind.name}.*mlir"):
            file.unlink()


def bundle_program(name, entry, shapes, folder, bin):
    """The check of an example program, whose expected results come from the CPU."""
    source, rng = HERE.parents[1] / "examples" / f"{name}.mlir", np.random.default_rng(len(name))
    arguments, entries = [], []
    for i, shape in enumerate(shapes):
        # The scale of the weights keeps attention scores near 1.
        array = (rng.standard_normal(shape) * (1 if i == 0 else 0.05)).astype(np.float32)
        file = folder / f"{name}-{i}.npy"
        np.save(file, array)
        arguments.append(f"--arg={file}")
        (folder / f"{name}-{i}.bin").write_bytes(array.tobytes())
        entries.append({"file": f"{name}-{i}.bin", "dtype": "f32", "shape": list(shape)})
    out = folder / f"{name}-out.npy"
    subprocess.run([bin / "saccade-run", source, f"--entry={entry}", *arguments, f"--out={out}"], check=True)
    expected = np.load(out)
    (folder / f"{name}-output.bin").write_bytes(expected.astype("<f4").tobytes())
    for file in folder.glob(f"{name}-*.npy"):
        file.unlink()
    output = {"name": "output", "expected": f"{name}-output.bin", "dtype": "f32", "shape": list(expected.shape),
              "allowed": ALLOWED["f32"]}
    return {"group": "programs", "kind": name, "name": name, "entry": entry, "inputs": entries, "outputs": [output]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build tree, with the target SaccadeFakeCUDA")
    parser.add_argument("--out", type=pathlib.Path, required=True, help="output folder; its previous contents are deleted")
    parser.add_argument("--target", default=",".join(TARGETS), help="GPU targets, of which there is a library each")
    parser.add_argument("--tiny", action="store_true", help="a few cases of sizes for the simulator, for tests")
    options = parser.parse_args()
    folder, bin, targets = options.out.resolve(), options.build.resolve() / "bin", options.target.split(",")
    double = options.build.resolve() / "test/Support/FakeCUDA/libcuda.so.1"
    for needed, built in ((bin / "saccade-compile", "saccade-compile"), (bin / "saccade-run", "saccade-run"),
                          (double, "SaccadeFakeCUDA")):
        if not needed.exists():
            sys.exit(f"bundle.py: {options.build} has no {needed.name}: ./dev build {built}")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)

    chosen, projections = list(cases(options.tiny)), list(linear_cases(options.tiny))
    checks = [bundle_case(group, case, number, folder) for number, (group, case) in enumerate(chosen)]
    checks += [bundle_linear(*each, len(checks) + i, folder) for i, each in enumerate(projections)]
    rows = list(benchmark(options.tiny, folder))
    kinds = {kind.name: kind for kind in [case.kind for _, case in chosen] + [each[1] for each in projections] +
             [kind for row in rows for kind in row.kinds]}

    libraries = Libraries(folder, bin)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = [pool.submit(libraries.compile_kind, kind, targets) for kind in kinds.values()]
        for number, each in enumerate(concurrent.futures.as_completed(done), 1):
            each.result()
            print(f"{number} of {len(done)} programs compiled", flush=True)
    for program in PROGRAMS:
        checks.append(bundle_program(*program, folder, bin))
        libraries.compile(program[0], HERE.parents[1] / "examples" / f"{program[0]}.mlir", targets)

    # The simulator computes the expected results through the CUDA driver double of the tests.
    print("simulating single instructions", flush=True)
    instructions.record(Driver(str(double)), folder)

    commit = subprocess.run(["git", "-C", HERE, "describe", "--always", "--dirty"], capture_output=True, text=True)
    manifest = {"commit": commit.stdout.strip() or "unknown commit", "targets": targets, "cubin": libraries.has_code,
                "libraries": libraries.files, "checks": checks, "rows": [row.entry for row in rows],
                "copy_bytes": 1 << 20 if options.tiny else 1 << 30, "gemm": 128 if options.tiny else 8192}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1))
    shutil.copy(HERE / "device.py", folder)
    shutil.copytree(HERE / "saccade_device", folder / "saccade_device", ignore=shutil.ignore_patterns("__pycache__"))
    size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    count = sum(len(files) for files in libraries.files.values())
    print(f"{folder}: {count} libraries, {len(checks)} checks, {len(rows)} benchmark rows, {size / 2**20:.1f} MiB")
    return 1 if size > LIMIT else 0


if __name__ == "__main__":
    sys.exit(main())
