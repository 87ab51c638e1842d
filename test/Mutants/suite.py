"""Runs the tests of a component on the tree with a mutant, until one of them notices it."""

import contextlib
import dataclasses
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import reach
from components import Component

LIT = next(path for path in ("/usr/lib/llvm-22/bin/lit", shutil.which("lit")) if path and os.path.exists(path))
_CHUNK = 8.0  # seconds of tests in one run of lit


@dataclasses.dataclass
class Item:
    """A test: a file for lit, an executable of unit tests, or a file for pytest."""

    kind: str  # "lit", "unit" or "pytest"
    name: str  # as lit prints it ("Import/Raise/lint.mlir"), "Unit/JITTests", or the name of the file
    seconds: float = 0
    fails: bool = False  # without any mutant
    reached: list[int] = dataclasses.field(default_factory=list)  # mutants of the build


@dataclasses.dataclass
class Verdict:
    """Whether a mutant is noticed, by which test, and after how many seconds."""

    outcome: str  # "killed", "survived", "not reached"
    by: str = ""
    seconds: float = 0


class Suite:
    """The tests of a built copy of the tree."""

    def __init__(self, folder: pathlib.Path, jobs: int):
        self.folder, self.jobs = folder, jobs
        self.build = folder / "build" / "dev"
        self.python = str(folder / ".venv" / "bin" / "python")

    # --- without a mutant --------------------------------------------------------------------------------------------

    def measure(self, selected: list[Component], known: set[str], numbers: bool) -> dict[str, Item]:
        """Runs the tests of these components, except for those `known`, without a mutant: their times, failures, and
        with `numbers` the mutants that they reach."""
        items: dict[str, Item] = {}
        with tempfile.TemporaryDirectory() as temporary:
            variables = {"SACCADE_MUTANT": "0", reach.FOLDER: temporary} if numbers else {}
            for name in self._lit_names():
                if any(component.has_lit(name) for component in selected) and name not in known:
                    items[name] = Item("lit", name)
            self._measure_lit(items, variables, pathlib.Path(temporary))
            for path in sorted((self.build / "test" / "Unit").glob("*Tests")):
                name = f"Unit/{path.name}"
                if any(component.has_lit(name) for component in selected) and name not in known:
                    items[name] = self._measure_one(Item("unit", name), numbers, pathlib.Path(temporary))
            for path in sorted((self.folder / "test" / "Python").glob("test_*.py")):
                if any(component.has_pytest(path.name) for component in selected) and path.name not in known:
                    items[path.name] = self._measure_one(Item("pytest", path.name), numbers, pathlib.Path(temporary))
        return items

    def _lit_names(self) -> list[str]:
        output = subprocess.run([LIT, "--show-tests", str(self.build / "test")], capture_output=True, text=True,
                                env=self._variables({})).stdout
        return re.findall(r"^\s+Saccade :: (\S+)$", output, re.M)

    def _measure_lit(self, items: dict[str, Item], variables: dict[str, str], hits: pathlib.Path) -> None:
        results = hits / "results.json"
        paths = [str(self.build / "test" / item.name) for item in items.values()]
        if not paths:
            return
        subprocess.run([LIT, "-q", "-j", str(self.jobs), "-o", str(results), *paths], capture_output=True, text=True,
                       env=self._variables(variables))
        for test in json.loads(results.read_text())["tests"]:
            item = items[test["name"].partition(" :: ")[2]]
            item.seconds = test["elapsed"]
            item.fails = test["code"] not in ("PASS", "XFAIL", "UNSUPPORTED", "FLAKYPASS")
            item.reached = sorted(_numbers(hits / reach.file_of(test["name"])))

    def _measure_one(self, item: Item, numbers: bool, hits: pathlib.Path) -> Item:
        start = time.monotonic()
        file = hits / reach.file_of(item.name)
        variables = {"SACCADE_MUTANT": "0", "SACCADE_MUTANT_HITS": str(file)} if numbers else {}
        code, _ = self._run_one(item, variables, 1200)
        item.seconds, item.fails, item.reached = time.monotonic() - start, code not in (0, 5), sorted(_numbers(file))
        return item

    # --- with a mutant -----------------------------------------------------------------------------------------------

    def judge(self, items: list[Item], number: int, limit: float, log: pathlib.Path | None = None,
              records: bool = False) -> Verdict:
        """Runs tests on a mutant, the quickest first, until one fails, crashes, or takes several times as long as
        without it. With a `number` the mutant is one of the build; only tests that reach it are run. `records`: the
        mutated source itself records that it is reached."""
        items = sorted((item for item in items if not item.fails and (not number or number in item.reached)),
                       key=lambda item: item.seconds)
        if not items:
            return Verdict("not reached")
        start = time.monotonic()
        with tempfile.TemporaryDirectory() as temporary:
            hits = pathlib.Path(temporary, "hits")
            variables = {"SACCADE_MUTANT": str(number)} if number else {}
            variables["SACCADE_MUTANT_HITS"] = str(hits)
            for chunk in _chunks(items):
                left = limit * _contention() - (time.monotonic() - start)
                if left <= 0:
                    return Verdict("survived", f"the limit of {limit:.0f} s", time.monotonic() - start)
                seconds = (60 + 6 * sum(item.seconds for item in chunk)) * _contention()
                if by := self._notices(chunk, variables, seconds, log):
                    return Verdict("killed", by, time.monotonic() - start)
            outcome = "not reached" if records and not _numbers(hits) else "survived"
        return Verdict(outcome, "", time.monotonic() - start)

    def _notices(self, chunk: list[Item], variables: dict[str, str], seconds: float, log: pathlib.Path | None) -> str:
        """The first test that fails; empty if none does."""
        if chunk[0].kind != "lit":
            code, output = self._run_one(chunk[0], variables, seconds)
            failed = re.search(r"^FAILED (\S+)|^\[  FAILED  \] (\w\S+)", output, re.M)
            name = chunk[0].name
            by = "" if code in (0, 5) else failed[1] or f"{name} {failed[2]}" if failed else f"{name} ({_reason(code)})"
        else:
            paths = [str(self.build / "test" / item.name) for item in chunk]
            command = [LIT, "-v", "-j", str(self.jobs), "--max-failures", "1", "--order", "lexical", *paths]
            code, output = _limited(command, self._variables(variables), seconds)
            failed = re.search(r"^(?:FAIL|TIMEOUT|XPASS|UNRESOLVED): \S+ :: (\S+)", output, re.M)
            by = "" if code == 0 else failed[1] if failed else f"{chunk[0].name} ({_reason(code)})"
        if by and log:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(output[-20000:])
        return by

    def _run_one(self, item: Item, variables: dict[str, str], seconds: float) -> tuple[int, str]:
        if item.kind == "unit":
            command = [str(self.build / "test" / item.name), "--gtest_fail_fast", "--gtest_brief=1"]
        else:
            command = [self.python, "-m", "pytest", "-x", "-n", "0", "-p", "no:cacheprovider", "--durations", "0",
                       "-rf", str(self.folder / "test" / "Python" / item.name)]
        return _limited(command, self._variables(variables), seconds, self.folder)

    def _variables(self, more: dict[str, str]) -> dict[str, str]:
        path = os.pathsep.join([str(self.build / "bin"), os.environ["PATH"]])
        return {**os.environ, "PATH": path, "PYTHONPATH": str(self.build / "python"), "SACCADE_BUILD": str(self.build),
                "OMP_WAIT_POLICY": "passive", **more}


