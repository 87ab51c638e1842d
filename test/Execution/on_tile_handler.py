# REQUIRES: tile-handler, numpy
# RUN: %python %s %t "%{with-tiles}"
"""The checked calls of other tests by the machine code of `v4-amx`, whose tile instructions a signal handler executes and
checks (test/Support/TileHandler). Mistakes that are planted into the code are noticed."""

import pathlib
import re
import shlex
import subprocess
import sys

from on_aarch64 import FOLDER, calls

# Files, and how many of their calls with bf16 run, or in a file about f16 those with it.
FILES = {"tile-registers.test": 26, "f16-tiles.mlir": 30, "groups-of-keys.mlir": 2, "guarded.mlir": 2, "scaled-dot-product.test": 2,
         "split-kv.test": 2, "tangents.mlir": 1}  # fmt: skip

CALL = [str(FOLDER / "bf16-pairs.mlir"), "--check", "--entry=odd_head", "--arg=1x37x33:bf16:1", "--arg=1x71x33:bf16:2", "--arg=1x71x15:bf16:3"]
# What a mistake is noticed by.
MISTAKES = {
    "--without=ldtilecfg": "the tile registers are not configured",
    "--without=tilerelease": "a thread ends with configured tile registers",
    "--without=tilezero": "was not written since ldtilecfg",
    "--double-stride": "differs by more than",
}


def run(call, target, runner):
    """The text of a call, whether it succeeded with its instructions in the handler, and the names of those executed."""
    done = subprocess.run(["saccade-run", *call, f"--target={target}", "--threads=2", runner], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)  # fmt: skip
    counts = re.search(r"tile instructions:(.*) partial 0$(?:\nvector instructions:(.*))?", done.stdout, re.M)
    return f"{shlex.join(done.args)}\n{done.stdout}", done.returncode == 0 and counts is not None, counts[0] if counts else ""


def run_all(chosen, target, runner, instruction, mistakes, call):
    """Runs lists of calls by file, and `call` with each mistake. The exit code: 0 if all succeed, half of them multiply by
    `instruction`, and the mistakes are noticed."""
    (option,) = shlex.split(runner)
    failures = count = with_products = 0
    for name, found in chosen.items():
        for each in found:
            text, succeeded, counts = run(each, target, option)
            count += 1
            with_products += instruction in counts
            if not succeeded:
                failures += 1
                print(f"FAILED: {text}")
        print(f"{name}: {len(found)} calls")
    for mistake, message in mistakes.items():
        text, succeeded, _ = run(call, target, option.replace("trap_tiles.py", f"trap_tiles.py {mistake}"))
        if succeeded or message not in text:
            failures += 1
            print(f"NOT NOTICED: {mistake}\n{text}")
    print(f"{count} calls, {with_products} of them by {instruction}, {failures} failures")
    return failures != 0 or count == 0 or with_products < count // 2


def main(folder, runner):
    folder.mkdir(exist_ok=True)
    chosen = {}
    for name, most in FILES.items():
        element = ":f16" if name.startswith("f16") else ":bf16"
        chosen[name] = [call for call in calls(FOLDER / name, folder) if any(element in word for word in call)][:most]
    return run_all(chosen, "v4-amx", runner, "tdpbf16ps", MISTAKES, CALL)


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
