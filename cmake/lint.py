"""Runs clang-format, clang-tidy, ruff, mypy and shellcheck over the tracked files, or over the files named.

    lint.py --build build/dev [--llvm 22] [--only CHECK] [--skip CHECK] [--all | --since COMMIT] [PATH...]

clang-tidy reads the compilations of the build's compile_commands.json. One compilation may be a generated file that
includes several sources; it is checked as a whole. A compilation that was clean is checked again only if its command,
a project file that it includes, .clang-tidy or the version of clang-tidy has changed; --all checks all of them.
--since reports only what clang-tidy finds in the files that changed, in a few compilations that read them.
Exit code 1 if a check reports anything.
"""

import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

CHECKS = ("shellcheck", "clang-format", "ruff", "mypy", "clang-tidy")
ROOT = pathlib.Path(__file__).resolve().parent.parent
LIMIT = 8  # compilations of a change, each of about 15 seconds of processor time


def tracked(paths: list[str]) -> list[str]:
    """The tracked files in these files and folders, in all of the tree without any."""
    command = ["git", "ls-files", "-co", "--exclude-standard", "--", *paths]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


@functools.cache
def digest(file: pathlib.Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@functools.cache
def includes(file: pathlib.Path, folders: tuple[pathlib.Path, ...]) -> list[pathlib.Path]:
    """The files that `file` includes, by its text alone, from its own folder and `folders`."""
    names = re.findall(r'^\s*#\s*include\s*["<]([^">]+)[">]', file.read_text(errors="replace"), re.M)
    candidates = ([folder / name for folder in (file.parent, *folders)] for name in names)
    return [found.resolve() for paths in candidates for found in paths if found.is_file()]


class Compilation:
    """All compilations of one file. `key` changes with everything in the project and the build that they read."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.commands: list[str] = []
        self.files = {pathlib.Path(file)}
        self.sources = re.findall(r'^#include "([^"]+\.cpp)"$', pathlib.Path(file).read_text(), re.M)

    def add(self, command: str, directory: pathlib.Path) -> None:
        self.commands.append(command)
        words = shlex.split(command)
        folders = tuple(directory / word[2:] for word in words if word.startswith("-I"))
        self.files |= {directory / word.removesuffix(".pch") for word in words if word.endswith(".pch")}
        pending = list(self.files)
        while pending:
            new = set(includes(pending.pop(), folders)) - self.files
            self.files |= new
            pending += new

    def key(self, common: str) -> str:
        parts = [common, *self.commands, *(f"{file} {digest(file)}" for file in sorted(self.files))]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def compilations(build: pathlib.Path, sources: list[str]) -> list[Compilation]:
    """The compilations that contain `sources`. The copy of the runtime that artifacts embed is left out."""
    requested = {str(ROOT / name) for name in sources}
    found: dict[str, Compilation] = {}
    for command in json.loads((build / "compile_commands.json").read_text()):
        file, text = command["file"], command["command"]
        if not file.endswith(".cpp") or "RuntimeEmbedded" in text or not pathlib.Path(file).exists():
            continue
        unit = found.get(file) or Compilation(file)
        if ({str(ROOT / name) for name in unit.sources} | {file}) & requested:
            unit.add(text, pathlib.Path(command["directory"]))
            found[file] = unit
    # The largest first, so that the last one to finish is a short one.
    return sorted(found.values(), key=lambda unit: -len(unit.sources))


def changed_since(commit: str) -> list[str]:
    """The files that have changed since this commit and exist. Exits if there is no such commit."""
    command = ["git", "diff", "--name-only", "--diff-filter=d", commit]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"lint: {done.stderr.strip()}")
    return done.stdout.splitlines()


def reading(units: list[Compilation], names: list[str]) -> tuple[list[Compilation], list[str]]:
    """The compilations that read most of these files, LIMIT at most, and the files that none of them reads."""
    left, chosen = {ROOT / name for name in names}, []
    while len(chosen) < LIMIT and (found := max(units, key=lambda unit: len(unit.files & left), default=None)):
        if not found.files & left:
            break
        chosen.append(found)
        left -= found.files
    return chosen, sorted(str(file.relative_to(ROOT)) for file in left)


class CleanCompilations:
    """The compilations without a report, in a file of the build tree: the key of each when its check began."""

    def __init__(self, build: pathlib.Path, tidy: str) -> None:
        self.path = build / "clang-tidy-clean.json"
        self.keys: dict[str, str] = json.loads(self.path.read_text()) if self.path.exists() else {}
        version = subprocess.run([tidy, "--version"], capture_output=True, text=True, check=True).stdout
        self.common = "\n".join([version, *((ROOT / name).read_text() for name in tracked(["*.clang-tidy"]))])

    def begin(self, unit: Compilation, force: bool) -> str:
        """The key under which to report the check of `unit`; empty if `unit` is clean and `force` is not set."""
        key = unit.key(self.common)
        if self.keys.get(unit.file) == key and not force:
            return ""
        if self.keys.pop(unit.file, None):
            self.save()
        return key

    def end(self, file: str, key: str) -> None:
        """Records a clean check at once, so that an interrupted run is not repeated as a whole."""
        self.keys[file] = key
        self.save()

    def save(self) -> None:
        self.path.write_text(json.dumps(self.keys, indent=0, sort_keys=True))


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
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--all", action="store_true", help="run clang-tidy on unchanged compilations as well")
    which.add_argument("--since", metavar="COMMIT", help="run clang-tidy on the files changed since it")
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
    begun: dict[str, str] = {}
    if "clang-tidy" in selected:
        clean = CleanCompilations(build, tidy)
        listed = compilations(build, sources)
        lines: list[str] = []
        if options.since:
            changed = sorted({*changed_since(options.since)} & {*cpp})
            listed, unread = reading(listed, changed)
            lines = ["--line-filter=" + json.dumps([{"name": str(ROOT / name)} for name in changed])]
            if unread:
                print(f"==> clang-tidy: left out of {len(changed)} changed files: {', '.join(unread)}", flush=True)
        begun = {unit.file: key for unit in listed if (key := clean.begin(unit, options.all))}
        checks["clang-tidy"] = [[tidy, "-p", str(build), "--quiet", *lines, file] for file in begun]
        print(f"==> clang-tidy: {len(begun)} of {len(listed)} compilations, the others are clean", flush=True)
    failed = []
    for name in selected:
        commands = checks[name]
        if not commands:
            continue
        start, ok = time.monotonic(), True
        print(f"==> {name}", end="", flush=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for command, (code, output) in zip(commands, pool.map(run, commands), strict=True):
                if code or output.strip():
                    ok = False
                    print("\n" + output.rstrip(), flush=True)
                elif name == "clang-tidy" and not options.since:
                    clean.end(command[-1], begun[command[-1]])
        print(f"  {'clean' if ok else 'FAILED'} in {time.monotonic() - start:.0f} s", flush=True)
        if not ok:
            failed.append(name)
    sys.exit(f"lint: failed: {', '.join(failed)}" if failed else 0)


if __name__ == "__main__":
    main()
