"""The report of a run as Markdown, and its figures as CSV and JSON."""

import csv
import io
import os
import platform

CALLS = " by calls"
LOST = "not timed, see Failures"


def heading(header, manifest):
    """The machine and the build in one line."""
    code = "with machine code" if manifest["cubin"] else "PTX only"
    return (f"{header['name']} (compute capability {header['capability']}, {header['multiprocessors']} multiprocessors, "
            f"driver for CUDA {header['driver']}); {header['torch']}, Python {platform.python_version()}; built from "
            f"{manifest['commit']}, kernels for {', '.join(manifest['targets'])} {code}.")


def table(columns, lines):
    """A Markdown table without the columns that are empty."""
    kept = [i for i in range(len(columns)) if i == 0 or any(line[i] for line in lines)]
    shown = [[columns[i] for i in kept], ["---"] * len(kept)] + [[line[i] for i in kept] for line in lines]
    return ["| " + " | ".join(line) + " |" for line in shown]


def rate(row, milliseconds):
    """TB/s or TFLOP/s, the unit of the row."""
    return (row["bytes"] if row["unit"] == "TB/s" else row["flops"]) / milliseconds / 1e9


def summary(session):
    failed = sum(not each["passed"] for each in session.checks)
    timed = sum("milliseconds" in each for each in session.rows)
    verdict = f"{len(session.checks) - failed} of {len(session.checks)} checks pass" if session.checks else "no checks run"
    only = f", names with '{session.options.only}'" if session.options.only else ""
    selected = f" Selected: {session.options.groups}{only}."
    return (f"**{verdict}{f', {failed} failed or lost' if failed else ''}**; {timed} rows timed. "
            f"{session.elapsed() / 60:.1f} of {session.options.minutes:g} minutes used"
            f"{f'; {session.stopped}' if session.stopped else ''}.{selected}")


def checks(session):
    """Passed checks by group and target, with the largest error."""
    groups, targets = {}, []
    for each in session.checks:
        if each["name"].startswith("row "):
            continue
        target = each["target"] or "GPU"
        if target not in targets:
            targets.append(target)
        groups.setdefault(each["group"], {}).setdefault(target, []).append(each)

    def cell(found):
        if not found:
            return ""
        passed, errors = sum(each["passed"] for each in found), [each["worst"] for each in found if each["worst"] is not None]
        count = f"{passed} of {len(found)}" if passed == len(found) else f"**{passed} of {len(found)}**"
        return f"{count}, {max(errors):.2f}" if errors else count

    lines = [[group] + [cell(found.get(target)) for target in targets] for group, found in groups.items()]
    return ["", "## Checks", "", *table(["group", *targets], lines), "",
            "Passed checks, and the largest error as a part of the allowed one. A case passes if it is close to float64 and has "
            "equal bits in a second call, on another stream and as a CUDA graph."]


def best(each, names):
    """The least time of these contenders or peers, or None."""
    return min((time for name, time in each["milliseconds"].items() if name in names), default=None)


def rows(manifest, session, group, title, legend):
    """One line per row: the rate of each contender and peer."""
    found = [each for each in session.rows if each["item"]["group"] == group]
    if not found:
        return []
    names = list(dict.fromkeys(name for each in found for name in each.get("milliseconds", {}) if CALLS not in name))
    names.sort(key=lambda name: any(name in each["item"]["row"]["peers"] for each in found))
    lines = []
    for each in found:
        row, times = each["item"]["row"], each.get("milliseconds", {})
        if not times:
            lines.append([each["item"]["title"], LOST] + [""] * (len(names) + 4))
            continue
        ours, peer = best(each, manifest["targets"]), best(each, row["peers"])
        ceiling = session.ceilings.get("copy" if row["unit"] == "TB/s" else "GEMM")
        calls = next(((name, time) for name, time in times.items() if CALLS in name), None)
        errors = [error for error in each.get("errors", {}).values() if error is not None]
        lines.append([each["item"]["title"], row["unit"], *(f"{rate(row, times[name]):.3g}" if name in times else ""
                                                            for name in names),
                      f"{peer / ours:.2f}" if peer and ours else "", f"{rate(row, ours) / ceiling['rate']:.2f}" if ceiling else "",
                      f"{calls[1] / times[calls[0].replace(CALLS, '')]:.2f}" if calls else "",
                      f"{max(errors):.1e}" if errors else ""])
    columns = ["problem", "unit", *names, "ours / best peer", "of the ceiling", "calls / graph", "error"]
    return ["", f"## {title}", "", *table(columns, lines), *([""] + [legend] if legend else []), *notes(found)]


