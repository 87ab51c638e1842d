"""Lists that repeat what is defined elsewhere: components, targets, scalars, guides, device.

    lists.py CHECK --root SOURCE    prints every difference; exit code 1 where there is one
    lists.py CHECK --self-test      plants one difference of each kind and expects it to be found
"""

import json
import re

import project_rules

# Parts of Dialect/Attn are components of their own.
NESTED = "Dialect/Attn/"


def components(tree):
    """docs/design.md describes the components of lib and include, in the order that project_rules checks."""
    code = set()
    for name in tree.matching(r"^(lib|include/saccade)/.+/"):
        path = re.sub(r"^(lib|include/saccade)/", "", name)
        if path.startswith(NESTED):
            path = path.removeprefix(NESTED)
            if "/" in path:
                code.add(NESTED + path.split("/")[0])
        elif "/" in path:
            code.add(path.split("/")[0])
    code.discard("Dialect")
    page = tree.text("docs/design.md").split("## Components", 1)[-1].split("\n## ", 1)[0]
    cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    named = {re.match(rf"{NESTED}\w+|\w+", name)[0] for cell in cells for name in re.findall(r"`([^`]+)`", cell)}
    for name in sorted(code - named):
        yield f"docs/design.md: the table of components lacks {name}"
    for name in sorted(named - code - {"python", "tools"}):
        yield f"docs/design.md: there is no component {name}"
    order = next((line.split(" → ") for line in page.splitlines() if line.count(" → ") > 5), [])
    # The two layers of the dialect that come first are one in project_rules.
    stages = [re.sub(rf"^{NESTED}(IR|Analysis)$", "Dialect", name).removeprefix(NESTED) for name in order]
    if (found := list(dict.fromkeys(stages))) != project_rules.STAGES:
        yield f"docs/design.md: the order of the components is {found}, project_rules.py has {project_rules.STAGES}"


# Which names each list has. A file with a line that names a whole group is such a list.
EXPANDED, X86, ARM, GPU = "expanded", "x86", "aarch64", "gpu"
LISTS = {
    "benchmarks/saccade_bench/targets.py": [X86],
    "docs/glossary.md": [X86, ARM, EXPANDED, GPU],
    "docs/guides/calling.md": [X86],
    "docs/guides/compile.md": [X86, ARM, EXPANDED, GPU],
    "docs/guides/gpu.md": [GPU],
    "docs/internals/cpu-kernels.md": [EXPANDED],
    "docs/internals/testing.md": [EXPANDED],
    "docs/reference/c-api.md": [GPU],
    "docs/reference/command-line.md": [X86, ARM, EXPANDED, GPU],
    "docs/reference/python-api.md": [X86, GPU],
    "python/saccade/attention.py": [GPU],
    "python/saccade/module.py": [GPU],
    "test/CAPI/options.c": [X86, ARM, EXPANDED, GPU],
    "test/Codegen/CPU/arm_cycles.py": [ARM],
    "test/Execution/GPU/paged.py": [GPU],
    "test/Execution/GPU/ragged.py": [GPU],
    "test/Execution/on_aarch64.py": [ARM],
    "test/Python/Programs/test_artifact.py": [X86],
    "test/Python/Caches/test_f8.py": [EXPANDED],
    "test/Python/GPU/test_gpu.py": [GPU],
    "test/Python/Caches/test_packed.py": [EXPANDED],
    "test/Python/Caches/test_quantized.py": [EXPANDED],
    "test/Python/Caches/test_key_streams.py": [EXPANDED],
    "test/Tools/aarch64.test": [ARM],
    "test/Tools/joined_targets.py": [X86],
    "test/Tools/saccade-compile-gpu.test": [X86, ARM, EXPANDED, GPU],
    "test/Unit/Runtime/EntryTargetsTest.cpp": [X86],
    "test/Unit/Schedule/ScheduleTest.cpp": [X86, ARM, GPU],
    "test/Unit/Target/JoinTargetsTest.cpp": [GPU],
}
# The tables, and files that record what was measured.
TABLES = re.compile(r"include/saccade/Runtime/CPUTargets\.def|lib/Support/[CG]PUTarget\.cpp|CHANGELOG\.md|"
                    r"benchmarks/(data|results)/|test/Architecture/")  # fmt: skip


