"""The rows of the table in cpu.toml, rows of the user's own, and rows drawn at random between those of the table."""

import dataclasses
import math
import random
import tomllib

from . import cases


@dataclasses.dataclass(frozen=True, eq=False)
class Row:
    """A case with what it must reach: `bars` says how fast at least relative to what (see cpu.toml)."""

    case: cases.Attention | cases.Product
    group: str = "own"
    bars: dict = dataclasses.field(default_factory=dict)
    base: cases.Attention | None = None
    is_quick: bool = False
    neighbour: "Row | None" = None  # of a shape drawn at random, whose own bars are this row's


@dataclasses.dataclass(frozen=True)
class Mean:
    """A bar for the geometric mean of the ratios to a peer, over the rows of group prefill in one type."""

    peer: str
    type: str
    bar: float


@dataclasses.dataclass
class Table:
    rows: list
    means: list
    every: dict  # best_peer, random

    def row(self, case):
        """The row of this case, or one without bars."""
        return next((row for row in self.rows if row.case == case), Row(case))


def load(path, target):
    """The table for an CPU target; f32 and bf16 of a row are rows of their own, all of one type together."""
    data = tomllib.loads(path.read_text())
    rows = []
    for type in ("f32", "bf16"):
        for entry in data["row"]:
            if type not in entry or entry.get("target", "host") != target:
                continue
            base = cases.with_type(cases.parse(entry["base"]), type) if "base" in entry else None
            case = cases.with_type(cases.parse(entry["case"]), type)
            rows.append(Row(case, entry["group"], entry[type], base, entry.get("quick", False)))
    means = [Mean(entry["peer"], type, entry[type]) for entry in data["mean"] for type in ("f32", "bf16")
             if type in entry]
    return Table(rows, means, data["every"])


def between(low, high, share):
    """The whole number that is `share` of the way from one to the other, by ratio."""
    return max(1, round(math.exp((1 - share) * math.log(low) + share * math.log(high))))


def draw(rows, count, seed):
    """`count` shapes between two prefill rows of one type, mask and bias each: all sizes are the same share of the way
    from one to the other. The row that is nearer is the neighbour and gives the head size."""
    choose = random.Random(seed)
    of_kind = {}
    for row in rows:
        if row.group == "prefill" and row.case.type == rows[0].case.type:
            of_kind.setdefault((row.case.mask, row.case.has_bias), []).append(row)
    pairs = [(one, other) for same in of_kind.values() for one in same for other in same if one is not other]
    if count and not pairs:
        raise cases.BadCase("random shapes lie between two rows of a kind, and none were chosen")
    shapes = {}  # with the row that is nearest
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
        raise cases.BadCase(f"there are only {len(shapes)} shapes between the chosen rows")
    by_case = {row.case: row for row in rows}
    drawn = []
    for case, near in shapes.items():
        for type in dict.fromkeys(row.case.type for row in rows):
            neighbour = by_case.get(cases.with_type(near.case, type))
            if neighbour:
                drawn.append(Row(cases.with_type(case, type), "random", neighbour=neighbour))
    return drawn
