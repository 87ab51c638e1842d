"""Project rules that no compiler checks: dependencies, names, sizes, symbols, stub, coverage, text, words.

    project_rules.py CHECK --root SOURCE [--build BUILD]   prints every violation; exit code 1 where there is one
    project_rules.py CHECK --self-test                     plants one violation of each kind and expects it to be found

A check takes a Tree and returns its violations; PLANTED lists what the self-test plants.
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

# The order of the stages. A stage may use earlier stages only.
STAGES = ["Dialect", "Derivatives", "Import", "Transforms", "Schedule", "Tiling", "Bufferize", "Codegen", "Script", "Target", "Pipeline", "JIT",
          "CAPI"]
LOWERING = {"Derivatives", "Import", "Transforms", "Schedule", "Tiling", "Bufferize", "Codegen", "Script", "Target", "Pipeline", "JIT",
            "CAPI"}
# What the mains may use: drivers, the reference, the dialect itself, and a component's Passes.h to register it.
ALLOWED_IN_TOOLS = {"Pipeline", "JIT", "Reference", "PtxSim", "Support", "Target", "Runtime", "Dialect"}


class Tree:
    """The files of a source tree that git tracks, or all of them where there is no repository."""

    def __init__(self, root, build=None):
        self.root, self.build = pathlib.Path(root).resolve(), build
        if (self.root / ".git").exists():
            listed = subprocess.run(["git", "-C", str(self.root), "ls-files"], capture_output=True, text=True, check=True)
            names = listed.stdout.splitlines()
        else:
            names = [str(path.relative_to(self.root)) for path in self.root.rglob("*")]
        self.files = sorted(name for name in names if (self.root / name).is_file())

    def text(self, name):
        return (self.root / name).read_text(errors="replace")

    def matching(self, pattern):
        return [name for name in self.files if re.search(pattern, name)]


def component_of(path):
    """The component of a source file, header or include path, e.g. "Codegen"; None if it belongs to none."""
    path = re.sub(r"^(lib|include/saccade|saccade)/", "", path)
    if part := re.match("Dialect/Attn/(Derivatives|Transforms)/", path):
        return part[1]
    return path.split("/")[0] if "/" in path else None


def forbidden(source, target):
    """Why the component `source` must not depend on the component `target`, or None."""
    if source == target or target is None:
        return None
    if source == "Runtime":
        return "the runtime stands alone"
    if source == "Reference" and target in LOWERING:
        return "the reference must not share code with a lowering"
    if source == "PtxSim":
        return "the simulator does not depend on the compiler"
    if target == "PtxSim" and source in STAGES + ["Runtime", "Reference"]:
        return "the simulator checks what the compiler makes, and makes nothing"
    if source == "Codegen" and target in ("Import", "Transforms"):
        return "code generators see tiles only"
    if source == "Support" and target != "Runtime":
        return "Support is below every component"
    if source in STAGES and target in STAGES and STAGES.index(target) > STAGES.index(source):
        return f"layering: {target} comes after {source}"
    return None


def without_comments(text):
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)


def dependencies(tree):
    for name in tree.matching(r"^(lib|include/saccade|tools)/.*\.(cpp|h|td|c)$"):
        text, component = tree.text(name), "tools" if name.startswith("tools/") else component_of(name)
        for include in re.findall(r'^\s*#?\s*include\s*[<"]([^>"]+)[>"]', text, re.M):
            if component == "Runtime" and re.match(r"(mlir|llvm|lld|clang)(-c)?/", include):
                yield f"{name}: includes {include}: the runtime is plain standard C++"
            if not include.startswith("saccade/"):
                continue
            target = component_of(include)
            if component == "tools":
                if target not in ALLOWED_IN_TOOLS and not include.endswith("Passes.h"):
                    yield f"{name}: includes {include}: a main uses no pass internals"
            elif why := forbidden(component, target):
                yield f"{name}: includes {include}: {why}"
        if component == "Codegen" and re.search(r"\bAttentionOp\b", without_comments(text)):
            yield f"{name}: names AttentionOp: code generators see tiles only"
        if component != "tools" and re.search(r"\bgetenv\b|\bcl::opt<", without_comments(text)):
            yield f"{name}: reads the environment or has a global option: options come in CompileOptions"
    yield from link_dependencies(tree)


def link_dependencies(tree):
    """The same rules for CMake, along all the libraries that a library brings in."""
    components, links = {"SaccadeRuntime": "Runtime"}, {}
    for name in tree.matching(r"^lib/.*CMakeLists\.txt$"):
        text = re.sub(r"#[^\n]*", "", tree.text(name))
        for library, body in re.findall(r"saccade_library\(\s*(\w+)([^)]*)\)", text):
            components["Saccade" + library] = component_of(name)
            links.setdefault("Saccade" + library, set()).update(re.findall(r"\bSaccade\w+", body))
            if component_of(name) == "Runtime":
                yield f"{name}: saccade_library links LLVM: the runtime is plain standard C++"
        for library, body in re.findall(r"target_link_libraries\(\s*(\w+)([^)]*)\)", text):
            links.setdefault(library, set()).update(re.findall(r"\bSaccade\w+", body))
            if component_of(name) == "Runtime" and re.search(r"\b(MLIR|LLVM)", body):
                yield f"{name}: {library} links LLVM: the runtime is plain standard C++"
    for library in links:
        reached, todo = set(), [library]
        while todo:
            for target in links.get(todo.pop(), ()):
                if target not in reached:
                    reached.add(target)
                    todo.append(target)
        for target in sorted(reached):
            if why := forbidden(components.get(library), components.get(target)):
                yield f"{library} links {target}: {why}"


def kebab(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", name).lower()


def names(tree):
    """One pass, four names: definition FooBar, file FooBar.cpp, flag attn-foo-bar, test foo-bar.mlir."""
    defined = {}
    for name in tree.matching(r"Passes\.td$"):
        for definition, flag in re.findall(r'def\s+(\w+)\s*:\s*(?:Interface)?Pass<\s*"([^"]+)"', tree.text(name)):
            stem = definition.removesuffix("Pass")
            defined[definition.upper()] = stem
            if flag != "attn-" + kebab(stem):
                yield f"{name}: pass {definition} has the flag {flag}, expected attn-{kebab(stem)}"
            if not tree.matching(rf"^lib/.*/{stem}\.cpp$"):
                yield f"{name}: pass {definition} has no file {stem}.cpp in lib"
            if not tree.matching(rf"^test/.*/{kebab(stem)}\.mlir$"):
                yield f"{name}: pass {definition} has no test {kebab(stem)}.mlir"
    for name in tree.matching(r"^lib/.*\.cpp$"):
        for definition in re.findall(r"#define GEN_PASS_DEF_(\w+)", tree.text(name)):
            if defined.get(definition) != pathlib.Path(name).stem:
                yield f"{name}: implements the pass {definition}, which has another name or none in a Passes.td"
    for name in tree.matching(r"^test/.*\.mlir$"):
        for function in re.findall(r"func\.func (?:private )?@((?:test|foo|bar|baz|f|func)\d*)\(", tree.text(name)):
            yield f"{name}: @{function} does not say what it shows"


def sizes(tree):
    code = tree.matching(r"\.(cpp|h|td|py|c|cc|cu|sh)$")
    lines = {name: tree.text(name).count("\n") for name in code}
    yield from (f"{name}: {count} lines, 700 at most" for name, count in lines.items() if count > 700)
    if "dev" in tree.files and (count := tree.text("dev").count("\n")) > 300:
        yield f"dev: {count} lines, 300 at most"
    if lines and (median := statistics.median(lines.values())) > 180:
        yield f"the median file has {median} lines, 180 at most"
    long = [name for name, count in lines.items() if count > 400]
    if len(long) > max(1, len(lines) // 20):
        yield f"{len(long)} of {len(lines)} files have over 400 lines, one in twenty at most: {', '.join(long)}"


def symbols(tree):
    archive = pathlib.Path(tree.build) / "lib" / "libSaccadeRuntime.a"
    if not archive.exists():
        yield f"{archive} does not exist"
        return
    undefined, defined = set(), set()
    for line in nm("--demangle", str(archive)):
        if re.search(r"\b(llvm|mlir)::|\b(LLVM|mlir)[A-Z]", line):
            yield f"the runtime uses a symbol of LLVM: {line.strip()}"
        if found := re.fullmatch(r"[0-9a-f]* *([A-Za-z]) (.*)", line):
            (undefined if found[1] == "U" else defined).add(found[2])
    # The thread pointer's function belongs to the dynamic linker, which libc brings along.
    allowed = defined | libc() | {"__tls_get_addr", "_GLOBAL_OFFSET_TABLE_"}
    for name in sorted(undefined - allowed):
        if not re.match(r"__(asan|tsan|ubsan|sanitizer)_", name):
            yield f"the runtime needs more than libc to be linked: {name}"


def stub(tree):
    """The stub of libc that artifacts are linked against offers what their runtime needs, and nothing else."""
    library = pathlib.Path(tree.build) / "lib"
    lines = nm(str(library / "libSaccadeRuntimeEmbedded.a"))
    symbols = [found.groups() for line in lines if (found := re.fullmatch(r"[0-9a-f]* *([A-Za-z]) (.*)", line))]
    defined = {name for kind, name in symbols if kind != "U"}
    needed = {name for kind, name in symbols if kind == "U"} - defined - {"_GLOBAL_OFFSET_TABLE_"}
    offered = {line.split()[-1] for line in nm("--dynamic", "--defined-only", str(library / "libSaccadeLibcStub.so"))}
    for name in sorted(needed - offered):
        yield f"the runtime needs what the stub of libc lacks: {name}"
    # Compilers call these of their own accord.
    for name in sorted(offered - needed - {"memcpy", "memmove", "memset", "memcmp", "bcmp", "fputs", "fwrite"}):
        yield f"the stub of libc offers what the runtime does not use: {name}"


def nm(*arguments):
    return subprocess.run(["llvm-nm", *arguments], capture_output=True, text=True, check=True).stdout.splitlines()


def libc():
    """What the C library of this very process exports."""
    maps = pathlib.Path("/proc/self/maps").read_text()
    library = re.search(r"(/\S*/libc[.-]\S*so\S*)$", maps, re.M)[1]
    return {line.split()[-1].split("@")[0] for line in nm("--dynamic", "--defined-only", library)}


def coverage(tree):
    """Every row of docs/coverage.md names a test that exists and runs, or one of our commands."""
    page, seen = "docs/coverage.md", set()
    if page not in tree.files:
        yield f"{page} does not exist"
        return
    for line in tree.text(page).splitlines():
        if not (row := re.match(r"\| ([ABC]\d+) \|", line)):
            continue
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if row[1] in seen:
            yield f"{page}: two lines for {row[1]}"
        seen.add(row[1])
        shown = re.findall(r"`([^`]+)`", cells[2]) if len(cells) > 2 else []
        if not shown:
            yield f"{page}: {row[1]} names no test"
        for item in shown:
            if re.match(r"(\./dev|saccade-\w+)( |$)", item):
                continue
            if item not in tree.files:
                yield f"{page}: {row[1]} names {item}, which does not exist"
            elif item.startswith("test/") and not re.search(r"RUN:|\bTEST(_[FP])?\(|^ *def test_", tree.text(item), re.M):
                yield f"{page}: {row[1]} names {item}, which runs nothing"
    if not seen:
        yield f"{page} has no row"


def text(tree):
    """No paths of one machine, no names of hosts, nothing left to do."""
    rules = {
        r"(?<![\w.%}])/(home|root|work|mnt|opt|tmp|Users)/": "a path of one machine",
        r"https?://|\b[a-z0-9-]+\.(debian|pypi|pythonhosted|huggingface|github)\.(org|com|co)\b": "the name of a host",
        r"\b(TO[D]O|FIX[M]E|XX[X])\b": "work left undone",
    }
    for name in tree.files:
        if name == "LICENSE" or name.endswith((".npy", ".png")):
            continue
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            line = line.replace('xmlns="http:' + '//www.w3.org/2000/svg"', "")  # the name of a format
            for pattern, what in rules.items():
                if re.search(pattern, line):
                    yield f"{name}:{number}: {what}: {line.strip()[:80]}"


RETIRED = pathlib.Path(__file__).with_name("retired_words.txt")


def words(tree):
    """No word of retired_words.txt in code, tests or docs: the field's terms replace them."""
    lines = [line for line in RETIRED.read_text().splitlines() if line and not line.startswith("#")]
    retired = [(re.compile(pattern, re.I), instead) for pattern, instead in (line.split("\t") for line in lines)]
    anything = re.compile("|".join(f"(?:{pattern.pattern})" for pattern, _ in retired), re.I)
    # Measured data, recorded results and the history of renames keep their words.
    exempt = re.compile(r"^(benchmarks/(data|results)/|examples/minilm/data/|CHANGELOG\.md|LICENSE|test/Architecture/)")
    for name in tree.files:
        if exempt.search(name) or name.endswith((".npy", ".png", ".svg")):
            continue
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            if anything.search(line):
                pattern, instead = next(row for row in retired if row[0].search(line))
                yield f"{name}:{number}: '{pattern.search(line)[0]}' is retired, write: {instead}"


