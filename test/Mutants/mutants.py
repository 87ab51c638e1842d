"""Plants mistakes in a copy of the tree, one at a time, and runs the tests of their component: which ones are noticed?

    ./dev mutants                    all that are written in test/Mutants/*.toml, then 300 mechanical mutants
    ./dev mutants Raise Analysis     the same for two components
    ./dev mutants --written Raise    the written ones only
    ./dev mutants --mechanical --count 1000 --seed 7
    ./dev mutants --report           the table of the results so far

A mutant is killed if a test fails, crashes or takes several times as long as without it. Mechanical mutants are chosen
at random from the syntax trees of the sources: a comparison, a constant, a bound, the arms of a choice, a sign, a
logical operator, a dropped call, an early return. All of C++ are in one build, behind a switch at run time; a test runs
once without a mutant, when it is first needed, and only on mutants that it reached. Survivors are written as patches to build/mutants/survivors. An interrupted run
continues where it stopped; killed mutants stay killed until their file changes, others are tried again when anything
changes.
"""

import argparse
import collections
import contextlib
import dataclasses
import hashlib
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import cxx_sites
import python_sites
import schemata
from components import Component, components
from sites import Site, innermost
from suite import Item, Suite, Verdict
from workspace import ROOT, BuildError, Workspace
from written import Written, read

OUT = ROOT / "build" / "mutants"
_BATCH = 10  # written mutants, after which the tests that noticed one run without a mutant
_SPARE = 1.3  # mutants that are written per mutant that is asked for: some do not compile


@dataclasses.dataclass
class Mutant:
    """A mechanical mutant, with its number in the build."""

    component: str
    number: int
    site: Site

    @property
    def id(self) -> str:
        return f"{self.site.file}:{self.site.start}-{self.site.end}:{self.site.kind}:{self.site.text}"

    @property
    def is_python(self) -> bool:
        return self.site.file.endswith(".py")


class Results:
    """Verdicts by mutant, saved after each one."""

    def __init__(self, fresh: bool, are_partial: bool):
        self.are_partial = are_partial  # not all tests are run
        self.path = OUT / "results.json"
        self.known: dict[str, dict] = {} if fresh or not self.path.exists() else json.loads(self.path.read_text())

    def get(self, key: str, file_digest: str, tree_digest: str) -> dict | None:
        """The verdict, if it still holds."""
        found = self.known.get(key)
        if found is None or found["file"] != file_digest:
            return None
        return found if found["outcome"] == "killed" or found["tree"] == tree_digest else None

    def put(self, key: str, component: str, what: str, verdict: Verdict, file_digest: str, tree_digest: str) -> None:
        if self.are_partial and verdict.outcome != "killed":
            return
        self.known[key] = {"component": component, "what": what, "file": file_digest, "tree": tree_digest,
                           **dataclasses.asdict(verdict)}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        temporary = self.path.with_suffix(".new")
        temporary.write_text(json.dumps(self.known, indent=1))
        temporary.replace(self.path)


def digest(*texts: str | bytes) -> str:
    return hashlib.sha256(b"\0".join(t if isinstance(t, bytes) else t.encode() for t in texts)).hexdigest()[:16]


def tree_digest() -> str:
    """Of everything that builds and tests depend on."""
    parts = ["include", "lib", "tools", "python", "test", "cmake", "CMakeLists.txt"]
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *parts], cwd=ROOT, capture_output=True,
                            text=True, check=True).stdout
    names = [name for name in listed.splitlines() if not name.startswith("test/Mutants/") and (ROOT / name).is_file()]
    return digest(*(part for name in sorted(names) for part in (name, (ROOT / name).read_bytes())))


def written_digest(mutant: Written) -> str:
    """Of a mutant and the file that it changes."""
    return digest(repr(mutant), (ROOT / mutant.file).read_bytes())


