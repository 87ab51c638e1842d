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
COUNTS = r"tile instructions:(.*) partial 0$"

CALL = [str(FOLDER / "bf16-pairs.mlir"), "--check", "--entry=odd_head", "--arg=1x37x33:bf16:1", "--arg=1x71x33:bf16:2", "--arg=1x71x15:bf16:3"]
# What a mistake is noticed by.
MISTAKES = {
    "--without=ldtilecfg": "the tile registers are not configured",
    "--without=tilerelease": "a thread ends with configured tile registers",
    "--without=tilezero": "was not written since ldtilecfg",
    "--double-stride": "differs by more than",
}


def run(call, runner):
    """The text of a call, and whether it succeeded with its tile instructions in the handler."""
    done = subprocess.run(["saccade-run", *call, "--target=v4-amx", "--threads=2", runner], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)  # fmt: skip
    counts = re.search(COUNTS, done.stdout, re.M)
    return f"{shlex.join(done.args)}\n{done.stdout}", done.returncode == 0 and counts is not None, counts


def main(folder, runner):
    folder.mkdir(exist_ok=True)
    (option,) = shlex.split(runner)
    failures = count = with_products = 0
    for name, most in FILES.items():
        element = ":f16" if name.startswith("f16") else ":bf16"
        found = [call for call in calls(FOLDER / name, folder) if any(element in word for word in call)][:most]
        for call in found:
            text, succeeded, counts = run(call, option)
            count += 1
            with_products += counts is not None and "tdpbf16ps" in counts[1]
            if not succeeded:
                failures += 1
                print(f"FAILED: {text}")
        print(f"{name}: {len(found)} calls")
    for mistake, message in MISTAKES.items():
        text, succeeded, _ = run(CALL, option.replace("trap_tiles.py", f"trap_tiles.py {mistake}"))
        if succeeded or message not in text:
            failures += 1
            print(f"NOT NOTICED: {mistake}\n{text}")
    print(f"{count} calls, {with_products} of them multiply tiles, {failures} failures")
    return failures != 0 or with_products < count // 2


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1]), sys.argv[2]))
