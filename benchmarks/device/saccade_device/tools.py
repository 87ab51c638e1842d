"""Items that run under a tool: profiler counters by ncu, and races in shared memory by compute-sanitizer."""

import csv
import re

# Names of ncu's sections, of which the report shows those that are present.
SHOWN = {"Duration": "time", "Compute (SM) Throughput": "compute", "Memory Throughput": "memory",
         "DRAM Throughput": "DRAM", "Registers Per Thread": "registers", "Achieved Occupancy": "occupancy",
         "Executed Ipc Active": "instructions a cycle", "Mem Pipes Busy": "memory pipes"}


def read_counters(text):
    """[(kernel, {name: "value unit"})] of the CSV output of ncu, in the order of the launches."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    kernels = {}
    for line in csv.DictReader(lines[start:]):
        counters = kernels.setdefault((line["ID"], line["Kernel Name"]), {})
        if line.get("Metric Name") in SHOWN:
            name, unit = SHOWN[line["Metric Name"]], line.get("Metric Unit") or ""
            # Two metrics have this name: a share of the peak, and bytes a second.
            counters.setdefault(name, f"{line['Metric Value']} {unit}".strip())
    return [(name, counters) for (_, name), counters in kernels.items()]


def run(session, item):
    """Runs the item under its tool; adds counters, or a check. A tool that gives nothing is not started again."""
    if item["tool"] in session.useless_tools:
        session.left_out.append((item["title"], f"{item['tool']} gave nothing before"))
        return
    log = session.scratch / "tool.log"
    if log.exists():
        log.unlink()
    command = [word.replace("{log}", str(log)) for word in item["command"]]
    failures = []

    def handle(event):
        if "check" in event:
            failures.append(event["words"])
        if "row" in event and event["row"].get("failure"):
            failures.append(event["row"]["failure"])

    end = session.runner.run(item, handle, item["limit"], session.end, tool=command)
    text = log.read_text(errors="replace") if log.exists() else ""
    with open(session.options.out / "tools.log", "a") as kept:
        kept.write(f"# {item['title']}\n{text}\n")
    said = (text.strip().splitlines() or ["no output"])[-1].strip("= ")[:200]
    if item["tool"] == "ncu":
        counters = read_counters(text)
        if counters:
            session.counters.append({"title": item["title"], "kernels": counters})
            session.log(f"     counters, {item['title']}: {len(counters)} kernels")
        else:
            session.left_out.append((f"counters, {item['title']}", f"{end.words or 'ncu'}: {said}"))
            if end.kind == "done":
                session.useless_tools.add(item["tool"])
        return
    summary = re.search(r"RACECHECK SUMMARY: (\d+) hazards? displayed.*", text)
    if summary and not failures and end.kind == "done":
        session.note(item, item["title"], summary[1] == "0", None, summary[0])
    elif end.kind in ("time", "limit"):
        session.left_out.append((item["title"], end.words))
    else:
        session.left_out.append((item["title"], "; ".join(filter(None, [*failures, end.words, said]))))
        if end.kind == "done" and not failures:
            session.useless_tools.add(item["tool"])
