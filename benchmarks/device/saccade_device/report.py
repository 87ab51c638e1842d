"""Results of a run as Markdown and CSV."""

import csv
import io

from .bench import OURS, bytes_moved, flops


def unit(row):
    """TB/s for up to 16 queries, which are memory-bound, else TFLOP/s."""
    return "TB/s" if row["queries"] <= 16 else "TFLOP/s"


def rate(row, milliseconds):
    return (bytes_moved(row) if unit(row) == "TB/s" else flops(row)) / milliseconds / 1e9


def markdown(header, outcomes, results):
    failed = [outcome for outcome in outcomes if not outcome[1]]
    lines = [header, "", f"{len(outcomes) - len(failed)} of {len(outcomes)} checks pass.", ""]
    lines += [f"- **fails**: {name}: {words}" for name, _, words in failed]
    if not results:
        return "\n".join(lines) + "\n"
    peers = list(dict.fromkeys(name for each in results for name in each.get("ratios", {})))
    lines += ["", f"| problem | unit | {OURS} | {' | '.join(peers)} | {OURS} / best | error |",
              "|---|---|---|" + "---|" * len(peers) + "---|---|"]
    for each in results:
        row = each["row"]
        if "failure" in each:
            lines.append(f"| {row['name']} | | {each['failure']} |" + " |" * (len(peers) + 2))
            continue
        cells = [f"{rate(row, each['milliseconds'][name]):.3g}" if name in each["milliseconds"] else ""
                 for name in [OURS] + peers]
        best = min(each["ratios"].values(), default=None)
        lines.append(f"| {row['name']} | {unit(row)} | {' | '.join(cells)} | "
                     f"{'' if best is None else f'{best:.2f}'} | {each['error']:.1e} |")
    notes = sorted({f"- {name}: {why}" for each in results for name, why in each.get("missing", {}).items()})
    lines += ["", f"Rates are medians over rounds. {OURS} / best is the median over rounds of the speedup over the fastest "
              "peer of the row. FLOPs under a causal mask count visible pairs."]
    return "\n".join(lines + ([""] + notes if notes else [])) + "\n"


def table(results):
    """CSV: one line per row and contender."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["problem", "contender", "milliseconds", "rate", "unit", "times_ours", "error"])
    for each in results:
        for name, milliseconds in each.get("milliseconds", {}).items():
            row = each["row"]
            writer.writerow([row["name"], name, f"{milliseconds:.5f}", f"{rate(row, milliseconds):.5g}", unit(row),
                             f"{each['ratios'].get(name, 1):.4f}", f"{each['error']:.2e}" if name == OURS else ""])
    return text.getvalue()


def instructions(distances):
    """CSV: one line per instruction, the results of `instructions.check`."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "instruction", "worst", "allowed", "unit"])
    for group, name, worst, allowed, unit in distances:
        writer.writerow([group, name, f"{worst:.3g}", f"{allowed:.3g}", unit])
    return text.getvalue()
