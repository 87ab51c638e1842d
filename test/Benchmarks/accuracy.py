"""The verdicts of `benchmarks/accuracy.py`: "met", or the conditions that failed.

RUN: %python %s %src/benchmarks
"""

import sys

sys.path.insert(0, sys.argv[1])
from accuracy import HEADER, notes_of, row_of, verdict_of

good = {"layers": 2, "expected": 2, "must_raise": True, "own": None, "export": 1.0, "compile": 2.0, "attentions": 2,
        "remarks": [], "error": 1e-6}
short = {**good, "own": 1e-2, "error": 1.1e-2}


def verdict(type, found, **changes):
    return verdict_of({**found, **changes}, type)


assert verdict("f32", good) == "met" and verdict("bf16", short) == "met"
assert "error" in verdict("f32", good, error=2e-4) and "error" in verdict("f32", good, error=float("nan"))
assert "times PyTorch's" in verdict("bf16", short, error=1.3e-2)
assert "1 attentions of 2" in verdict("f32", good, attentions=1)
assert "2 attentions of 2" in verdict("f32", good, remarks=["why"])
assert "cosine" in verdict("f32", good, cosine=0.99)
assert "cosine" in verdict("bf16", short, cosine=0.9, own_cosine=0.999)
# If raising is not required, each softmax that is not raised must have a remark.
sparse = {**good, "must_raise": False, "attentions": 1}
assert "has no remark" in verdict("f32", sparse) and verdict("f32", sparse, remarks=["why"]) == "met"
row = row_of("bert", "f32", good)
assert len(row) == len(HEADER) and row[3:5] == ["2", "0"] and row[-1] == "met"
assert list(notes_of("x", "f32", {**good, "remarks": ["why", "why"]})) == ['- x f32: 2 × "why"']
