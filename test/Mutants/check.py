"""Checks how mutants are written into sources. Usage: check.py --root DIR --cxx COMPILER"""

import argparse
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import cxx_sites
import python_sites
import schemata
from components import COMPONENTS
from mutants import read_equivalent
from sites import innermost
from written import Written, problem, read

_SOURCE = """#include <algorithm>
#include <cstdio>
static int calls = 0;
static void count() { ++calls; }
static int clamp(int x, int low, int high) {
  count();
  if (low > high)
    return low;
  return std::min(std::max(x, low), high);
}
static bool inside(int x) { return x >= 2 && x < 5; }
int main() {
  int sum = 0;
  for (int i = 0; i < 6; ++i)
    sum += inside(i) ? i : -1;
  std::printf("%d %d %d %d\\n", sum, clamp(9, 1, 7), clamp(3, 4, 2), calls);
}
"""
_PYTHON = b"""def first(values, default=1):
    if not values:
        return default
    return values[0] if values[0] > 2 else min(values) - 1
"""


def check_written(root: pathlib.Path) -> None:
    """A mutant written by hand is planted at the one place of its text, or a message says why it is not."""
    assert len(read()) > 200, f"found {len(read())} mutants"
    source = _PYTHON.decode()

    def planted(*changes: tuple[str, str]) -> str:
        return Written("Python", "name", "It is.", "a.py", changes).apply(source)

    in_two_places = planted(("2 else", "3 else"), ("if not  values: return default", "if not values:\n    return 0"))
    assert in_two_places == source.replace("2 else", "3 else").replace("return default", "return 0"), in_two_places
    for old, new, message in (("values", "", "occurs 5 times"), ("value[", "", "occurs 0 times"),
                              ("", "x", "expected once"), ("values[0]  > 2", "values[0] > 2", "by itself")):
        try:
            raise AssertionError(planted((old, new)))
        except ValueError as error:
            assert message in str(error), error
    one = next(iter(read().values()))
    for field, value, message in (("component", "JIT", "no source"), ("what", "It is", "sentence"),
                                  ("file", one.file + "x", "not exist"),
                                  ("changes", (("no such text", ""),), "0 times")):
        assert message in problem(root, dataclasses.replace(one, **{field: value})), field


def check_components(root: pathlib.Path) -> None:
    """Every source file of the project belongs to a component, and every component has files."""
    held = {name for component in COMPONENTS for name in component.files(root)}
    for component in COMPONENTS:
        assert component.files(root) and (component.lit or component.pytest), component.name
    sources = [*(root / "lib").rglob("*.cpp"), *(root / "tools").rglob("*.cpp"), *(root / "python" / "saccade").rglob("*.py")]
    missing = {str(path.relative_to(root)) for path in sources}
    assert not missing - held, f"in no component: {sorted(missing - held)}"
    read_equivalent()


def check_literals() -> None:
    """Mutants of integer literals keep their base and suffix."""
    expected = {"0": ["1"], "7": ["8", "6"], "0600": ["0601", "0577"], "00": ["01"], "0x0Ful": ["0x10ul", "0xeul"],
                "0b11": ["0b100", "0b10"], "10'000": ["10001", "9999"], "1u": ["2u", "0u"], "0u": ["1u"], "1_GB": []}
    for literal, others in expected.items():
        assert cxx_sites.neighbours(literal) == others, (literal, cxx_sites.neighbours(literal))


def check_cxx(compiler: str) -> None:
    """All mutants of a program in one build: each switch gives what the mutated source gives."""
    if cxx_sites.clang() is None:
        print("libclang's Python bindings are missing: C++ is not checked")
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        (folder / "build" / "dev").mkdir(parents=True)
        (folder / "a.cpp").write_text(_SOURCE)
        unit = folder / "unit.cpp"
        unit.write_text('// Generated: the sources of one compilation.\n#include "a.cpp"\n')
        command = {"directory": temporary, "file": str(unit), "command": f"{compiler} -c {unit}"}
        (folder / "build" / "dev" / "compile_commands.json").write_text(json.dumps([command]))
        found = innermost(cxx_sites.Finder(folder).find("a.cpp"))
        kinds = {site.kind for site in found}
        assert kinds == {"comparison", "constant", "bound", "arm", "sign", "logic", "call", "return"}, kinds
        header = folder / schemata.HEADER
        header.parent.mkdir(parents=True)
        header.write_text(schemata.HEADER_TEXT)
        text = schemata.render(_SOURCE.encode(), list(enumerate(found, 1)))
        assert schemata.culprits(text, [text.count("\n")]) <= set(range(1, len(found) + 1))
        program = _compiled(compiler, folder, "all", text)
        expected = _output(_compiled(compiler, folder, "plain", _SOURCE), {})
        hits = folder / "hits"
        assert _output(program, {"SACCADE_MUTANT": "0", "SACCADE_MUTANT_HITS": str(hits)}) == expected
        reached = set(map(int, hits.read_text().split()))
        assert 0 < len(reached) <= len(found), reached
        differs = 0
        for number, site in list(enumerate(found, 1))[::5]:
            try:
                mutant = _output(_compiled(compiler, folder, "one", site.apply(_SOURCE.encode())), {})
            except subprocess.CalledProcessError:
                continue
            assert _output(program, {"SACCADE_MUTANT": str(number)}) == mutant, site
            differs += mutant != expected
        assert differs >= 3, differs


def _compiled(compiler: str, folder: pathlib.Path, name: str, text: str) -> pathlib.Path:
    (folder / f"{name}.cpp").write_text(text)
    subprocess.run([compiler, "-std=c++20", "-w", f"-I{folder}/include", "-o", str(folder / name),
                    str(folder / f"{name}.cpp")], check=True, capture_output=True)
    return folder / name


def _output(program: pathlib.Path, variables: dict[str, str]) -> str:
    try:
        done = subprocess.run([str(program)], capture_output=True, text=True, timeout=2,
                              env={**os.environ, **variables})
    except subprocess.TimeoutExpired:
        return "endless"
    return f"{done.returncode} {done.stdout}"


def check_python() -> None:
    """Mutants of Python are valid, differ from the source, and record that they are reached."""
    found = python_sites.find("a.py", _PYTHON)
    assert {site.kind for site in found} == {"comparison", "constant", "bound", "arm", "sign", "logic", "return"}
    for site in found:
        compile(site.apply(_PYTHON), "a.py", "exec")
        assert site.changed(_PYTHON) not in _PYTHON.decode(), site
    code = compile(python_sites.recording(_PYTHON, list(enumerate(found, 1))), "a.py", "exec")
    reached = []
    with tempfile.TemporaryDirectory() as temporary:
        hits = pathlib.Path(temporary, "hits")
        os.environ |= {"SACCADE_MUTANT_HITS": str(hits), "SACCADE_MUTANT": "0"}
        for values in ([3, 4], []):
            names: dict = {}
            exec(code, names)
            names["first"](values)
            reached.append({found[int(row) - 1] for row in hits.read_text().split()})
            hits.unlink()
        os.environ["SACCADE_MUTANT"] = "1"
        names["first"]([3, 4])
        assert not hits.exists()
    del os.environ["SACCADE_MUTANT_HITS"], os.environ["SACCADE_MUTANT"]
    assert reached[1] < reached[0] == set(found), reached


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split(".")[0])
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--cxx", required=True)
    options = parser.parse_args()
    check_written(options.root)
    check_components(options.root)
    check_literals()
    check_cxx(options.cxx)
    check_python()


if __name__ == "__main__":
    main()
