"""Lists that repeat a table of the compiler: components.

    lists.py CHECK --root SOURCE    prints every difference from the table; exit code 1 where there is one
    lists.py CHECK --self-test      plants one difference of each kind and expects it to be found
"""

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


# --- self-test: (files of a small tree, a part of the message that must come; None: nothing may come) ---------------

ORDER = " → ".join(["Dialect/Attn/IR", "Dialect/Attn/Analysis", "Dialect/Attn/Derivatives", "Import",
                    "Dialect/Attn/Transforms", *project_rules.STAGES[4:]])  # fmt: skip
TABLE = "| `Dialect/Attn/IR` | ops | |\n| `Import/Raise`, `Tiling` | | |\n| `tools` | | |\n"
DESIGN = f"## Components\n\n{ORDER}\n\n{TABLE}\n## More\n| `Other` | |\n"
CODE = {"lib/Dialect/Attn/IR/A.cpp": "", "lib/Import/Raise/A.cpp": "", "include/saccade/Tiling/A.h": ""}
PLANTED = {
    components: [
        ({"docs/design.md": DESIGN, **CODE}, None),
        ({"docs/design.md": DESIGN, **CODE, "lib/Script/A.cpp": ""}, "lacks Script"),
        ({"docs/design.md": DESIGN, **CODE, "lib/Dialect/Attn/Analysis/A.cpp": ""}, "lacks Dialect/Attn/Analysis"),
        ({"docs/design.md": DESIGN, "lib/Import/A.cpp": "", "lib/Tiling/A.cpp": ""}, "no component Dialect/Attn/IR"),
        ({"docs/design.md": DESIGN.replace("Script → ", ""), **CODE}, "the order"),
    ],
}  # fmt: skip

if __name__ == "__main__":
    project_rules.run(__doc__, PLANTED)
