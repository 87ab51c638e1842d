"""Runs clang-format, clang-tidy, ruff, mypy and shellcheck over the tracked files, or over the files named.

    lint.py --build build/dev [--llvm 22] [--only CHECK] [--skip CHECK] [PATH...]

clang-tidy reads the compilations of the build's compile_commands.json. One compilation may be a generated file that
includes several sources; it is checked as a whole. Exit code 1 if a check reports anything.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

CHECKS = ("shellcheck", "clang-format", "ruff", "mypy", "clang-tidy")
ROOT = pathlib.Path(__file__).resolve().parent.parent


def tracked(paths: list[str]) -> list[str]:
    """The tracked files in these files and folders, in all of the tree without any."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def units(build: pathlib.Path, sources: list[str]) -> list[str]:
    """The compilations that contain `sources`. The copy of the runtime that artifacts embed is left out."""
    requested = {str(ROOT / name) for name in sources}
    found = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        file = command["file"]
        if not file.endswith(".cpp") or "RuntimeEmbedded" in command["command"] or not pathlib.Path(file).exists():
            continue
        included = re.findall(r'^#include "([^"]+\.cpp)"$', pathlib.Path(file).read_text(), re.M)
        if ({str(ROOT / name) for name in included} | {file}) & requested:
            found[file] = len(included)
    # The largest first, so that the last one to finish is a short one.
    return sorted(found, key=lambda file: -found[file])


def run(command: list[str]) -> tuple[int, str]:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    # clang-tidy counts the warnings that it suppresses on stderr.
    return done.returncode, done.stdout + (done.stderr if done.returncode and not done.stdout else "")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, required=True, help="a configured build tree")
    parser.add_argument("--llvm", default="22", help="version suffix of clang-format and clang-tidy")
    parser.add_argument("--only", choices=CHECKS, help="run one check")
    parser.add_argument("--skip", choices=CHECKS, help="leave one check out")
    parser.add_argument("files", nargs="*", help="files and folders to check (default: all)")
    options = parser.parse_args()
    files = tracked(options.files)
    if not files:
        sys.exit(f"lint: no tracked file in {', '.join(options.files)}")
    build = options.build.resolve()
    cpp = [name for name in files if name.endswith((".cpp", ".h", ".c"))]
    python = [name for name in files if name.endswith(".py")]
    shell = [name for name in files if name in ("dev", ".ci/run") or name.endswith(".sh")]
    sources = [name for name in cpp if name.endswith(".cpp")]

    tidy = f"clang-tidy-{options.llvm}"
    checks: dict[str, list[list[str]]] = {
        "shellcheck": [["shellcheck", *shell]] if shell else [],
        "clang-format": [[f"clang-format-{options.llvm}", "--dry-run", "--Werror", *cpp]] if cpp else [],
        "ruff": [[sys.executable, "-m", "ruff", "check", "--quiet", *python]] if python else [],
        "mypy": [[sys.executable, "-m", "mypy", "--no-error-summary"]] if python else [],
        "clang-tidy": [],
    }
    selected = [name for name in CHECKS if name != options.skip and options.only in (None, name)]
    if "clang-tidy" in selected:
        checks["clang-tidy"] = [[tidy, "-p", str(build), "--quiet", unit] for unit in units(build, sources)]
    failed = []
    for name in selected:
        commands = checks[name]
        if not commands:
            continue
        start, ok = time.monotonic(), True
        print(f"==> {name}", end="", flush=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for code, output in pool.map(run, commands):
                if code or output.strip():
                    ok = False
                    print("\n" + output.rstrip(), flush=True)
        print(f"  {'clean' if ok else 'FAILED'} in {time.monotonic() - start:.0f} s", flush=True)
        if not ok:
            failed.append(name)
    sys.exit(f"lint: failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