def notes(found):
    """Why contenders and peers are missing in rows, one line for each reason."""
    reasons = {}
    for each in found:
        for name, why in [*each.get("missing", {}).items(), *each.get("notes", {}).items()]:
            reasons.setdefault((name, why), []).append(each["item"]["title"])
    lines = [f"- {name}: {why} ({', '.join(titles[:3])}{' and others' if len(titles) > 3 else ''})"
             for (name, why), titles in sorted(reasons.items())]
    return [""] + lines if lines else []


def variants(session):
    """One line per contender of the rows that compare libraries."""
    found, lines = [each for each in session.rows if each["item"]["group"] == "variants"], []
    for each in found:
        row, times = each["item"]["row"], each.get("milliseconds", {})
        if not times:
            lines.append([each["item"]["title"], LOST, "", "", ""])
        for name, time in times.items():
            if CALLS not in name:
                lines.append([each["item"]["title"], name, f"{rate(row, time):.3g}", row["unit"],
                              f"{1 / each['ratios'][name]:.2f}"])
    if not lines:
        return []
    return ["", "## Variants side by side", "", *table(["problem", "variant", "rate", "unit", "speed / first"], lines), "",
            "The last column is the median over rounds of the speed relative to the first variant of the problem.",
            *notes(found)]


def counters(session):
    found = [(each["title"], kernel, values) for each in session.counters for kernel, values in each["kernels"]]
    if not found:
        return []
    names = list(dict.fromkeys(name for _, _, values in found for name in values))
    lines = [[title, kernel, *(values.get(name, "") for name in names)] for title, kernel, values in found]
    return ["", "## Profiler counters", "", *table(["problem", "kernel", *names], lines)]


def left_out(session):
    if not session.left_out:
        return ["", "Nothing was left out."]
    reasons = {}
    for what, why in session.left_out:
        reasons.setdefault(why, []).append(what)
    return ["", "## Left out", ""] + [f"- {why}: {'; '.join(what)}" for why, what in reasons.items()]


def markdown(header, manifest, session):
    failed = [each for each in session.checks if not each["passed"]]
    lines = ["# `./dev device`", "", heading(header, manifest), "", summary(session)]
    if failed:
        lines += ["", "## Failures", ""]
        lines += [f"- {each['target'] and each['target'] + ': '}{each['name']}: {each['words']}" for each in failed]
    lines += checks(session) if session.checks else []
    if session.ceilings:
        units = {"copy": "TB/s", "GEMM": "TFLOP/s"}
        lines += ["", "## Ceilings", "", *(f"- {name}: {each['rate']:.3g} {units[name]}, {each['words']}"
                                           for name, each in session.ceilings.items())]
    lines += rows(manifest, session, "rows", "Kernels", "Rates are medians over rounds, ours as replayed CUDA graphs. *ours / best peer* is "
                  "the speed of the fastest of ours over that of the fastest peer; *of the ceiling* its rate over that of the "
                  "copy (TB/s) or of the GEMM (TFLOP/s); *calls / graph* the time of calls over that of the graph. FLOPs under "
                  "a mask count visible pairs. *error* is the largest: of some rows of plain attention against float64, of "
                  "others the difference from the first peer, or of one target from the other.")
    lines += variants(session) + counters(session)
    lines += rows(manifest, session, "lengths", "Other lengths", "")
    lines += rows(manifest, session, "flex", "FlexAttention", "")
    lines += left_out(session)
    spent = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in session.spent.items() if seconds >= 0.5)
    return "\n".join(lines + (["", f"Time: {spent}."] if spent else [])) + "\n"


def rows_csv(session):
    """One line per row and contender."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "problem", "contender", "milliseconds", "rate", "unit", "time_over_first", "error"])
    for each in session.rows:
        for name, milliseconds in each.get("milliseconds", {}).items():
            row, error = each["item"]["row"], each["errors"].get(name)
            writer.writerow([each["item"]["group"], each["item"]["title"], name, f"{milliseconds:.5f}",
                             f"{rate(row, milliseconds):.5g}", row["unit"], f"{each['ratios'][name]:.4f}",
                             "" if error is None else f"{error:.2e}"])
    return text.getvalue()


def instructions_csv(session):
    """One line per instruction."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["group", "instruction", "worst", "allowed", "unit"])
    for group, name, worst, allowed, unit in session.instructions:
        writer.writerow([group, name, f"{worst:.3g}", f"{allowed:.3g}", unit])
    return text.getvalue()


def write(out, header, manifest, session):
    """Writes all files of the report; each is replaced at once, so that none is ever half written."""
    for name, text in (("device.md", markdown(header, manifest, session)), ("device.csv", rows_csv(session)),
                       ("instructions.csv", instructions_csv(session)), ("device.json", session.raw())):
        part = out / f"{name}.part"
        part.write_text(text)
        os.replace(part, out / name)
