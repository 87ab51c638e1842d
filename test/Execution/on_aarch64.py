# REQUIRES: aarch64, numpy
# RUN: %python %s %t "%{on-aarch64}"
"""The checked calls of other tests on AArch64, under an emulator: attention with its forms of masks, scores, lengths and
caches, its gradients, matmuls and reductions. A call is repeated for each target whose kernels it has: bf16 has others on
`aarch64-bf16`, and everything on `aarch64-sve256`."""

import pathlib
import re
import shlex
import subprocess
import sys

FOLDER = pathlib.Path(__file__).parent
SOURCE = FOLDER.parent.parent
LINE = "RUN" + ":"  # which lit must not find here
# Files, and how many of their calls run, and of those with bf16: all would take too long under the emulator.
FILES = {
    "append.mlir": 1, "bf16-pairs.mlir": 4, "causal.test": 1, "extremes.mlir": 2, "gradients.mlir": 1, "gradients-linear.mlir": 1,
    "groups-of-keys.mlir": 1, "guarded.mlir": 1, "large-angles.mlir": 1, "least-scores.mlir": 1, "lengths.mlir": 1, "matmul.mlir": 2,
    "paged.test": 2, "prepacked-weights.mlir": 2, "quantized-scores.mlir": 2, "quantized-weights.mlir": 2, "reductions.mlir": 2, "relative-distances.mlir": 1, "scalar-arguments.mlir": 1,
    "sliding-window.test": 1, "soft-cap.test": 1, "split-kv.test": 2, "tangents.mlir": 1,
}  # fmt: skip


def calls(file, folder):
    """The arguments of the calls of saccade-run on a CPU, without target, each once."""
    text = re.sub(rf"\\\n.*?{LINE}", "", file.read_text())
    found = {}
    for line in re.findall(rf"{LINE} (saccade-run .*)", text):
        if re.search(r"--device|--time|[|&]|%\{[^v]", line) or not re.search("--check|--out", line):
            continue
        for name, value in [("%src", SOURCE), ("%s", file), ("%S", file.parent), ("%t", folder / file.stem)]:
            line = line.replace(name, str(value))
        found[tuple(word for word in shlex.split(line)[1:] if not word.startswith(("--target=", "--threads=")))] = None
    return list(found)


def run(call, target, runner):
    done = subprocess.run(["saccade-run", *call, f"--target={target}", "--threads=2", runner], capture_output=True,
                          text=True)  # fmt: skip
    return None if done.returncode == 0 else f"{shlex.join(done.args)}\n{done.stdout}{done.stderr}"


def main(folder, runner):
    folder.mkdir(exist_ok=True)
    (option,) = shlex.split(runner)
    failures = count = 0
    for name, most in FILES.items():
        found = calls(FOLDER / name, folder)
        if not found:
            failures += 1
            print(f"{name} has no calls")
        # Later calls of a file may read what earlier ones write.
        with_bf16 = [call for call in found if any(":bf16" in word for word in call)][:most]
        others = [call for call in found[:most] if call not in with_bf16]
        for target in ["aarch64", "aarch64-bf16", "aarch64-sve256"]:
            for call in with_bf16 + (others if target != "aarch64-bf16" else []):
                count += 1
                if message := run(call, target, option):
                    failures += 1
                    print(f"FAILED: {message}")
    print(f"{count} calls, {failures} failures")
    return failures != 0


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
