"""Runs the blocks of code of the page PAGE in the current folder and prints how many ran: documentation_process.py PAGE

Blocks run in order. Blocks of Python share one namespace; a comment behind a print, `print(x)  # 3`, is what it must
print. Blocks of `sh` run with `bash -e`, the tools on the PATH. Blocks of `mlir` are whole programs, verified and
imported. A comment above a block changes this:

    <!-- file: NAME -->        the block is also written to the file NAME
    <!-- output -->            the block is the output of the block before; "..." stands for any text,
                                and MLIR may number its values otherwise
    <!-- not run: REASON -->   the block is left out
    <!-- on a fake GPU... -->  the block runs on the fake GPU of test/Support/FakeCUDA; `cupy` is gpu_arrays.py
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys

VALUE = re.compile(r"%([a-z]\w*_)?\d+\b")
BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```(\w*)\n(.*?)^```$", re.M | re.S)
RUN, SKIPPED = ("python", "sh", "mlir", "c"), ("not run: ", "generated")


def blocks_of(page):
    """(comment, language, code, line) of each block."""
    text = page.read_text()
    return [(found[1] or "", found[2], found[3], text[: found.start(3)].count("\n")) for found in BLOCK.finditer(text)]


def matches(expected, found):
    """Whether `found` consists of the parts of `expected` between "...", in this order. The numbers in names of MLIR
    values (%12, %c4_12) may differ from those of `expected`, but equal names must stay equal."""
    expected, found = ("\n".join(line.rstrip() for line in text.strip("\n").splitlines()) for text in (expected, found))
    parts, numbers, place = expected.split("..."), {}, 0
    for index, part in enumerate(parts):
        pattern = re.compile(pattern_of(part, numbers) + (r"\Z" if index == len(parts) - 1 else ""))
        match = pattern.search(found, place) if index else pattern.match(found)
        if match is None:
            return False
        numbers |= {name[1:]: number for name, number in match.groupdict().items()}
        place = match.end()
    return True


def pattern_of(part, numbers):
    """The regular expression of `part`. Value names that are not in `numbers` become groups, named "_" + name."""
    pattern, end, groups = "", 0, set()
    for value in VALUE.finditer(part):
        name, stem = value[0][1:], value[1] or ""
        number = numbers.get(name) or (f"(?P=_{name})" if name in groups else rf"(?P<_{name}>\d+)")
        groups.add(name)
        pattern += re.escape(part[end : value.start()]) + rf"%{stem}{number}\b"
        end = value.end()
    return pattern + re.escape(part[end:])


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
        if comment.startswith("on a fake GPU"):
            import gpu_arrays

            gpu_arrays.start("build/dev")
            sys.modules["cupy"] = gpu_arrays
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
