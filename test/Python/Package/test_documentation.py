"""Every block of code in the README and in docs/ runs, as Inputs/documentation_process.py says. A page runs in an empty
folder with links to `examples`, `include`, `benchmarks`, `test` and `build/dev`."""

import os
import pathlib
import subprocess
import sys

import pytest

for package in ("torch", "onnx", "jax"):
    pytest.importorskip(package)

import documentation_process
from documentation_process import RUN, blocks_of, matches

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGES = {str(page.relative_to(ROOT)): page for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
         if any(language in RUN for _, language, _, _ in blocks_of(page))}  # fmt: skip


@pytest.fixture
def run_page(root, build, tmp_path):
    """A function that runs a page in the prepared folder."""
    folder = tmp_path / "page"
    (folder / "build").mkdir(parents=True)
    (folder / "bin").mkdir()
    for name in ("examples", "include", "benchmarks", "test"):
        (folder / name).symlink_to(root / name)
    (folder / "build" / "dev").symlink_to(build)
    # `python` of the pages is the one that runs this; a symbolic link would leave its virtual environment.
    (folder / "bin" / "python").write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    (folder / "bin" / "python").chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
                   "PYTHONPATH": str(build / "python")}  # fmt: skip

    def run(page):
        command = [sys.executable, documentation_process.__file__, page]
        return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)

    return run


def test_pages_are_found():
    assert len(PAGES) > 10, list(PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_blocks_of_the_page_run(run_page, page):
    done = run_page(PAGES[page])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(("text", "message"), [
    pytest.param("```python\nprint(3)  # 4\n```\n", "the page says ['4']", id="print"),
    pytest.param("```sh\necho 3\n```\n<!-- output -->\n```\n4\n```\n", "found\n3\n\nexpected\n4", id="output"),
    pytest.param("```sh\nfalse\ntrue\n```\n", "exit code 1", id="sh"),
    pytest.param("```mlir\nfunc.func\n```\n", "CalledProcessError", id="mlir"),
])  # fmt: skip
def test_wrong_page_fails(run_page, tmp_path, text, message):
    (tmp_path / "wrong.md").write_text(text)
    done = run_page(tmp_path / "wrong.md")
    assert done.returncode != 0
    assert message in done.stderr


@pytest.mark.parametrize(("expected", "found", "is_match"), [
    ("a\nb", "a \nb\n", True), ("a...d", "a b c d", True), ("a...", "a b", True), ("a", "a b", False),
    ("a...c", "a b", False), ("a...b...a", "a b", False), ("ab...b", "ab", False),
    ("%1 = f %c4_1\n...g %1", "%7 = f %c4_2\nh\ng %7", True), ("%1 = f %2\n...g %1", "%7 = f %2\ng %2", False),
    ("%c4_1", "%c8_1", False), ("%arg1", "%arg2", False), ("%1 = f(%1)", "%1 = f(%2)", False),
])  # fmt: skip
def test_dots_in_the_output_stand_for_any_text(expected, found, is_match):
    assert matches(expected, found) == is_match