def _limited(command: list[str], variables: dict[str, str], seconds: float, folder: pathlib.Path | None = None
             ) -> tuple[int, str]:
    """The exit code, -SIGKILL after the limit, and the output of a command and its children."""
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(command, cwd=folder, env=variables, stdout=output, stderr=subprocess.STDOUT,
                                   start_new_session=True)
        try:
            code = process.wait(seconds)
        except subprocess.TimeoutExpired:
            code = -signal.SIGKILL
        # Mutants may leave processes that wait for ever.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        output.seek(0)
        return code, output.read()


def _chunks(items: list[Item]) -> list[list[Item]]:
    """Groups of tests for one run each: some seconds of lit, or one program or file."""
    chunks: list[list[Item]] = []
    for item in items:
        last = chunks[-1] if chunks else []
        joins = last and last[0].kind == item.kind == "lit" and sum(each.seconds for each in last) < _CHUNK
        (last if joins else chunks.append(new := []) or new).append(item)
    return chunks


def _numbers(file: pathlib.Path) -> set[int]:
    """The mutants that a process has recorded in a file."""
    return {int(line) for line in file.read_text().split()} if file.exists() else set()


def _contention() -> float:
    """How many times longer than on an idle machine everything takes."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _reason(code: int) -> str:
    return "took too long" if code == -signal.SIGKILL else f"exit code {code}"
