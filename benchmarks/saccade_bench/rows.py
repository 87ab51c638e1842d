"""Benchmark rows: those of cpu.toml, those of --case, and random shapes between the rows of the table."""

import dataclasses
import math
import random
import tomllib

from . import cases


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A case with its thresholds, {contender or "peak": minimum ratio} (see cpu.toml)."""

    case: cases.Attention | cases.Gemm
    group: str = "own"
    thresholds: dict = dataclasses.field(default_factory=dict)
    base: cases.Attention | None = None
    is_quick: bool = False
    neighbour: "Row | None" = None  # of a random shape: the row that gives its threshold


@dataclasses.dataclass(frozen=True)
class Mean:
    """The threshold of the geometric mean of the ratios to a peer, over the prefill rows of one type."""

    peer: str
    type: str
    threshold: float


@dataclasses.dataclass
class Table:
    rows: list
    means: list
    every: dict  # best_peer, random

    def row(self, case):
        """The row of this case, or a new row without thresholds."""
        return next((row for row in self.rows if row.case == case), Row(case))


def load(path, target):
    """Loads the table for a CPU target. f32 and bf16 of an entry are separate rows, grouped by type.

    Entries without a target are rows for all targets, with their own thresholds for "host" only, like the means. An entry
    with a target takes the place of one of the same case.
    """
    data = tomllib.loads(path.read_text())
    rows = {}
    for type in ("f32", "bf16"):
        for entry in data["row"]:
            if type not in entry or entry.get("target", target) != target:
                continue
            base = cases.with_type(cases.parse(entry["base"]), type) if "base" in entry else None
            case = cases.with_type(cases.parse(entry["case"]), type)
            own = entry[type] if entry.get("target", "host") == target else {}
            rows[case] = Row(case, entry["group"], own, base, entry.get("quick", False))
    means = [Mean(entry["peer"], type, entry[type]) for entry in data["mean"] for type in ("f32", "bf16")
             if type in entry and target == "host"]  # fmt: skip
    return Table(list(rows.values()), means, data["every"])


def between(low, high, share):
    """Geometric interpolation between two sizes, rounded to an integer."""
    return max(1, round(math.exp((1 - share) * math.log(low) + share * math.log(high))))


def draw(rows, count, seed):
    """`count` random shapes. Each interpolates all sizes between two prefill rows of equal type, mask and bias. The nearer
    row is the neighbour and gives head_dim."""
    choose = random.Random(seed)
    of_kind = {}
    for row in rows:
        if row.group == "prefill" and row.case.type == rows[0].case.type:
            of_kind.setdefault((row.case.mask, row.case.has_bias), []).append(row)
    pairs = [(one, other) for same in of_kind.values() for one in same for other in same if one is not other]
    if count and not pairs:
        raise cases.BadCase("--random needs two prefill rows of one kind")
    shapes = {}  # {case: nearest row}
    for _ in range(1000 * count):
        if len(shapes) == count:
            break
        near, far = choose.choice(pairs)
        share, one, other = choose.uniform(0.1, 0.5), near.case, far.case
        group = one.heads // one.kv_heads
        kv_heads = between(one.kv_heads, max(1, other.heads // group), share)
        queries, keys = between(one.queries, other.queries, share), between(one.keys, other.keys, share)
        case = dataclasses.replace(
            one, batch=between(one.batch, other.batch, share), heads=group * kv_heads, kv_heads=kv_heads,
            queries=queries, keys=queries if one.queries == one.keys and other.queries == other.keys else keys)
        if all(case != row.case for row in rows):
            shapes[case] = near
    if len(shapes) < count:
        raise cases.BadCase(f"found {len(shapes)} shapes between the chosen rows, expected {count}")
    by_case = {row.case: row for row in rows}
    drawn = []
    for case, near in shapes.items():
        for type in dict.fromkeys(row.case.type for row in rows):
            neighbour = by_case.get(cases.with_type(near.case, type))
            if neighbour:
                drawn.append(Row(cases.with_type(case, type), "random", neighbour=neighbour))
    return drawn
