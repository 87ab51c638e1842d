"""The tables of docs/internals/gpu-instruction-counts.md have the counts and the cost model of benchmarks/data/sass.json.

RUN: %python %s %src
"""

import json
import pathlib
import sys

root = pathlib.Path(sys.argv[1])
record = json.loads((root / "benchmarks" / "data" / "sass.json").read_text())
COLUMNS = ["HMMA", "other", "registers", "spilled bytes"]


def read_tables(page):
    """[(name of a kernel, its counts)] of all rows that begin with a name."""
    rows = [line.strip("|").split("|") for line in page.splitlines() if line.startswith("| `sm_")]
    return [(name.strip(" `"), [int(cell) for cell in cells]) for name, *cells in rows]


def differences(tables, kernels):
    for name, counts in tables:
        expected = [kernels[name][column] for column in COLUMNS] if name in kernels else None
        if counts != expected:
            yield f"{name}: the page has {counts}, sass.json {expected}"


def predict(target, depth, mask):
    """TFLOP/s of a gradient by the model: the five products of 16 keys and 64 queries that a warp computes."""
    model, issuers, clock = record["model"], 132 * 4, 1.98e9
    kernels = [record["kernels"][f"{target} d{depth} {mask} {what}"] for what in ("dq", "dk dv")]
    cycles = sum(model["cycles per HMMA"] * each["HMMA"] + model["cycles per other"] * each["other"] for each in kernels)
    return 5 * 2 * 16 * 64 * depth / cycles * issuers * clock / 1e12


page = (root / "docs" / "internals" / "gpu-instruction-counts.md").read_text()
tables = read_tables(page)
assert len(tables) > 30, f"{len(tables)} rows"
found = list(differences(tables, record["kernels"]))
assert not found, "\n".join(found)

full, causal = (round(predict("sm_80", 128, mask)) for mask in ("full", "causal"))
assert f"{full} TFLOP/s, and {causal} with a causal mask" in page, f"the model predicts {full} and {causal} TFLOP/s"

# A wrong figure and an unknown name are found.
name, counts = tables[0]
assert list(differences([(name, [counts[0] + 1, *counts[1:]])], record["kernels"]))
assert list(differences([("sm_80 d64 nothing", counts)], record["kernels"]))
