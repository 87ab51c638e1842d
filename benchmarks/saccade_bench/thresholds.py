"""What the rows must reach against what they reached."""

import dataclasses
import statistics


@dataclasses.dataclass
class Check:
    """A bar and what was measured; None where it was not."""

    what: str
    bar: float
    value: float | None

    @property
    def is_met(self):
        return None if self.value is None else self.value >= self.bar

    def __str__(self):
        found = "not measured" if self.value is None else f"{self.value:.3f} {'met' if self.is_met else '**missed**'}"
        return f"{self.what} ≥ {self.bar:.2f}: {found}"


def reached(summary, what, ours):
    """Ours relative to the machine's limit or to another contender."""
    if what == "peak":
        return summary.fraction[ours]
    return summary.ratio[what][0] if what in summary.ratio else None


def of_row(summary, summaries, table, ours):
    """The checks of a row, among the summaries of all."""
    row, checks = summary.row, []
    for what, bar in row.bars.items():
        checks.append(Check(what, bar, reached(summary, what, ours)))
    if row.neighbour is not None:
        nearest = next((each for each in summaries if each.row is row.neighbour), None)
        for what, bar in row.neighbour.bars.items():
            # A bar relative to somebody who has no code for this shape holds as the fraction that he reached there.
            limit = 1 if what == "peak" else nearest.fraction.get(what) if nearest else None
            if limit is not None:
                checks.append(Check(f"peak near {row.neighbour.case}", bar * limit * table.every["random"],
                                    summary.fraction[ours]))
    best = summary.best_peer
    if best is not None and row.group not in ("own", "random"):
        checks.append(Check(f"best peer ({best})", table.every["best_peer"], summary.ratio[best][0]))
    return checks


def of_means(summaries, table):
    """The checks of the geometric means."""
    checks = []
    for mean in table.means:
        ratios = [each.ratio[mean.peer][0] for each in summaries
                  if each.row.group == "prefill" and each.row.case.type == mean.type and mean.peer in each.ratio]
        if ratios:
            name = f"geometric mean to {mean.peer}, {len(ratios)} prefill rows in {mean.type}"
            checks.append(Check(name, mean.bar, statistics.geometric_mean(ratios)))
    return checks