def current_digest(key: str) -> str:
    """The digest that a result must have been recorded with to hold for the tree as it is."""
    if mutant := read().get(key):
        return written_digest(mutant)
    path = ROOT / key.partition(":")[0]
    return digest(path.read_bytes()) if ":" in key and path.exists() else ""


class Tool:
    def __init__(self, options: argparse.Namespace, selected: list[Component]):
        self.options, self.components = options, selected
        self.results = Results(options.fresh, bool(options.tests))
        self.tree = tree_digest()
        self.equivalent = read_equivalent()
        self.counts: collections.Counter[str] = collections.Counter()

    # --- tests -------------------------------------------------------------------------------------------------------

    def tests(self, workspace: Workspace, kind: str, key: str) -> tuple[Suite, dict[str, list[Item]]]:
        """The suite, and its tests by component. Their times and results are kept while `key` is unchanged."""
        path = OUT / f"tests-{kind}.json"
        saved = json.loads(path.read_text()) if path.exists() else {}
        known = saved["items"] if saved.get("key") == key else {}
        expected = {name: each["seconds"] for name, each in saved.get("items", {}).items()}

        def save() -> None:
            found = {name: dataclasses.asdict(each) for name, each in items.items() if each.seconds is not None}
            path.write_text(json.dumps({"key": key, "items": found}))

        suite = Suite(workspace.folder, self.options.jobs, kind == "mechanical", save, self.options.patience)
        items = {name: Item(**known[name]) if name in known else each for name, each in suite.listed().items()}
        for name, item in items.items():
            item.expected = expected.get(name, item.expected)
        allowed = {name: each for name, each in items.items() if re.search(self.options.tests, name)}
        by_component = {component.name: component.tests(allowed) for component in self.components}
        if missing := [each.name for each in self.components if not each.tests(items)]:
            sys.exit(f"dev mutants: no test was found of {', '.join(missing)}")
        return suite, by_component

    def report_line(self, number: int, total: int, component: str, what: str, verdict: Verdict, known: bool) -> None:
        self.counts[verdict.outcome] += 1
        by = f" by {verdict.by}" if verdict.by else ""
        timing = "known" if known else f"{verdict.seconds:.0f} s"
        print(f"[{number}/{total}] {component}: {what}: {verdict.outcome}{by} ({timing}); "
              f"{self.counts['killed']} killed, {self.counts['survived']} survived, "
              f"{self.counts['not reached']} not reached", flush=True)

    # --- written mutants ---------------------------------------------------------------------------------------------

    def run_written(self) -> None:
        names = {component.name for component in self.components}
        mutants = [mutant for mutant in read().values() if mutant.component in names]
        workspace = Workspace(OUT / "written", self.options.jobs)
        todo = []
        for mutant in mutants:
            if found := self.results.get(mutant.id, written_digest(mutant), self.tree):
                verdict = Verdict(found["outcome"], found["by"], found["seconds"])
                self._report_written(mutant, len(mutants), verdict, True)
            else:
                todo.append(mutant)
        if not todo:
            return
        print(f"{len(todo)} of {len(mutants)} written mutants", flush=True)
        workspace.sync()
        workspace.configure()
        workspace.build()
        suite, tests = self.tests(workspace, "written", self.tree)
        while todo:
            some, todo = todo[:_BATCH], todo[_BATCH:]
            verdicts = {mutant: verdict for mutant in some
                        if (verdict := self._judge_written(workspace, suite, tests[mutant.component], mutant))}
            workspace.build()  # without a mutant
            noticing = {name for verdict in verdicts.values() for name in verdict.tests}
            killers = {item.name: item for each in tests.values() for item in each if item.name in noticing}
            suite.measure(list(killers.values()))
            failing = {name for name, item in killers.items() if item.fails}
            for mutant, verdict in verdicts.items():
                if failing.intersection(verdict.tests):
                    todo.append(mutant)  # again, without the tests that fail anyway
                    continue
                self.results.put(mutant.id, mutant.component, mutant.what, verdict, written_digest(mutant), self.tree)
                self._report_written(mutant, len(mutants), verdict, False)

    def _report_written(self, mutant: Written, total: int, verdict: Verdict, known: bool) -> None:
        self.report_line(sum(self.counts.values()) + 1, total, mutant.component, mutant.name, verdict, known)

    def _judge_written(self, workspace: Workspace, suite: Suite, tests: list[Item], mutant: Written) -> Verdict | None:
        """The verdict on one mutant; none if it does not fit the tree."""
        start = time.monotonic()
        try:
            workspace.write(mutant.file, mutant.apply((ROOT / mutant.file).read_text()))
            workspace.build()
            log = OUT / "log" / f"{mutant.id.replace('/', '-')}.log"
            verdict = suite.judge(tests, 0, self.options.limit, log)
        except (ValueError, BuildError) as error:
            print(f"{mutant.id}: does not fit the tree:\n{str(error)[-3000:]}", flush=True)
            self.counts["stale"] += 1
            return None
        finally:
            workspace.write(mutant.file)
        verdict.seconds = time.monotonic() - start
        print(f"  {mutant.id}: {verdict.outcome} {verdict.by} ({verdict.seconds:.0f} s)", flush=True)
        return verdict

    # --- mechanical mutants ------------------------------------------------------------------------------------------

    def run_mechanical(self) -> None:
        workspace = Workspace(OUT / "schemata", self.options.jobs)
        names = [component.name for component in self.components]
        plan_key = digest(self.tree, str(self.options.seed), str(self.options.count), *names)
        mutants = self._read_plan(plan_key)
        workspace.sync() if mutants is None else self._overlay(workspace, mutants)
        workspace.configure()
        if mutants is None:
            workspace.build(["SaccadePrecompiled", "SaccadeTableGen"])
            mutants = self._choose(workspace)
            mutants = self._compile(workspace, mutants)
            self._write_plan(plan_key, mutants)
        self._overlay(workspace, mutants)
        workspace.build()
        mutants = self._trim(mutants)
        suite, tests = self.tests(workspace, "mechanical", plan_key)
        mutants.sort(key=lambda mutant: [each.name for each in self.components].index(mutant.component))
        for i, mutant in enumerate(mutants, 1):  # by component: an interrupted run has the rates of some
            self._try(workspace, suite, tests[mutant.component], mutant, i, len(mutants))

    def _try(self, workspace: Workspace, suite: Suite, tests: list[Item], mutant: Mutant, number: int,
             total: int) -> None:
        source = (ROOT / mutant.site.file).read_bytes()
        what = f"{mutant.site.file}:{mutant.site.line(source)}: {mutant.site.kind}"
        file_digest = digest(source)
        if found := self.results.get(mutant.id, file_digest, self.tree):
            verdict = Verdict(found["outcome"], found["by"], found["seconds"])
            return self.report_line(number, total, mutant.component, what, verdict, True)
        if (mutant.site.file, mutant.site.changed(source)) in self.equivalent:
            verdict = Verdict("equivalent")
        elif mutant.is_python:
            staged = workspace.build_dir / mutant.site.file

            @contextlib.contextmanager
            def plant():
                staged.write_text(mutant.site.apply(source))
                try:
                    yield
                finally:
                    staged.write_text(workspace.text[mutant.site.file])

            verdict = suite.judge(tests, mutant.number, self.options.limit, plant=plant)
        else:
            verdict = suite.judge(tests, mutant.number, self.options.limit)
        changed = mutant.site.changed(source)
        self.results.put(mutant.id, mutant.component, f"{what}: {changed}", verdict, file_digest, self.tree)
        if verdict.outcome != "killed":
            folder = OUT / ("survivors" if verdict.outcome == "survived" else verdict.outcome.replace(" ", "-"))
            name = f"{pathlib.Path(mutant.site.file).stem}-{mutant.site.line(source)}-{mutant.site.kind}"
            path = folder / mutant.component / f"{name}-{digest(mutant.id)[:4]}.patch"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(mutant.site.patch(source, f"{what}: {changed}"))
        self.report_line(number, total, mutant.component, what, verdict, False)

    def _choose(self, workspace: Workspace) -> list[Mutant]:
        """Places chosen at random: first a kind, then a place, so that no kind prevails."""
        if cxx_sites.clang() is None:
            sys.exit("dev mutants: libclang's Python bindings are missing: install python3-clang-22")
        finder = cxx_sites.Finder(workspace.folder)
        each = -(-self.options.count // len(self.components))
        number, mutants = 0, []
        for component in self.components:
            by_kind: dict[str, list[Site]] = collections.defaultdict(list)
            for file in component.files(ROOT):
                for site in self._sites(finder, component, file):
                    by_kind[site.kind].append(site)
            total = sum(map(len, by_kind.values()))
            kinds = ", ".join(f"{len(some)} {kind}" for kind, some in sorted(by_kind.items()))
            print(f"{component.name}: {total} places ({kinds})", flush=True)
            draw = random.Random(f"{self.options.seed} {component.name}")
            chosen: list[Site] = []
            while by_kind and len(chosen) < each * (_SPARE if not component.is_python else 1):
                kind = draw.choice(sorted(by_kind))
                chosen.append(by_kind[kind].pop(draw.randrange(len(by_kind[kind]))))
                if not by_kind[kind]:
                    del by_kind[kind]
            nested = {site for file in {site.file for site in chosen} for site in
                      innermost([site for site in chosen if site.file == file])}
            for site in filter(nested.__contains__, chosen):
                number += 1
                mutants.append(Mutant(component.name, number, site))
        return mutants

    def _sites(self, finder: cxx_sites.Finder, component: Component, file: str) -> list[Site]:
        source = (ROOT / file).read_bytes()
        if component.is_python:
            return python_sites.find(file, source)
        cache = OUT / "sites" / f"{digest(file, source, (HERE / 'cxx_sites.py').read_bytes())}.json"
        if cache.exists():
            return [Site(**each) for each in json.loads(cache.read_text())]
        found = finder.find(file)
        cache.parent.mkdir(parents=True, exist_ok=True)
        cache.write_text(json.dumps([dataclasses.asdict(each) for each in found]))
        return found

    def _overlay(self, workspace: Workspace, mutants: list[Mutant]) -> None:
        by_file: dict[str, list[Mutant]] = collections.defaultdict(list)
        for mutant in mutants:
            by_file[mutant.site.file].append(mutant)
        workspace.text = {schemata.HEADER: schemata.HEADER_TEXT}
        stub = (ROOT / schemata.STUB).read_text()  # shared libraries contain the runtime
        workspace.text[schemata.STUB] = stub + "".join(f"FUNCTION({name})\n" for name in schemata.SYMBOLS
                                                      if f"FUNCTION({name})" not in stub)
        for file, some in by_file.items():
            render = python_sites.recording if some[0].is_python else schemata.render
            workspace.text[file] = render((ROOT / file).read_bytes(), [(m.number, m.site) for m in some])
        workspace.sync()

    def _compile(self, workspace: Workspace, mutants: list[Mutant]) -> list[Mutant]:
        """Leaves out mutants until all files compile."""
        while True:
            self._overlay(workspace, mutants)
            try:
                workspace.build(keep_going=True)
                return mutants
            except BuildError as error:
                lines = workspace.errors(str(error))
                bad = {number for file, at in lines.items() if file in workspace.text
                       for number in schemata.culprits(workspace.text[file], at)}
                if not bad:
                    (OUT / "build.log").write_text(str(error))
                    raise
                print(f"{len(bad)} mutants are left out that may not compile", flush=True)
                mutants = [mutant for mutant in mutants if mutant.number not in bad]

    def _trim(self, mutants: list[Mutant]) -> list[Mutant]:
        each = -(-self.options.count // len(self.components))
        taken: collections.Counter[str] = collections.Counter()
        kept = []
        for mutant in mutants:
            taken[mutant.component] += 1
            if taken[mutant.component] <= each:
                kept.append(mutant)
        return kept

    def _read_plan(self, key: str) -> list[Mutant] | None:
        path = OUT / "plan.json"
        saved = json.loads(path.read_text()) if path.exists() else {}
        if saved.get("key") != key:
            return None
        return [Mutant(each["component"], each["number"], Site(**each["site"])) for each in saved["mutants"]]

    def _write_plan(self, key: str, mutants: list[Mutant]) -> None:
        (OUT / "plan.json").write_text(json.dumps({"key": key, "mutants": [dataclasses.asdict(m) for m in mutants]}))


def read_equivalent() -> set[tuple[str, str]]:
    """The mutants of equivalent.txt: file and changed line."""
    found = set()
    for line in (HERE / "equivalent.txt").read_text().splitlines():
        if line.strip() and not line.startswith(("#", " ")):
            file, _, changed = line.partition(": ")
            found.add((file, " ".join(changed.split())))
    return found


def report(results: Results, selected: list[Component]) -> str:
    """The results as a table."""
    lines = ["| component | written killed | mechanical killed | not reached | equivalent |", "|---|---|---|---|---|"]
    sums: collections.Counter[str] = collections.Counter()
    survivors = []
    for component in selected:
        counts: collections.Counter[str] = collections.Counter()
        for key, each in results.known.items():
            if each["component"] == component.name and each["file"] == current_digest(key):
                kind = "mechanical" if ":" in key else "written"
                counts[f"{kind} {each['outcome']}"] += 1
                if each["outcome"] == "survived":
                    survivors.append(f"- {key if kind == 'written' else component.name}: {each['what']}")
        sums += counts
        lines.append(_row(component.name, counts))
    lines.append(_row("all", sums))
    return "\n".join([*lines, "", "Survivors:", "", *(survivors or ["none"])])


def _row(name: str, counts: collections.Counter[str]) -> str:
    def rate(kind: str) -> str:
        killed, survived = counts[f"{kind} killed"], counts[f"{kind} survived"] + counts[f"{kind} not reached"]
        return f"{killed} of {killed + survived}" if killed + survived else "–"

    return (f"| {name} | {rate('written')} | {rate('mechanical')} | {counts['mechanical not reached']} | "
            f"{counts['mechanical equivalent']} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                                     prog="./dev mutants")
    parser.add_argument("components", nargs="*", help="default: all; see test/Mutants/components.py")
    parser.add_argument("--written", action="store_true", help="only the mutants written by hand")
    parser.add_argument("--mechanical", action="store_true", help="only the mechanical mutants")
    parser.add_argument("--count", type=int, default=300, help="mechanical mutants, shared by the components (300)")
    parser.add_argument("--seed", type=int, default=1, help="of their choice (1)")
    parser.add_argument("--limit", type=float, default=900, help="seconds of tests for a mutant (900)")
    parser.add_argument("--patience", type=float, default=1, help="factor of the time after which a test counts as endless, "
                        "for a machine with other work (1)")
    parser.add_argument("--tests", default="", metavar="REGEX",
                        help="only tests whose names match, for a quick lower bound: 'Unit/|Import/'")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilations and tests at a time")
    parser.add_argument("--fresh", action="store_true", help="forget the results of earlier runs")
    parser.add_argument("--report", action="store_true", help="print the results so far")
    options = parser.parse_args()
    try:
        selected = components(options.components)
    except ValueError as error:
        parser.error(str(error))
    if options.count < 1:
        parser.error("--count must be at least 1")
    tool = Tool(options, selected)
    if not options.report:
        print(f"seed {options.seed}, {options.count} mechanical mutants, tree {tool.tree}", flush=True)
        if not options.mechanical:
            tool.run_written()
        if not options.written:
            tool.counts.clear()
            tool.run_mechanical()
    text = report(tool.results, selected)
    if not options.report:
        (OUT / "report.md").write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
