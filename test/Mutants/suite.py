"""Runs the tests of a component on the tree with a mutant, until one of them notices it."""

import collections
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
from collections.abc import Callable

import reach
from workspace import ROOT

LIT = next(path for path in ("/usr/lib/llvm-22/bin/lit", shutil.which("lit")) if path and os.path.exists(path))
_CHUNK = 8.0  # seconds of tests in one run of lit
_PATIENCE = 600  # seconds for tests whose time was not measured
_GUESS = {"lit": 4.0, "unit": 4.0, "pytest": 20.0}  # seconds of a test before its first run


@dataclasses.dataclass
class Item:
    """A test: a file for lit, an executable of unit tests, or a file for pytest."""

    kind: str  # "lit", "unit" or "pytest"
    name: str  # as lit prints it ("Import/Raise/lint.mlir"), "Unit/JITTests", or "JAX/test_jax_ops.py"
    seconds: float | None = None  # without any mutant; None before its first run
    expected: float | None = None  # by an earlier run of any tree
    fails: bool = False  # without any mutant
    reached: list[int] = dataclasses.field(default_factory=list)  # mutants of the build
    reaches_all: bool = False  # which it reaches is not known

    def reaches(self, number: int) -> bool:
        """Whether it reaches a mutant of the build; all reach 0."""
        return not number or self.reaches_all or number in self.reached

    @property
    def cost(self) -> float:
        """The seconds that it takes, measured or guessed."""
        return next(each for each in (self.seconds, self.expected, _GUESS[self.kind]) if each is not None)


@dataclasses.dataclass
class Verdict:
    """Whether a mutant is noticed, by which test, and after how many seconds."""

    outcome: str  # "killed", "survived", "not reached"
    by: str = ""
    seconds: float = 0
    tests: list[str] = dataclasses.field(default_factory=list)  # the names of those one of which noticed it


