"""The benchmark's cases and bars: texts are read and written back, work is counted right, bars are held against what
was measured, and random shapes lie between two rows.

REQUIRES: numpy
RUN: %python %s %src
"""

import pathlib
import sys

benchmarks = pathlib.Path(sys.argv[1]) / "benchmarks"
sys.path.insert(0, str(benchmarks))

from saccade_bench import thresholds, cases, rounds, rows

# Texts: everything that a case has, in any order, and back.
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
        raise AssertionError(f"'{text}' was taken for a case")

# Work: under a window exactly the pairs that are seen, half of all under a causal mask, keys and values in decode.
for length, window in ((9, 4), (9, 9), (4, 30), (7, 1)):
    case = cases.parse(f"1x1x{length}x1 window{window}")
    seen = sum(len(range(*case.seen(i))) for i in range(length))
    assert case.pairs == seen == sum(i - window < j <= i for i in range(length) for j in range(length))
assert cases.parse("2x3x4x5x7").work == 4 * 2 * 3 * 4 * 5 * 7
assert cases.parse("2x4(2)x8x16 causal").work == 2 * 2 * 4 * 8 * 8 * 16
assert cases.parse("2x4(2)x1x8x16 bf16").work == 2 * (2 * 2 * 8 * 16) * 2
assert cases.parse("2x3x4 gemm").work == 2 * 2 * 3 * 4

# The table: every row can be read, has a bar whose other side exists, and some are quick.
table = rows.load(benchmarks / "cpu.toml", "host")
assert len(table.rows) == 42 and sum(row.is_quick for row in table.rows) == 10
for row in table.rows:
    assert row.bars and ("base" in row.bars) == (row.base is not None), row
assert [row.bars for row in rows.load(benchmarks / "cpu.toml", "v3").rows] == [{"peak": 0.75}]
assert table.row(cases.parse("1x12x1024x64 causal bf16")).bars == {"peak": 0.70}
assert table.row(cases.parse("1x12x1024x64 causal f64")).bars == {}

# Random shapes: the same for a seed, between two rows, in both types, none of them a row.
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


# Bars: of the limit, relative to others in the same rounds, of the best peer, of the neighbour, of means.
def summary(row, rates, processes=1):
    found = rounds.Measurement([rounds.Round(process, 100.0, 10.0, dict(rates), dict.fromkeys(rates, 2.0))
                                for process in range(processes)])
    return rounds.Summary.of(row, found, "saccade", ["torch", "jax"])


fast = table.row(cases.parse("32x12x196x64"))
near = rows.Row(cases.parse("30x12x200x64"), "random", neighbour=fast)
rates = {"saccade": 75.0, "yardstick": 80.0, "torch": 30.0, "jax": 60.0}
every = [summary(fast, rates, 3), summary(near, {"saccade": 68.0})]
checks = thresholds.of_row(every[0], every, table, "saccade")
assert [(check.what, check.bar, check.is_met) for check in checks] == [
    ("yardstick", 0.95, False), ("best peer (jax)", 0.97, True)], checks
assert str(checks[0]) == "yardstick ≥ 0.95: 0.938 **missed**"
(check,) = thresholds.of_row(every[1], every, table, "saccade")
assert abs(check.bar - 0.95 * 0.80 * 0.90) < 1e-9 and check.value == 0.68 and not check.is_met
(check,) = thresholds.of_means(every, table)
assert (check.bar, check.value) == (2.6, 2.5) and not check.is_met
(check,) = thresholds.of_row(summary(fast, {"saccade": 75.0}), [], table, "saccade")
assert check.is_met is None and "not measured" in str(check)
decode = summary(table.row(cases.parse("8x32(8)x1x4096x128")), {"saccade": 8.0})
assert decode.fraction["saccade"] == 0.8  # of the bandwidth