# --- self-test: (files of a small tree, a part of the message that must come; None: nothing may come) ---------------

PASSES = 'def FooBar : Pass<"attn-foo-bar"> {}\n'
PLANTED = {
    "dependencies": [
        ({"lib/Codegen/A.cpp": '#include "saccade/Schedule/Schedule.h"\n// not AttentionOp\n'}, None),
        ({"tools/t/t.cpp": '#include "saccade/Pipeline/Pipeline.h"\n#include "saccade/Tiling/Passes.h"\n'}, None),
        ({"lib/Runtime/A.cpp": '#include "llvm/ADT/APInt.h"\n'}, "plain standard C++"),
        ({"lib/Runtime/CMakeLists.txt": "target_link_libraries(SaccadeRuntime PUBLIC LLVM)\n"}, "links LLVM"),
        ({"lib/Codegen/A.cpp": "void f(attn::AttentionOp);\n"}, "names AttentionOp"),
        ({"lib/Codegen/A.cpp": '#include "saccade/Dialect/Attn/Transforms/A.h"\n'}, "tiles only"),
        ({"include/saccade/Codegen/A.h": '#include "saccade/Import/A.h"\n'}, "tiles only"),
        ({"lib/Dialect/Attn/IR/A.cpp": '#include "saccade/Schedule/A.h"\n'}, "comes after"),
        ({"lib/Dialect/Attn/Analysis/A.cpp": '#include "saccade/Dialect/Attn/Derivatives/A.h"\n'}, "comes after"),
        ({"lib/Tiling/A.cpp": '#include "saccade/Codegen/CPU/A.h"\n'}, "comes after"),
        ({"tools/t/t.cpp": '#include "saccade/Tiling/KeyLoop.h"\n'}, "no pass internals"),
        ({"lib/Reference/A.cpp": '#include "saccade/Tiling/A.h"\n'}, "must not share"),
        (
            {
                "lib/Reference/CMakeLists.txt": "saccade_library(Reference SOURCES A.cpp LINK SaccadeSupport)\n",
                "lib/Support/CMakeLists.txt": "saccade_library(Support SOURCES B.cpp LINK SaccadeTiling)\n",
                "lib/Tiling/CMakeLists.txt": "saccade_library(Tiling SOURCES C.cpp)\n",
            },
            "SaccadeReference links SaccadeTiling",
        ),
        ({"lib/PtxSim/A.cpp": '#include "saccade/PtxSim/PtxSim.h"\n#include "llvm/ADT/StringRef.h"\n'}, None),
        ({"lib/PtxSim/A.cpp": '#include "saccade/Codegen/A.h"\n'}, "does not depend on the compiler"),
        ({"lib/Codegen/A.cpp": '#include "saccade/PtxSim/PtxSim.h"\n'}, "makes nothing"),
        ({"lib/Tiling/A.cpp": 'auto x = getenv("X");\n'}, "CompileOptions"),
    ],
    "names": [
        (
            {
                "include/Passes.td": PASSES,
                "lib/A/FooBar.cpp": "#define GEN_PASS_DEF_FOOBAR\n",
                "test/A/foo-bar.mlir": "func.func @shows_it()\n",
            },
            None,
        ),
        ({"include/Passes.td": PASSES, "lib/A/FooBar.cpp": ""}, "no test foo-bar.mlir"),
        ({"include/Passes.td": PASSES, "test/A/foo-bar.mlir": ""}, "no file FooBar.cpp"),
        ({"include/Passes.td": 'def FooBar : Pass<"attn-foobar"> {}\n'}, "expected attn-foo-bar"),
        ({"include/Passes.td": PASSES, "lib/A/Other.cpp": "#define GEN_PASS_DEF_FOOBAR\n"}, "another name"),
        ({"test/A/a.mlir": "func.func @test1() {\n"}, "does not say"),
    ],
    "sizes": [
        ({"lib/a.cpp": "\n" * 170}, None),
        ({"lib/a.cpp": "\n" * 701, "lib/b.h": "", "lib/c.h": ""}, "700 at most"),
        ({"lib/a.cpp": "\n" * 181}, "median"),
        ({"lib/a.cpp": "\n" * 401, "lib/b.cpp": "\n" * 401, "a.h": "", "b.h": "", "c.h": ""}, "one in twenty"),
        ({"dev": "\n" * 301}, "300 at most"),
    ],
    "coverage": [
        ({"docs/coverage.md": "| A1 | it | `test/a.mlir`, `./dev demo` |\n", "test/a.mlir": "// RUN: true\n"}, None),
        ({"docs/coverage.md": "| A1 | it | `test/a.mlir` |\n"}, "does not exist"),
        ({"docs/coverage.md": "| A1 | it | yes |\n"}, "names no test"),
        ({"docs/coverage.md": "| A1 | it | `test/a.mlir` |\n", "test/a.mlir": "\n"}, "runs nothing"),
        ({"docs/coverage.md": "| A1 | it | `./dev test` |\n" * 2}, "two lines"),
        ({"docs/coverage.md": "nothing\n"}, "no row"),
    ],
    "text": [
        ({"a.md": "the file /usr/lib/x, build/tmp/x and %t/home/x\n"}, None),
        ({"a.md": "see /" + "home/someone/x\n"}, "a path"),
        ({"a.md": "see http" + "s://example.org\n"}, "a host"),
        ({"a.md": "from deb.debian" + ".org\n"}, "a host"),
        ({"a.cpp": "// TO" + "DO: more\n"}, "undone"),
    ],
    "words": [
        ({"lib/a.cpp": "// Few rows use split-KV; the frontend reads ragged sequences.\n"}, None),
        ({"lib/a.cpp": "// the form for few queries\n"}, "write: split-KV"),
        ({"docs/a.md": "Packed sequences are supported.\n"}, "write: ragged"),
        ({"python/a.py": "isPacked = True\n"}, "write: isRagged"),
        ({"benchmarks/results/a.md": "few queries\n"}, None),
    ],
}


def self_test(check, planted):
    wrong = []
    for files, expected in planted:
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            found = list(check(Tree(folder)))
        if (found != []) if expected is None else not any(expected in line for line in found):
            wrong.append(f"{check.__name__}: {files} gave {found}, expected {expected}")
    return wrong


def run(description, planted):
    """The main of a script. `planted`: its checks, with what their self-test plants."""
    checks = {check.__name__: check for check in planted}
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("check", choices=checks)
    parser.add_argument("--root")
    parser.add_argument("--build")
    parser.add_argument("--self-test", action="store_true")
    options = parser.parse_args()
    check = checks[options.check]
    violations = self_test(check, planted[check]) if options.self_test else list(check(Tree(options.root, options.build)))
    print(*violations, sep="\n")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    checks = (dependencies, names, sizes, symbols, stub, coverage, text, words)
    run(__doc__, {check: PLANTED.get(check.__name__, []) for check in checks})
