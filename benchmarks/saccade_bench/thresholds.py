"""Checks measured rates against the thresholds of the rows."""

import dataclasses
import statistics


@dataclasses.dataclass
class Check:
    """A threshold and the measured value; None if it was not measured."""

    name: str
    threshold: float
    value: float | None

    @property
    def is_met(self):
        return None if self.value is None else self.value >= self.threshold

    def __str__(self):
        found = "not measured" if self.value is None else f"{self.value:.3f} {'met' if self.is_met else '**missed**'}"
        return f"{self.name} ≥ {self.threshold:.2f}: {found}"


def measured(summary, name, ours):
    """Our rate relative to the peak or to another contender."""
    if name == "peak":
        return summary.fraction[ours]
    return summary.ratio[name][0] if name in summary.ratio else None


def of_row(summary, summaries, table, ours):
    """The checks of one row; `summaries` has all rows, for the neighbour."""
    row, checks = summary.row, []
    for name, threshold in row.thresholds.items():
        checks.append(Check(name, threshold, measured(summary, name, ours)))
    if row.neighbour is not None:
        nearest = next((each for each in summaries if each.row is row.neighbour), None)
        for name, threshold in row.neighbour.thresholds.items():
            # A contender may not support this shape; its fraction of the peak on the neighbour is used instead.
            scale = 1 if name == "peak" else nearest.fraction.get(name) if nearest else None
            if scale is not None:
                checks.append(Check(f"peak near {row.neighbour.case}", threshold * scale * table.every["random"],
                                    summary.fraction[ours]))
    if "before" in summary.ratio:
        checks.append(Check("before", table.every["before"], summary.ratio["before"][0]))
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
            checks.append(Check(name, mean.threshold, statistics.geometric_mean(ratios)))
    return checks
