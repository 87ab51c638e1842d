"""Runs a plan within a time, and keeps what it found for the report."""

import collections
import json
import time

from . import plan, tools
from .runner import Runner

LOSSES = 4  # a target that lost this number of items is not run again
# Maximum relative errors of rows: results are rounded to the type; a gradient is a longer sum.
ALLOWED = {"f16": 2e-3, "bf16": 1e-2, "f32": 2e-5}


class Session:
    """`checks`: [{group, target, name, passed, worst, words}]; `rows`: [{item, ...results}] in the order of the run."""

    def __init__(self, script, scratch, options, write, log):
        self.runner, self.scratch = Runner(script, scratch, options.out / "workers.log", options.driver), scratch
        self.options, self.write, self.log = options, write, log
        if (options.out / "tools.log").exists():  # of an earlier run
            (options.out / "tools.log").unlink()
        self.start = time.monotonic()
        self.end = self.start + 60 * options.minutes
        self.checks, self.rows, self.ceilings, self.instructions, self.counters = [], [], {}, [], []
        self.left_out, self.spent, self.stopped = [], {}, ""
        self.losses, self.lost_libraries = collections.Counter(), set()
        self.useless_tools = set()

    def elapsed(self):
        return time.monotonic() - self.start

    def probe(self, do, torch=False):
        """What a worker reports of this machine: ({...}, End)."""
        found = {}
        end = self.runner.run({"do": do, "torch": torch}, lambda event: found.update(event.get("info", {})),
                              3 * self.options.limit, time.monotonic() + 3 * self.options.limit + 1)
        return found, end

    def run(self, made):
        """Runs the plan: its groups in order, each until its share of the time ends."""
        self.left_out += made.left_out
        queues = {name: collections.deque(items) for name, items in made.items.items()}
        try:
            self.run_groups(queues)
        except KeyboardInterrupt:
            self.stopped = f"stopped after {self.elapsed():.0f} s"
        why = "stopped before" if self.stopped else "no time left"
        self.left_out += [(item["title"], why) for name in plan.NAMES for item in queues[name]]

    def run_groups(self, queues):
        share, until = self.options.minutes * 60 / sum(minutes for _, minutes in plan.GROUPS), self.start
        for name, minutes in plan.GROUPS:
            if name == "lengths":  # what earlier groups had no time for comes first
                for earlier in plan.NAMES[:plan.NAMES.index(name)]:
                    self.run_group(queues, earlier, until)
            until += minutes * share
            self.run_group(queues, name, until)
        for name in plan.NAMES:
            self.run_group(queues, name, self.end)

    def run_group(self, queues, name, until):
        begin = time.monotonic()
        while queues[name] and time.monotonic() < until:
            item = queues[name][0]
            if item.get("target") and self.losses[item["target"]] >= LOSSES:
                self.left_out.append((item["title"], f"{item['target']} was lost {LOSSES} times"))
                queues[name].popleft()
                continue
            later = queues[name][1] if len(queues[name]) > 1 else None
            again = self.run_item(item, bool(later.get("torch")) if later else None)
            queues[name].popleft()
            if again:
                queues[name].appendleft(again)
            self.write()
        self.spent[name] = self.spent.get(name, 0) + time.monotonic() - begin

    def run_item(self, item, next_torch):
        """Runs an item; the rest of it, to be run in another process, if it was lost."""
        if "tool" in item:
            return tools.run(self, item)
        return self.run_row(item, next_torch) if item["do"] == "row" else self.run_checks(item, next_torch)

    # --- checks -------------------------------------------------------------------------------------------------------

    def note(self, item, name, passed, worst, words):
        self.checks.append({"group": item["group"], "target": item.get("target", ""), "name": name, "passed": passed,
                            "worst": worst, "words": words})
        target = f"{item['target']}: " if item.get("target") else ""
        self.log(f"{'ok  ' if passed else 'FAIL'} {target}{name}: {words}")

    def run_checks(self, item, next_torch):
        finished = []

        def handle(event):
            if "check" in event:
                finished.append(event["check"])
                self.note(item, event["check"], event["passed"], event["worst"], event["words"])
            elif "instruction" in event:
                self.instructions.append(event["instruction"])
            elif "ceiling" in event:
                self.ceilings[event["ceiling"]] = event
                self.log(f"     ceiling, {event['ceiling']}: {event['rate']:.3g} ({event['words']})")

        end = self.runner.run(item, handle, item["limit"], self.end, next_torch=next_torch)
        if end.kind == "done":
            return None
        rest = [each for each in item.get("cases", []) if each["name"] not in finished]
        if end.kind == "time":
            self.left_out.append((item["title"], f"{end.words}, in {end.at or 'its start'}"))
            return None
        self.losses[item.get("target")] += 1
        self.note(item, end.at or item["title"], False, None, end.words)
        rest = [each for each in rest if each["name"] != end.at]
        return {**item, "cases": rest} if rest and end.at else None

    # --- rows ---------------------------------------------------------------------------------------------------------

    def run_row(self, item, next_torch):
        contenders = []
        for each in item["row"]["contenders"]:
            if self.losses[each["target"]] >= LOSSES:
                item.setdefault("lost", {})[each["name"]] = f"not run: {each['target']} was lost {LOSSES} times"
            elif (each["kind"], each["target"]) in self.lost_libraries:
                item.setdefault("lost", {})[each["name"]] = "not run: its library was lost in an earlier row"
            else:
                contenders.append(each)
        item["row"] = {**item["row"], "contenders": contenders}
        if not contenders:
            self.left_out.append((item["title"], "its libraries were lost in earlier rows"))
            return None
        found = {}
        end = self.runner.run(item, lambda event: found.update(event.get("row", {})), item["limit"], self.end,
                              next_torch=next_torch)
        if end.kind == "time":
            self.left_out.append((item["title"], f"{end.words}, in {end.at or 'its start'}"))
            return None
        if end.kind == "lost" or end.kind == "limit":
            return self.lose(item, end)
        result = {"item": item, **found}
        result.setdefault("missing", {}).update(item.get("lost", {}))
        self.rows.append(result)
        self.judge(item, result)
        return None

    def lose(self, item, end):
        """Notes a lost row; the row without the contender or the peers that were running, to be run again."""
        self.note(item, f"row {item['title']}, {end.at or 'start'}", False, None, end.words)
        running = [each for each in item["row"]["contenders"] if each["name"] == end.at.replace(" by calls", "")]
        rest = [each for each in item["row"]["contenders"] if each not in running]
        lost = {**item.get("lost", {}), end.at or "start": end.words}
        again = {**item, "lost": lost, "row": {**item["row"], "contenders": rest}}
        if running:
            self.losses[running[0]["target"]] += 1
            self.lost_libraries.add((running[0]["kind"], running[0]["target"]))
            if rest:
                return again
        elif item["peers"]:
            return {**again, "peers": [], "torch": False}
        self.rows.append({"item": item, "failure": f"{end.words}, in {end.at or 'its start'}", "missing": lost})
        return None

    def judge(self, item, result):
        """Logs a row, and notes its errors as checks."""
        row = item["row"]
        if "failure" in result:
            self.note(item, f"row {item['title']}", False, None, result["failure"])
        dtype = row["tensors"][row["contenders"][0]["inputs"][0]]["dtype"]
        allowed = ALLOWED[dtype] * (3 if (row.get("peer") or {}).get("gradient") else 1)
        for name, error in result.get("errors", {}).items():
            if error is not None and not error <= allowed:
                self.note(item, f"row {item['title']}, {name}", False, error / allowed,
                          f"error {error:.1e} of {allowed:.0e}")
        work = row["flops"] if row["unit"] == "TFLOP/s" else row["bytes"]
        shown = ", ".join(f"{name} {work / time / 1e9:.3g}" for name, time in result.get("milliseconds", {}).items())
        self.log(f"     {item['title']}: {row['unit']} {shown or result.get('failure', 'nothing')}")

    def raw(self):
        """Everything as JSON, for other programs."""
        rows = [{"group": each["item"]["group"], "name": each["item"]["title"], "unit": each["item"]["row"]["unit"],
                 "flops": each["item"]["row"]["flops"], "bytes": each["item"]["row"]["bytes"],
                 **{key: value for key, value in each.items() if key != "item"}} for each in self.rows]
        return json.dumps({"checks": self.checks, "ceilings": self.ceilings, "rows": rows, "counters": self.counters,
                           "left_out": self.left_out, "seconds": self.spent, "stopped": self.stopped}, indent=1)
