"""Mutants written by hand: mistakes as a developer makes them, in COMPONENT.toml or COMPONENT-PART.toml:

    [tables-exchanged]
    what = "Kernels read maxima as minima and minima as maxima."
    file = "lib/Dialect/Attn/Analysis/RuntimeMaskInputs.cpp"
    old = 'return {tables[2 * i], tables[2 * i + 1]}'
    new = 'return {tables[2 * i + 1], tables[2 * i]}'

`old` occurs once in the file; any white space in it stands for any other. The further lines of `new` are indented as
the line that they replace. A mistake in several places has an array of tables, [[NAME.places]]. Run as a program, this
checks that all of them fit the tree.
"""

import dataclasses
import functools
import pathlib
import re
import sys
import tomllib

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from components import component_of


@dataclasses.dataclass(frozen=True)
class Written:
    """A mutant of one file. Each of `changes` is a text of the file and the text in its place."""

    component: str
    name: str
    what: str
    file: str
    changes: tuple[tuple[str, str], ...]

    @property
    def id(self) -> str:
        return f"{self.component}/{self.name}"

    def apply(self, source: str) -> str:
        """The source with this mistake. Raises ValueError if a text does not occur exactly once or is not changed."""
        places = []
        for old, new in self.changes:
            found = list(re.finditer(r"\s+".join(map(re.escape, old.split())), source))
            if len(found) != 1 or not old.strip():
                raise ValueError(f"this text occurs {len(found)} times in {self.file}, expected once:\n{old}")
            if old.split() == new.split():
                raise ValueError(f"this text is replaced by itself:\n{old}")
            start, end = found[0].span()
            line = source[source.rfind("\n", 0, start) + 1 : start]
            places.append((start, end, new.replace("\n", "\n" + line[: len(line) - len(line.lstrip())])))
        for start, end, new in sorted(places, reverse=True):
            source = source[:start] + new + source[end:]
        return source


@functools.cache
def read() -> dict[str, Written]:
    """All of them, by id."""
    found = {}
    for path in sorted(HERE.glob("*.toml")):
        for name, table in tomllib.loads(path.read_text()).items():
            changes = tuple((each["old"], each["new"]) for each in table.get("places", [table]))
            mutant = Written(path.stem.partition("-")[0], name, table["what"], table["file"], changes)
            if found.setdefault(mutant.id, mutant) is not mutant:
                raise ValueError(f"two mutants are called {mutant.id}")
    return found


def problem(root: pathlib.Path, mutant: Written) -> str:
    """Why a mutant does not fit the tree, or nothing."""
    if component_of(mutant.file) != mutant.component:
        return f"{mutant.file} is no source of the component"
    if not mutant.what.endswith("."):
        return "`what` must be a sentence"
    if not (root / mutant.file).is_file():
        return f"{mutant.file} does not exist"
    try:
        mutant.apply((root / mutant.file).read_text())
    except ValueError as error:
        return str(error)
    return ""


if __name__ == "__main__":
    stale = [f"{mutant.id} does not fit the tree any more, change it with the code: {what}"
             for mutant in read().values() if (what := problem(HERE.parents[1], mutant))]
    sys.exit("\n".join(stale) or None)
