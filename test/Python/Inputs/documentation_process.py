"""Runs the blocks of code of the page PAGE in the current folder and prints how many ran: documentation_process.py PAGE

Blocks run in order. Blocks of Python share one namespace; a comment behind a print, `print(x)  # 3`, is what it must
print. Blocks of `sh` run with `bash -e`, the tools on the PATH. Blocks of `mlir` are whole programs, verified and
imported. A comment above a block changes this:

    <!-- file: NAME -->        the block is also written to the file NAME
    <!-- output -->            the block is the output of the block before; "..." stands for any text
    <!-- not run: REASON -->   the block is left out
"""

import contextlib
import io
import os
import pathlib
import re
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
            command = ["saccade-compile", "-", "--stop-after=import", "-o", os.devnull]
            subprocess.run(command, input=code, text=True, check=True)
        count += language in RUN or comment == "output"
    return count


if __name__ == "__main__":
    print(run_page(pathlib.Path(sys.argv[1]), pathlib.Path.cwd()))