class Suite:
    """The tests of a built copy of the tree. With `numbers`, a test is first run without a mutant, when a mutant needs
    it: its time, whether it fails, and which mutants it reaches. Without, the copy itself has the mutant, and `measure`
    tells later whether the tests that failed do so without it too. `patience` is a factor of the time after which a test
    that still runs counts as endless."""

    def __init__(self, folder: pathlib.Path, jobs: int, numbers: bool, save: Callable[[], None],
                 patience: float = 1):
        self.folder, self.jobs, self.numbers, self.save, self.patience = folder, jobs, numbers, save, patience
        self.build = folder / "build" / "dev"
        self.python = str(folder / ".venv" / "bin" / "python")

    # --- without a mutant --------------------------------------------------------------------------------------------

    def listed(self) -> dict[str, Item]:
        """All tests."""
        output = subprocess.run([LIT, "--show-tests", str(self.build / "test")], capture_output=True, text=True,
                                env=self._variables({})).stdout
        items = [Item("lit", name) for name in re.findall(r"^\s+Saccade :: (\S+)$", output, re.M)]
        items += [Item("unit", f"Unit/{path.name}") for path in sorted((self.build / "test" / "Unit").glob("*Tests"))]
        package = self.folder / "test" / "Python"
        items += [Item("pytest", str(path.relative_to(package))) for path in sorted(package.rglob("test_*.py"))]
        for build in (ROOT / "build" / "dev", self.build):
            seconds = _recorded_seconds(build / "test")
            for item in items:
                item.expected = seconds.get(item.name, item.expected)
        return {item.name: item for item in items}

    def measure(self, items: list[Item]) -> None:
        """Runs the tests that have not run yet, without a mutant."""
        for chunk in _chunks([item for item in items if item.seconds is None]):
            self._measure(chunk)

    def _measure(self, chunk: list[Item]) -> None:
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(temporary)
            if chunk[0].kind == "lit":
                self._measure_lit(chunk, {"SACCADE_MUTANT": "0", reach.FOLDER: temporary} if self.numbers else {}, folder)
            else:
                self._measure_one(chunk[0], folder / reach.file_of(chunk[0].name))
        for item in chunk:
            if item.fails:
                print(f"  left out, because it fails without a mutant: {item.name}", flush=True)
        self.save()

    def _measure_lit(self, chunk: list[Item], variables: dict[str, str], hits: pathlib.Path) -> None:
        results = hits / "results.json"
        paths = [str(self.build / "test" / item.name) for item in chunk]
        subprocess.run([LIT, "-q", "-j", str(self.jobs), "-o", str(results), *paths], capture_output=True, text=True,
                       env=self._variables(variables))
        by_name = {item.name: item for item in chunk}
        for test in json.loads(results.read_text())["tests"]:
            item = by_name[test["name"].partition(" :: ")[2]]
            item.seconds = test["elapsed"]
            item.fails = test["code"] not in ("PASS", "XFAIL", "UNSUPPORTED", "FLAKYPASS")
            item.reached = sorted(_numbers(hits / reach.file_of(test["name"])))

    def _measure_one(self, item: Item, hits: pathlib.Path) -> None:
        start = time.monotonic()
        variables = {"SACCADE_MUTANT": "0", "SACCADE_MUTANT_HITS": str(hits)} if self.numbers else {}
        code, _ = self._run_one(item, variables, 1200)
        item.reached = sorted(_numbers(hits))
        if code not in (0, 5) and item.kind == "pytest" and self.numbers:
            # A compiler of Python, such as TorchDynamo, may refuse functions that record. The test counts as reaching all.
            start = time.monotonic()
            code, _ = self._run_one(item, {}, 1200)
            item.reaches_all = True
        item.seconds, item.fails = time.monotonic() - start, code not in (0, 5)

    # --- with a mutant -----------------------------------------------------------------------------------------------

    def judge(self, items: list[Item], number: int, limit: float, log: pathlib.Path | None = None,
              plant: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext) -> Verdict:
        """Runs tests on a mutant, the quickest first, until one fails, crashes, or takes several times as long as
        without it. With a `number` only tests that reach the mutant are run. It is there while `plant` is entered: in the
        build by its number, in Python by its source."""
        start = time.monotonic()
        reached, measuring = False, 0.0
        variables = {"SACCADE_MUTANT": str(number)} if number else {}
        for chunk in _chunks(sorted(items, key=lambda item: item.cost)):
            before = time.monotonic()
            if self.numbers:
                self.measure(chunk)
            measuring += time.monotonic() - before
            chunk = [item for item in chunk if not item.fails and item.reaches(number)]
            if not chunk:
                continue
            reached = True
            left = limit * _contention() - (time.monotonic() - start - measuring)
            if left <= 0:
                return Verdict("survived", f"the limit of {limit:.0f} s", time.monotonic() - start)
            seconds = self.patience * (60 + 6 * sum(item.cost for item in chunk))  # costs contain the load of the machine
            if any(item.seconds is None for item in chunk):
                seconds = max(seconds, _PATIENCE)
            with plant():
                by, tests = self._notices(chunk, variables, seconds, log)
            if by:
                return Verdict("killed", by, time.monotonic() - start, tests)
        return Verdict("survived" if reached else "not reached", "", time.monotonic() - start)

    def _notices(self, chunk: list[Item], variables: dict[str, str], seconds: float, log: pathlib.Path | None
                 ) -> tuple[str, list[str]]:
        """What fails first, and the names of the tests that may have failed; empty if none does."""
        names = [item.name for item in chunk]
        if chunk[0].kind != "lit":
            start = time.monotonic()
            code, output = self._run_one(chunk[0], variables, seconds)
            if code in (0, 5):
                chunk[0].expected = time.monotonic() - start
            failed = re.search(r"^FAILED (\S+)|^\[  FAILED  \] (\w\S+)", output, re.M)
            name = chunk[0].name
            by = "" if code in (0, 5) else failed[1] or f"{name} {failed[2]}" if failed else f"{name} ({_reason(code)})"
        else:
            paths = [str(self.build / "test" / item.name) for item in chunk]
            command = [LIT, "-v", "-j", str(self.jobs), "--max-failures", "1", "--order", "lexical", *paths]
            code, output = _limited(command, self._variables(variables), seconds)
            failed = re.search(r"^(?:FAIL|TIMEOUT|XPASS|UNRESOLVED): \S+ :: (\S+)", output, re.M)
            by = "" if code == 0 else failed[1] if failed else f"{chunk[0].name} ({_reason(code)})"
            names = [by] if by in names else names
        if by and log:
            log.parent.mkdir(parents=True, exist_ok=True)
            log.write_text(output[-20000:])
        return by, names if by else []

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


def _recorded_seconds(folder: pathlib.Path) -> collections.Counter[str]:
    """The seconds that lit has recorded for the tests of a folder."""
    found: collections.Counter[str] = collections.Counter()
    for record in (folder / ".lit_test_times.txt", folder / "Unit" / ".lit_test_times.txt"):
        for row in record.read_text().splitlines() if record.exists() else ():
            seconds, name = row.split(" ", 1)
            # The tests of an executable are split into shards: ./JITTests/0/2.
            shard = re.fullmatch(r"\./(\w+)/\d+/\d+", name)
            found[f"Unit/{shard[1]}" if shard else name] += float(seconds)
    return found


def _chunks(items: list[Item]) -> list[list[Item]]:
    """Groups of tests for one run each: some seconds of lit, or one program or file."""
    chunks: list[list[Item]] = []
    for item in items:
        last = chunks[-1] if chunks else []
        joins = last and last[0].kind == item.kind == "lit" and sum(each.cost for each in last) < _CHUNK
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
