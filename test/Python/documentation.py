"""Every block of code in the README and in docs/ runs.

Blocks of a page run in order, in an empty folder with links to `examples`, `include` and `build/dev`. Blocks of Python share
one namespace; a comment behind a print, `print(x)  # 3`, is what it must print. Blocks of `sh` run with `bash -e`, the
tools on the PATH. Blocks of `mlir` are whole programs and are verified and imported. A comment above a block changes this:

    <!-- file: NAME -->        the block is also written to the file NAME
    <!-- output -->            the block is the output of the block before; "..." stands for any text
    <!-- not run: REASON -->   the block is left out

REQUIRES: torch, onnx, jax
UNSUPPORTED: asan, tsan
RUN: %python %s %src %build %t
"""

import concurrent.futures
import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys

BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
RUN, SKIPPED = ("python", "sh", "mlir", "c"), ("not run: ", "generated")


def blocks_of(page):
    """(comment, language, code, line) of each block."""
    text = page.read_text()
    return [(found[1] or "", found[2], found[3], text[: found.start(3)].count("\n")) for found in BLOCK.finditer(text)]


def matches(expected, found):
    """Whether `found` consists of the parts of `expected` between "...", in this order."""
    first, *parts = "\n".join(line.rstrip() for line in expected.strip("\n").splitlines()).split("...")
    found = "\n".join(line.rstrip() for line in found.strip("\n").splitlines())
    if not found.startswith(first) or not parts and found != first:
        return False
    place = len(first)
    for part in parts[:-1]:
        if (place := found.find(part, place)) < 0:
            return False
        place += len(part)
    return not parts or found.endswith(parts[-1]) and len(found) - len(parts[-1]) >= place


def run_python(page, code, line, names):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        # Empty lines before it, so that a traceback has the page's line numbers.
        exec(compile("\n" * line + code, page, "exec"), names)
    expected = re.findall(r"print\(.*\)  # (.*)", code)
    found = printed.getvalue()
    if expected:
        assert found.splitlines() == expected, f"{page}:{line}: prints {found!r}, the page says {expected}"
    return found


def run_page(page, folder):
    """Runs the blocks of a page in the folder; the number of those that ran."""
    names, output, count = {"__name__": "page"}, "", 0
    for comment, language, code, line in blocks_of(page):
        if comment.startswith(SKIPPED):
            continue
        if comment.startswith("file: "):
            (folder / comment.removeprefix("file: ")).write_text(code)
        if comment == "output":
            assert matches(code, output), f"{page}:{line}: found\n{output}\nexpected\n{code}"
        elif language == "python":
            output = run_python(page, code, line, names)
        elif language == "sh":
            done = subprocess.run(["bash", "-ec", code], capture_output=True, text=True)
            output = done.stdout
            assert done.returncode == 0, f"{page}:{line}: exit code {done.returncode}\n{output}{done.stderr}"
        elif language == "mlir":
            subprocess.run(["saccade-compile", "-", "--stop-after=import", "-o", os.devnull], input=code, text=True, check=True)
        count += language in RUN or comment == "output"
    return count


def prepare(source, build, folder):
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("examples", "include", "benchmarks", "test"):
        (folder / name).symlink_to(source / name)
    (folder / "build" / "dev").symlink_to(build)
    # `python` of the pages is the one that runs this; a symbolic link would leave its virtual environment.
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "bin" / "python").chmod(0o755)


def main(source, build, root):
    pages = [source / "README.md", *sorted((source / "docs").rglob("*.md"))]
    pages = [page for page in pages if any(language in RUN for _, language, _, _ in blocks_of(page))]
    assert len(pages) > 10, pages

    def run(page):
        folder = root / str(page.relative_to(source)).replace("/", "-").removesuffix(".md")
        prepare(source, build, folder)
        environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"}
        command = [sys.executable, __file__, "--page", page]
        return page, subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for page, done in pool.map(run, pages):
            print(page.relative_to(source), "failed" if done.returncode else f"{done.stdout.strip()} blocks", flush=True)
            if done.returncode:
                failed += 1
                print(done.stdout, done.stderr, flush=True)
    sys.exit(failed > 0)


if __name__ == "__main__":
    if sys.argv[1] == "--page":
        print(run_page(pathlib.Path(sys.argv[2]), pathlib.Path.cwd()))
    else:
        main(*(pathlib.Path(argument).resolve() for argument in sys.argv[1:4]))