def registered(tree):
    """The names of targets by group, from the tables of the compiler."""
    table = tree.text("include/saccade/Runtime/CPUTargets.def")
    rows = re.findall(r'^SACCADE_CPU_TARGET\(\w+, "([^"]+)", (\w+)', table, re.M)
    return {
        X86: [name for name, architecture in rows if architecture == "X86"],
        ARM: [name for name, architecture in rows if architecture == "AArch64"],
        EXPANDED: re.findall(r'expanded\(\w+, "([^"]+)"\)', tree.text("lib/Support/CPUTarget.cpp")),
        GPU: re.findall(r'\.name = "([^"]+)"', tree.text("lib/Support/GPUTarget.cpp")),
    }


def targets(tree):
    """Every list of targets has all names of its groups."""
    groups = registered(tree)
    yield from (f"there is no target of the group {group}" for group, names in groups.items() if not names)
    patterns = {group: [re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in names]
                for group, names in groups.items()}  # fmt: skip
    for name, expected in LISTS.items():
        if name not in tree.files:
            continue
        for group in expected:
            for target, pattern in zip(groups[group], patterns[group], strict=True):
                if not pattern.search(tree.text(name)):
                    yield f"{name}: lists targets ({group}), but not {target}"
    for name in tree.matching(r"\.(md|py|cpp|h|c|hpp|test|mlir|td)$"):
        if TABLES.match(name):
            continue
        for number, line in enumerate(tree.text(name).splitlines(), 1):
            for group, names in patterns.items():
                if group not in LISTS.get(name, []) and names and all(pattern.search(line) for pattern in names):
                    yield f"{name}:{number}: lists all targets ({group}); name the file in LISTS of lists.py"


# For each table of scalar ops outside of the unit tests: how it spells an op, and the ops that it leaves out on purpose.
INSTRUCTIONS = {"absf", "ceil", "copysign", "floor", "fma", "round", "roundeven", "trunc"}
# No function of NumPy or PyTorch is this op.
NOT_IN_PYTHON = {"fma", "round", "rsqrt", "sincos"}
C_NAMES = {"absf": "fabs", "powf": "pow"}
SCALARS = {
    "lib/Reference/FloatOps.cpp": (lambda op, name: rf"math::{op}Op\b", set()),
    "lib/Target/Embedded/LibmStub.c": (lambda op, name: rf"FUNCTION\({C_NAMES.get(name, name)}\)", {"rsqrt"}),
    "python/saccade/regions/": (lambda op, name: rf'"math\.{name}"|_MATH = [^=]*"{name}"', NOT_IN_PYTHON),
    "test/Execution/GPU/math_functions.py": (lambda op, name: rf'"{name}": \(', INSTRUCTIONS | {"sincos"}),
}


def scalars(tree):
    """Ops of `math` with a derivative are in other tables, or left out by name; what a CPU expands is measured."""
    rules = tree.text("lib/Dialect/Attn/Derivatives/ScalarRules.cpp")
    ops = re.findall(r"\bmath::(\w+)Op(?:>\(\s*\{|::getOperationName)", rules)
    if not ops:
        yield "found no op in ScalarRules.cpp"
    for table, (pattern, left_out) in SCALARS.items():
        text = "".join(tree.text(name) for name in tree.files if name.startswith(table))
        for op in ops:
            is_listed = re.search(pattern(op, op.lower()), text) is not None
            if is_listed == (op.lower() in left_out):
                yield f"{table}: {'has' if is_listed else 'lacks'} math.{op.lower()}; lists.py says otherwise"
    measured, expanding = tree.text("test/Execution/math_accuracy.py"), tree.text("lib/Codegen/CPU/ExpandMath.cpp")
    expanded = re.findall(r"(?<=<math::)\w+(?=Op>)|(?<=math::)\w+(?=Op::getOperationName)", expanding)
    for op in sorted(set(expanded)):
        if f'"{op.lower()}": (' not in measured:
            yield f"test/Execution/math_accuracy.py: does not measure math.{op.lower()}, which ExpandMath.cpp expands"


