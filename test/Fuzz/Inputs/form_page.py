"""The page docs/reference/forms.md: tables of form × feature × target and type, from the outcomes of form_table.py."""

import collections
import csv
import pathlib

from form_plan import FEATURES, FORMS, PROGRAMS, QUICK, TARGETS, TYPES, Entry, uncovered

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "reference" / "forms.md"
RECORD = ROOT / "benchmarks" / "results" / "2026-11-23-forms.csv"
COLUMNS = ["number", "form", "target", "type", "features", "outcome"]
# "another form": the kernels of the form did not run. "fails": an exit code that no user error has.
OUTCOMES = ["agrees", "refused", "differs", "another form", "fails"]

Row = collections.namedtuple("Row", COLUMNS)

HEAD = """# Forms and features

<!-- This page is generated: `./dev soak --forms` runs the programs and writes it. -->

`./dev soak --forms` runs {planned:,} random programs of attention and compares each with the float64 reference
([what counts as correct](../internals/testing.md#what-counts-as-correct)). GPU targets run on [PtxSim](../guides/ptxsim.md). Each
program has one form, one target, one element type and three to seven features. The plan has every combination
of a form, a feature, a target and a type, and of a form and two features, except for three masks at once and two weight regions. A
program counts as agreeing if it also has the kernels of its form: on a GPU they ran; on a CPU they were compiled, which is checked
for a third of the programs. The outcomes are in
[{record.name}](../../benchmarks/results/{record.name}).

**{agree:,} of {programs} programs agree.** {others}

| form | queries |
|---|---|
| prefill | dense operands, 17 to 40 queries a head |
| split-KV | dense operands, one to eight queries a head; chunks of 5 to 1024 keys |
| lengths, … | the same two, with `kv_len`, some also with `q_len`: a number, or a tensor with one for each batch |
| ragged prefill | sequences of 17 to 40 queries; `cu_seqlens` of queries and keys, or of one of them |
| ragged split-KV | sequences of one to eight queries, likewise |
| ragged mixed | sequences with one query and sequences with many, in one call |

In every form operands are static, dynamic or both; `layout` and `strides` vary their dimensions, `grouped heads` and `KV heads` their
heads.
"""


def read(path):
    with path.open(newline="") as file:
        return [Row(int(row["number"]), *(row[name] for name in COLUMNS[1:])) for row in csv.DictReader(file)]


def add(path, number, entry, outcome):
    """Adds the outcome of a program to the file, which is made if it does not exist."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if is_new:
            writer.writerow(COLUMNS)
        writer.writerow([number, entry.form, entry.target, entry.type, " + ".join(entry.features), outcome])


def count(rows):
    """(form, feature, target) and (form, feature, type) → how many programs had each outcome; likewise without the feature."""
    cells = collections.defaultdict(collections.Counter)
    for row in rows:
        for feature in row.features.split(" + "):
            cells[row.form, feature, row.target][row.outcome] += 1
            cells[row.form, feature, row.type][row.outcome] += 1
        cells[row.form, row.target, row.type][row.outcome] += 1
    return cells


def cell(counts):
    """The number of programs that agree; the others are named."""
    others = ", ".join(f"**{counts[outcome]} {outcome}**" for outcome in OUTCOMES[1:] if counts[outcome])
    return f"{counts['agrees']}" + (f", {others}" if others else "")


def table(cells, columns, key):
    lines = ["| form | " + " | ".join(columns) + " |", "|---|" + "---:|" * len(columns)]
    for form in FORMS:
        lines.append(f"| {form} | " + " | ".join(cell(cells[key(form, column)]) for column in columns) + " |")
    return "\n".join(lines) + "\n"


def page(rows):
    rows = sorted(rows)
    cells = count(rows)
    outcomes = collections.Counter(row.outcome for row in rows)
    others = " ".join(f"{outcomes[outcome]:,}: {outcome}." for outcome in OUTCOMES[1:] if outcomes[outcome])
    programs = f"{len(rows):,}" if len(rows) == PROGRAMS else f"the {len(rows):,} recorded"
    parts = [HEAD.format(planned=PROGRAMS, programs=programs, agree=outcomes["agrees"], record=RECORD,
                         others=others or "None is refused.")]
    parts.append("| feature | of the programs |\n|---|---|\n" + "".join(f"| {name} | {text} |\n" for name, text in FEATURES.items()))
    parts.append("## Targets\n\nA cell is the number of programs that agree. If some do not, the cell says how many, and why.\n")
    for target in TARGETS:
        parts.append(f"### {target}\n\n" + table(cells, list(FEATURES), lambda form, feature, part=target: (form, feature, part)))
    parts.append("## Element types\n")
    for element in TYPES:
        parts.append(f"### {element}\n\n" + table(cells, list(FEATURES), lambda form, feature, part=element: (form, feature, part)))
    parts.append("## Targets and types\n")
    for target in TARGETS:
        parts.append(f"### Types on {target}\n\n" + table(cells, TYPES, lambda form, element, part=target: (form, part, element)))
    return "\n".join(parts)


def write():
    PAGE.write_text(page(read(RECORD)))


def is_cell_or_pair(subject):
    first, *others = subject
    return not others[1:] or len(others) == 2 and first in FORMS and not {*TARGETS, *TYPES}.isdisjoint(others)


def rows_as_entries(rows):
    return [Entry(row.form, row.target, row.type, row.features.split(" + ")) for row in rows]


def problems(plan, rows=None, text=None):
    """What is wrong with the plan, the record of outcomes and the page, as sentences."""
    rows = read(RECORD) if rows is None else rows
    text = PAGE.read_text() if text is None else text
    for subject in sorted(uncovered(plan)):
        yield f"no program of the plan has {' × '.join(subject)}"
    for subject in sorted(subject for subject in uncovered(plan[:QUICK]) if len(subject) == 2):
        yield f"none of the first {QUICK} programs has {' × '.join(subject)}"
    # A record may end early, once it has every pair and every cell of the tables.
    for subject in sorted(filter(is_cell_or_pair, uncovered(rows_as_entries(rows)))):
        yield f"no program of {RECORD.name} has {' × '.join(subject)}"
    if len({row.number for row in rows} & set(range(PROGRAMS))) != len(rows):
        yield f"{RECORD.name} has a program twice, or one that the plan does not have; run ./dev soak --forms"
    elif any((row.form, row.target, row.type, row.features) != (*plan[row.number][:3], " + ".join(plan[row.number].features))
             for row in rows):
        yield f"{RECORD.name} does not follow from the plan; run ./dev soak --forms"
    for row in rows:
        if row.outcome != "agrees":
            yield f"program {row.number} of {RECORD.name}: {row.outcome}"
    if text != page(rows):
        yield f"is not made from {RECORD.name}; run form_table.py --page"


def unseen(plan):
    """Mistakes that `problems` must report and does not."""
    rows = [Row(number, *entry[:3], " + ".join(entry.features), "agrees") for number, entry in enumerate(plan)]
    text, first = page(rows), rows[0]
    assert not list(problems(plan, rows, text))
    refused = [first._replace(outcome="refused"), *rows[1:]]
    others = [first._replace(features="max"), *rows[1:]]
    planted = {
        "a refused program": (refused, page(refused)),
        "a program twice": ([rows[0], *rows], page([rows[0], *rows])),
        "other features": (others, page(others)),
        "a form without programs": ([row for row in rows if row.form != FORMS[0]], text),
        "another number on the page": (rows, text.replace("| split-KV | ", "| split-KV | 1", 1)),
    }
    return [name for name, (rows, text) in planted.items() if not list(problems(plan, rows, text))]
