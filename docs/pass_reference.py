"""The reference of the passes: checks that every pass has its parts, and writes the page.

    pass_reference.py --build BUILD --write FILE   writes the Markdown of the reference
    pass_reference.py --build BUILD --check        prints what a pass lacks; exit code 1 if anything
    pass_reference.py --build BUILD --self-test    removes each part of a pass in turn and expects that it is reported

A pass has a summary and a description in its Passes.td, and a test of its name with an example: a part of the test from
the line `// EXAMPLE` to an empty line between top-level ops or to `// -----`, with the aliases and declarations that it
uses. The result of the example is what `saccade-opt` prints with the options of the first RUN line that names the pass;
`// EXAMPLE: OPTIONS` gives others, in which files are relative to the source tree. Stages and orders are those of the
pipelines that `saccade-opt` prints, interfaces those that its file names. The tools of LLVM are on the PATH.
"""

import argparse
import concurrent.futures
import dataclasses
import functools
import json
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
# With all passes: those for warpgroups, and those that prepack constants.
TARGETS = {"CPU": "target=v3 prepack", "GPU": "target=sm_90a"}
STAGES = ("import", "transforms", "schedule", "tiling", "bufferize", "codegen", "target")
SHOWN_LINES = 48  # of the result of an example
INTERFACE = re.compile(r"\b(?:[A-Z]\w+Interface|LinalgOp)\b")
FLAG = re.compile(r"\battn-[a-z0-9-]+\b")


@dataclasses.dataclass(frozen=True)
class Pass:
    name: str  # of the definition
    flag: str
    anchor: str  # the op that it runs on
    summary: str
    description: str
    options: tuple[tuple[str, str, str], ...]  # name, default, meaning
    source: str | None  # the file that implements it
    test: str | None
    interfaces: tuple[str, ...]
    example: str  # empty without one
    command: tuple[str, ...] = ()  # options of saccade-opt
    result: str = ""  # of the example
    changes: bool = True  # whether the result differs from that of the other options alone


def run(*command: Any, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(part) for part in command], input=text, capture_output=True, text=True, cwd=ROOT)


# --- what a pass has ------------------------------------------------------------------------------------------------


def records(definitions: pathlib.Path) -> dict[str, Any]:
    """The records of a TableGen file. LLVM's tools are next to the headers of MLIR."""
    tool = pathlib.Path(shutil.which("llvm-tblgen") or sys.exit("llvm-tblgen is not on the PATH")).resolve()
    folders = ["-I", ROOT / "include", "-I", tool.parents[1] / "include"]
    done = run(tool, "--dump-json", *folders, definitions)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout)