def guides(tree):
    """The README or the first page of the site links every guide and tutorial."""
    linked = {f"docs/{name}" for name in re.findall(r"\]\(([^)#]+)", tree.text("docs/index.md"))}
    linked |= set(re.findall(r"\]\(([^)#]+)", tree.text("README.md")))
    pages = tree.matching(r"^docs/(guides|tutorials)/.*\.md$")
    yield from (f"{page}: neither README.md nor docs/index.md links it" for page in pages if page not in linked)


def device(tree):
    """The GPU column of docs/coverage.md: a group of checks of `./dev device`, and what the newest results say of it."""
    results = tree.matching(r"^benchmarks/results/[\d-]+-device\.json$")
    checks = json.loads(tree.text(results[-1]))["checks"] if results else []
    page, groups = "docs/coverage.md", tree.text("benchmarks/device/checks.py")
    for row, cell in re.findall(r"^\| ([ABC]\d+) \|.*\| *([^|]*?) *\|$", tree.text(page), re.M):
        group = re.search(r"`([^`]+)`|$", cell)[1]
        if group is None or f'"{group}' not in groups:
            if cell:
                yield f"{page}: {row} says '{cell}' of GPUs, which names no group of benchmarks/device/checks.py"
            continue
        passed = [check["passed"] for check in checks if check["group"].startswith(group)]
        expected = f"{'not run' if not passed else 'yes' if all(passed) else 'no'}: `{group}`"
        if cell != expected:
            yield f"{page}: {row} says '{cell}' of GPUs, the newest results say '{expected}'"


# --- self-test: (files of a small tree, a part of the message that must come; None: nothing may come) ---------------

ORDER = " → ".join(["Dialect/Attn/IR", "Dialect/Attn/Analysis", "Dialect/Attn/Derivatives", "Import",
                    "Dialect/Attn/Transforms", *project_rules.STAGES[4:]])  # fmt: skip
TABLE = "| `Dialect/Attn/IR` | ops | |\n| `Import/Raise`, `Tiling` | | |\n| `tools` | | |\n"
DESIGN = f"## Components\n\n{ORDER}\n\n{TABLE}\n## More\n| `Other` | |\n"
CODE = {"lib/Dialect/Attn/IR/A.cpp": "", "lib/Import/Raise/A.cpp": "", "include/saccade/Tiling/A.h": ""}
TARGETS = {
    "include/saccade/Runtime/CPUTargets.def": "".join(
        f'SACCADE_CPU_TARGET({row}, 0)\n' for row in ['V3, "v3", X86', 'V4, "v4", X86', 'A, "aarch64", AArch64']),
    "lib/Support/CPUTarget.cpp": 'expanded(v4, "v4-expanded")\n',
    "lib/Support/GPUTarget.cpp": '{.name = "sm_75"}, {.name = "sm_80"}\n',
}  # fmt: skip
RULES = "add<math::SqrtOp>({f}); rules[math::SincosOp::getOperationName()]\n"
SCALAR_FILES = {
    "lib/Dialect/Attn/Derivatives/ScalarRules.cpp": RULES, "lib/Reference/FloatOps.cpp": "math::SqrtOp math::SincosOp",
    "lib/Target/Embedded/LibmStub.c": "FUNCTION(sqrt)\nFUNCTION(sincos)", "python/saccade/regions/a.py": '"math.sqrt"',
    "test/Execution/GPU/math_functions.py": '"sqrt": (', "test/Execution/math_accuracy.py": '"exp": (',
    "lib/Codegen/CPU/ExpandMath.cpp": "OpRewritePattern<math::ExpOp>",
}  # fmt: skip
GROUPS = {"benchmarks/device/checks.py": 'yield f"forward {dtype}", case\nyield "sinks", case\n'}
RESULTS = "benchmarks/results/2026-01-02-device.json"


