"""Gives every .ptx file of a folder to ptxas, for the target that it names; prints what was refused.

    assemble.py PTXAS FOLDER --at-least N      exit code 1 where one is refused, or there are fewer than N
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys


def assemble(ptxas: str, path: pathlib.Path) -> str:
    """The messages of ptxas about one file; "" where it accepts it."""
    target = re.search(r"^\.target (\w+)", path.read_text(), re.M)[1]
    run = subprocess.run([ptxas, f"-arch={target}", str(path), "-o", "/dev/null"], capture_output=True, text=True)
    return "" if run.returncode == 0 else f"{path}: {run.stderr}{run.stdout}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ptxas")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--at-least", type=int, default=1)
    options = parser.parse_args()
    files = sorted(options.folder.glob("*.ptx"))
    with concurrent.futures.ThreadPoolExecutor() as pool:
        refused = [text for text in pool.map(lambda path: assemble(options.ptxas, path), files) if text]
    print(*refused, sep="\n")
    print(f"{len(files) - len(refused)} of {len(files)} accepted")
    sys.exit(1 if refused or len(files) < options.at_least else 0)


if __name__ == "__main__":
    main()
