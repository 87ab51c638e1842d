"""Assembles every .ptx file of a folder with ptxas, for the file's .target, and prints the errors.

    assemble.py PTXAS FOLDER --at-least N      exit code 1 if a file is rejected or there are fewer than N files
"""

import argparse
import concurrent.futures
import pathlib
import re
import subprocess
import sys


def assemble(ptxas: str, path: pathlib.Path) -> str:
    """Error messages of ptxas for one file; "" if it is accepted."""
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
        rejected = [text for text in pool.map(lambda path: assemble(options.ptxas, path), files) if text]
    print(*rejected, sep="\n")
    print(f"{len(files) - len(rejected)} of {len(files)} accepted")
    sys.exit(1 if rejected or len(files) < options.at_least else 0)


if __name__ == "__main__":
    main()
