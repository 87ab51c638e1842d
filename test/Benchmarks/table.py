"""Cases and thresholds of the CPU benchmark: parsing and printing, FLOP counts, checks of thresholds, random shapes.

REQUIRES: numpy
RUN: %python %s %src
"""

import pathlib
import sys

benchmarks = pathlib.Path(sys.argv[1]) / "benchmarks"
sys.path.insert(0, str(benchmarks))

from saccade_bench import cases, rounds, rows, thresholds

# Texts: all properties of a case, in any order, and back.
case = cases.parse("2x8(4)x7x19x40 bf16 bias bshd")
assert (case.batch, case.heads, case.kv_heads, case.queries, case.keys, case.depth) == (2, 8, 4, 7, 19, 40)
assert case.input_shapes == [(2, 7, 8, 40), (2, 19, 4, 40), (2, 19, 4, 40), (8, 7, 19)]
assert str(cases.parse("1x8x64x64 bshd window 16")) == "1x8x64x64 window16 bshd f32"
assert str(cases.parse("12x34x56 bf16 gemm")) == "12x34x56 gemm bf16"
for text in ("", "2x8x64", "4x3(2)x19x64", "0x2x3x4", "1x8(0)x4x4", "1x8x4x4 causal f33", "1x8x4x5x4 causal",
             "2x3 gemm", "2x3x4 gemm bias"):
    try:
        cases.parse(text)
    except cases.BadCase as error:
        assert f"'{text}" in str(error), error
    else:
        raise AssertionError(f"'{text}' was accepted as a case")

# Work: visible pairs under a window, half of all pairs under a causal mask, bytes of K and V in decode.
for length, window in ((9, 4), (9, 9), (4, 30), (7, 1)):
    case = cases.parse(f"1x1x{length}x1 window{window}")
    visible = sum(len(range(*case.visible_keys(i))) for i in range(length))
    assert case.pairs == visible == sum(i - window < j <= i for i in range(length) for j in range(length))
assert cases.parse("2x3x4x5x7").work == 4 * 2 * 3 * 4 * 5 * 7
assert cases.parse("2x4(2)x8x16 causal").work == 2 * 2 * 4 * 8 * 8 * 16
assert cases.parse("2x4(2)x1x8x16 bf16").work == 2 * (2 * 2 * 8 * 16) * 2
assert cases.parse("2x3x4 gemm").work == 2 * 2 * 3 * 4

# The table: every row parses, has a threshold and the base it refers to, and some rows are quick.
table = rows.load(benchmarks / "cpu.toml", "host")
assert len(table.rows) == 42 and sum(row.is_quick for row in table.rows) == 10
for row in table.rows:
    assert row.thresholds and ("base" in row.thresholds) == (row.base is not None), row
# Another CPU target has the same cases, and thresholds of its own.
other = rows.load(benchmarks / "cpu.toml", "v3")
assert {row.case for row in table.rows} == {row.case for row in other.rows} and other.means == []
assert sorted(row.thresholds["peak"] for row in other.rows if row.thresholds) == [0.72, 0.75, 0.80, 0.80]
assert table.row(cases.parse("1x12x1024x64 causal bf16")).thresholds == {"peak": 0.70}
assert table.row(cases.parse("1x12x1024x64 causal f64")).thresholds == {}

# Random shapes: determined by the seed, between two rows, in both types, none of them a row.
drawn = rows.draw(table.rows, 50, 3)
assert len(drawn) == 100 and [row.case for row in drawn] == [row.case for row in rows.draw(table.rows, 50, 3)]
assert [row.case for row in drawn] != [row.case for row in rows.draw(table.rows, 50, 4)]
for row in drawn:
    near = row.neighbour.case
    others = [each.case for each in table.rows if each.group == "prefill" and each.case.mask == near.mask]
    assert row.case.type == near.type and row.case.depth == near.depth and row.case not in others
    for size in ("batch", "heads", "queries", "keys"):
        values = [getattr(each, size) for each in others]
        assert min(values) <= getattr(row.case, size) <= max(values), (row, size)


# Thresholds: relative to the peak, to contenders of the same rounds, to the best peer, to the neighbour, of means.
def summary(row, rates, processes=1):
    found = rounds.Measurement([rounds.Round(process, 100.0, 10.0, dict(rates), dict.fromkeys(rates, 2.0))
                                for process in range(processes)])
    return rounds.Summary.of(row, found, "saccade", ["torch", "jax"])


fast = table.row(cases.parse("32x12x196x64"))
near = rows.Row(cases.parse("30x12x200x64"), "random", neighbour=fast)
rates = {"saccade": 75.0, "handwritten": 80.0, "torch": 30.0, "jax": 60.0}
every = [summary(fast, rates, 3), summary(near, {"saccade": 68.0})]
checks = thresholds.of_row(every[0], every, table, "saccade")
assert [(check.name, check.threshold, check.is_met) for check in checks] == [
    ("handwritten", 0.95, False), ("best peer (jax)", 0.97, True)], checks
assert str(checks[0]) == "handwritten ≥ 0.95: 0.938 **missed**"
(check,) = thresholds.of_row(every[1], every, table, "saccade")
assert abs(check.threshold - 0.95 * 0.80 * 0.90) < 1e-9 and check.value == 0.68 and not check.is_met
(check,) = thresholds.of_means(every, table)
assert (check.threshold, check.value) == (2.6, 2.5) and not check.is_met
(check,) = thresholds.of_row(summary(fast, {"saccade": 75.0}), [], table, "saccade")
assert check.is_met is None and "not measured" in str(check)
decode = summary(table.row(cases.parse("8x32(8)x1x4096x128")), {"saccade": 8.0})
assert decode.fraction["saccade"] == 0.8  # of the bandwidth