def kebab(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def dedent(text: str) -> str:
    lines = text.strip("\n").rstrip().splitlines()
    margin = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    return "\n".join(line[margin:] for line in lines)


def find(pattern: str) -> str | None:
    found = next(iter(sorted(ROOT.glob(pattern))), None)
    return str(found.relative_to(ROOT)) if found else None


def test_of(name: str) -> str | None:
    """The test of a pass; of the tests of a pass and of its errors, the one with the example."""
    tests = [test for pattern in (f"test/**/{name}.mlir", f"test/**/{name}-errors.mlir") if (test := find(pattern))]
    return next((test for test in tests if "// EXAMPLE" in (ROOT / test).read_text()), next(iter(tests), None))


def example_of(test: str, flag: str) -> tuple[str, tuple[str, ...]]:
    """The program of the example of a test file and the options of saccade-opt."""
    marked = re.search(r"^// EXAMPLE(?:: ([^\n]*))?\n(.*?)(?=\n\n\S|\n// -----|\Z)", test, re.M | re.S)
    if not marked:
        return "", ()
    program = "\n".join(line for line in marked[2].splitlines() if not re.match(r"\s*//", line))
    for line in reversed(re.findall(r"^#\w+ = .*|^func\.func private @\w+\([^{]*$", test, re.M)):
        name = re.search(r"[#@]\w+", line)[0]  # type: ignore[index]
        if line not in program and re.search(rf"{name}\b", program):
            program = f"{line}\n{program}"
    lines = re.findall(r"RUN: (.*)", re.sub(r"\\\n// *RUN:", "", test))
    first = next((line for line in lines if flag in line), "")
    words = shlex.split(marked[1] or first.split("|")[0].split("2>")[0])
    dropped = {"saccade-opt", "%s", "-", "not", "--"}
    checks = ("verify-diagnostics", "split-input-file")
    words = [word for word in words if word not in dropped and not word.lstrip("-").startswith(checks)]
    if "-o" in words:
        del words[words.index("-o") : words.index("-o") + 2]
    return program, tuple(words)


def read_passes() -> Iterator[Pass]:
    for definitions in sorted((ROOT / "include" / "saccade").rglob("Passes.td")):
        values = records(definitions)
        for name in [*values["!instanceof"].get("Pass", ()), *values["!instanceof"].get("InterfacePass", ())]:
            value, stem = values[name], name.removesuffix("Pass")
            source, test = find(f"lib/**/{stem}.cpp"), test_of(kebab(stem))
            code = re.sub(r"//[^\n]*|#include[^\n]*", "", (ROOT / source).read_text()) if source else ""
            example, command = example_of((ROOT / test).read_text(), value["argument"]) if test else ("", ())
            options = [values[option["def"]] for option in value["options"]]
            yield Pass(name, value["argument"], anchor_of(value), value["summary"], dedent(value["description"]),
                       tuple((each["argument"], each["defaultValue"], each["description"]) for each in options),
                       source, test, tuple(sorted(set(INTERFACE.findall(code)))), example, command)  # fmt: skip


def anchor_of(value: dict[str, Any]) -> str:
    """`::mlir::func::FuncOp` of a definition as `func.func`; a pass without an op runs on any."""
    base = re.search(r"OperationPass<::mlir::(\w+)(?:::(\w+))?>", value["baseClass"])
    if not base:
        return "any"
    if not base[2]:
        return "builtin.module"
    return {"FuncOp": "func.func", "GPUModuleOp": "gpu.module"}[base[2]]


def printed_by(opt: pathlib.Path, options: Iterable[str], program: str) -> str:
    """What saccade-opt says and prints, without the module around it; empty if it fails without a message."""
    done = run(opt, "-", *options, text=program)
    messages = re.findall(r"^<stdin>:\S+ ((?:error|warning|remark): .*)", done.stderr, re.M)
    lines = done.stdout.splitlines()
    if "module {" in lines:
        start = lines.index("module {")
        lines = lines[:start] + [line.removeprefix("  ") for line in lines[start + 1 :] if line != "}"]
    return "\n".join([*messages, *lines]).strip("\n")


def with_result(item: Pass, opt: pathlib.Path) -> Pass:
    """Runs the example with and without the pass."""
    if not item.example:
        return item
    others = [word for word in item.command if item.flag not in word]
    result, before = (printed_by(opt, options, item.example) for options in (item.command, others))
    return dataclasses.replace(item, result=result, changes=result != before)


# --- where a pass is ------------------------------------------------------------------------------------------------


@functools.cache
def pipeline(opt: pathlib.Path, stage: str, target: str) -> tuple[str, ...]:
    """The flags of the passes of a stage, in order."""
    text = run(opt, "--dump-pass-pipeline", f"--saccade-{stage}={target}", text="module {}").stderr
    # Names, without the options in braces, which may be nested.
    while "{" in text:
        text, before = re.sub(r"\{[^{}]*\}", "", text), text
        assert text != before, text
    names = re.findall(r"[\w-]+(?=\s*(?:,|\)|$))", text.split("builtin.module(", 1)[1], re.M)
    return tuple(name for name in names if name not in ("attn-enter-stage", "attn-mark-stage"))


def places(opt: pathlib.Path, flag: str) -> dict[str, list[str]]:
    """The stages of a pass, with its numbers in the stage's pipeline for each kind of target."""
    found: dict[str, list[str]] = {}
    for stage in STAGES:
        for kind, target in TARGETS.items():
            passes = pipeline(opt, stage, target)
            if numbers := [str(i + 1) for i, each in enumerate(passes) if each == flag]:
                found.setdefault(stage, []).append(f"{kind} {', '.join(numbers)} of {len(passes)}")
    return found


# --- the check ------------------------------------------------------------------------------------------------------


def violations(passes: list[Pass], registered: set[str]) -> Iterator[str]:
    for flag in sorted(registered - {each.flag for each in passes}):
        yield f"{flag} is registered, but no Passes.td defines it"
    for item in passes:
        if item.flag not in registered:
            yield f"{item.flag} is not registered"
        if not item.summary:
            yield f"{item.flag} has no summary"
        if not item.description:
            yield f"{item.flag} has no description"
        for name, _, meaning in item.options:
            if not meaning:
                yield f"{item.flag}: the option {name} has no description"
        if not item.source:
            yield f"{item.flag} has no file {item.name}.cpp in lib"
        if not item.test:
            yield f"{item.flag} has no test {kebab(item.name)}.mlir"
        elif not item.example:
            yield f"{item.flag}: {item.test} has no part marked // EXAMPLE"
        elif item.flag not in " ".join(item.command):
            yield f"{item.flag}: the example of {item.test} does not run the pass"
        elif not item.result:
            yield f"{item.flag}: the example of {item.test} fails: saccade-opt {shlex.join(item.command)}"
        elif not item.changes:
            yield f"{item.flag}: the pass does not change the example of {item.test}"


def self_test(passes: list[Pass], registered: set[str]) -> Iterator[str]:
    """What the check does not notice, on the first pass without one of its parts."""
    def change(**values: Any) -> list[Pass]:
        return [dataclasses.replace(passes[0], **values), *passes[1:]]

    planted: list[tuple[list[Pass], set[str], str]] = [
        (passes[1:], registered, "is registered, but no"),
        (passes, registered - {passes[0].flag}, "is not registered"),
        (change(summary=""), registered, "no summary"),
        (change(description=""), registered, "no description"),
        (change(options=(("gpu", "false", ""),)), registered, "the option gpu"),
        (change(source=None), registered, "no file"),
        (change(test=None), registered, "no test"),
        (change(example=""), registered, "no part marked"),
        (change(command=("--cse",)), registered, "does not run the pass"),
        (change(result=""), registered, "fails"),
        (change(changes=False), registered, "does not change"),
    ]
    for changed, flags, expected in planted:
        if not any(expected in line for line in violations(changed, flags)):
            yield f"'{expected}' is not reported"


# --- the page -------------------------------------------------------------------------------------------------------


def block(text: str) -> str:
    lines = text.splitlines()
    if len(lines) > SHOWN_LINES:
        lines = [*lines[:SHOWN_LINES], f"// … {len(lines) - SHOWN_LINES} more lines"]
    return "```mlir\n" + "\n".join(lines) + "\n```\n"


def section(item: Pass, opt: pathlib.Path) -> str:
    where = "; ".join(f"{stage}: {', '.join(numbers)}" for stage, numbers in places(opt, item.flag).items())
    rows = [("runs on", f"`{item.anchor}`"), ("stage and order", where or "in no stage"),
            ("interfaces", ", ".join(f"`{name}`" for name in item.interfaces)),
            ("source", f"`{item.source}`"), ("test", f"`{item.test}`")]  # fmt: skip
    text = f"### {item.flag}\n\n{item.summary[0].upper()}{item.summary[1:]}.\n\n| | |\n|---|---|\n"
    text += "".join(f"| {name} | {value} |\n" for name, value in rows if value) + f"\n{item.description}\n\n"
    if item.options:
        text += "| option | default | meaning |\n|---|---|---|\n"
        text += "".join(f"| `{name}` | `{default}` | {meaning} |\n" for name, default, meaning in item.options) + "\n"
    text += f"Example, from its test:\n\n{block(item.example)}\n`saccade-opt {shlex.join(item.command)}` prints:\n\n"
    return text + block(item.result) + "\n"


def page(passes: list[Pass], opt: pathlib.Path) -> str:
    """One section for each stage with its passes in order, then the passes that are in no stage."""
    known, done, text = {each.flag: each for each in passes}, set(), ""
    for stage in STAGES:
        orders = [pipeline(opt, stage, target) for target in TARGETS.values()]
        text += f"## The stage {stage}\n\n"
        for kind, order in zip(TARGETS, orders):
            text += f"{kind}: {', '.join(f'`{name}`' for name in order)}.\n\n"
        for flag in dict.fromkeys([*orders[0], *orders[1]]):
            if flag in known and flag not in done:
                done.add(flag)
                text += section(known[flag], opt)
    rest = [each for each in passes if each.flag not in done]
    return text + "## In no stage\n\n" + "".join(section(each, opt) for each in rest)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True, type=pathlib.Path)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--write", type=pathlib.Path)
    what.add_argument("--check", action="store_true")
    what.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    opt = options.build.resolve() / "bin" / "saccade-opt"
    registered = set(re.findall(r"^  --(attn-[a-z0-9-]+)", run(opt, "--list-passes").stdout, re.M))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        passes = list(pool.map(lambda item: with_result(item, opt), read_passes()))
    if options.write:
        options.write.write_text(page(passes, opt))
        return
    found = list((self_test if options.self_test else violations)(passes, registered))
    print("\n".join(found), end="\n" * bool(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