def covered(cell, **passed):
    """A page with one row, and results where these groups of checks pass or not."""
    files = {"docs/coverage.md": f"| A1 | it | `a` | yes | | {cell}|\n", **GROUPS}
    text = json.dumps({"checks": [{"group": group, "passed": each} for group, each in passed.items()]})
    return files | ({RESULTS: text, RESULTS.replace("02", "01"): "{}"} if passed else {})


PLANTED = {
    components: [
        ({"docs/design.md": DESIGN, **CODE}, None),
        ({"docs/design.md": DESIGN, **CODE, "lib/Script/A.cpp": ""}, "lacks Script"),
        ({"docs/design.md": DESIGN, **CODE, "lib/Dialect/Attn/Analysis/A.cpp": ""}, "lacks Dialect/Attn/Analysis"),
        ({"docs/design.md": DESIGN, "lib/Import/A.cpp": "", "lib/Tiling/A.cpp": ""}, "no component Dialect/Attn/IR"),
        ({"docs/design.md": DESIGN.replace("Script → ", ""), **CODE}, "the order"),
    ],
    targets: [
        ({**TARGETS, "docs/reference/c-api.md": "`sm_75` or\n`sm_80`\n", "docs/a.md": "v3, v4-bf16, sm_75\n"}, None),
        ({**TARGETS, "docs/reference/c-api.md": "`sm_75`\n"}, "but not sm_80"),
        ({**TARGETS, "docs/a.md": "--target=v3,v4\n"}, "docs/a.md:1: lists all targets (x86)"),
        ({**TARGETS, "test/Tools/joined_targets.py": '["v3", "v4-bf16"]\n'}, "but not v4"),
        ({**TARGETS, "lib/Support/GPUTarget.cpp": ""}, "no target of the group gpu"),
    ],
    scalars: [
        (SCALAR_FILES, None),
        (SCALAR_FILES | {"lib/Target/Embedded/LibmStub.c": "FUNCTION(sqrt)\n"}, "LibmStub.c: lacks math.sincos"),
        (SCALAR_FILES | {"python/saccade/regions/a.py": '"math.sqrt" "math.sincos"'}, "has math.sincos"),
        (SCALAR_FILES | {"lib/Codegen/CPU/ExpandMath.cpp": "math::ErfcOp::getOperationName"}, "does not measure math.erfc"),
        (SCALAR_FILES | {"lib/Dialect/Attn/Derivatives/ScalarRules.cpp": ""}, "found no op"),
    ],
    guides: [
        ({"docs/guides/a.md": "", "docs/tutorials/b.md": "", "docs/index.md": "[a](guides/a.md#x)",
          "README.md": "[b](docs/tutorials/b.md)"}, None),
        ({"docs/guides/a.md": "", "docs/index.md": "a.md", "README.md": "[a](guides/a.md)"}, "docs/guides/a.md: neither"),
    ],
    device: [
        (covered(""), None),
        (covered("not run: `sinks` "), None),
        (covered("yes: `forward` ", forward=True, sinks=False), None),
        (covered("not run: `sinks` ", forward=True), None),
        (covered("yes "), "names no group"),
        (covered("not run: `other` "), "names no group"),
        (covered("yes: `sinks` "), "the newest results say 'not run: `sinks`'"),
        (covered("yes: `sinks` ", sinks=False), "the newest results say 'no: `sinks`'"),
        (covered("not run: `sinks` ", sinks=True), "the newest results say 'yes: `sinks`'"),
    ],
}  # fmt: skip

if __name__ == "__main__":
    project_rules.run(__doc__, PLANTED)
