"""What a run does, in the order of its value: groups of items, each of which a worker runs."""

import shutil

from . import instructions

# Groups and their minutes of a run of ten. What a group does not use is left to the later ones; what it has no time for
# is done before "lengths" if time is left.
GROUPS = [("checks", 1.5), ("rows", 4.0), ("variants", 2.0), ("counters", 2.0), ("lengths", 0.0), ("flex", 0.5)]
NAMES = [name for name, _ in GROUPS]
SECTIONS = ("SpeedOfLight", "LaunchStats", "Occupancy", "ComputeWorkloadAnalysis", "MemoryWorkloadAnalysis")


def usable_targets(manifest, capability):
    """([targets that run on this GPU], {target: why it does not})."""
    usable, reasons = [], {}
    for target in manifest["targets"]:
        number = target[len("sm_"):].rstrip("a")
        needed = f"{number[:-1]}.{number[-1]}"
        if target.endswith("a") and needed != capability:
            reasons[target] = f"this GPU has compute capability {capability}, not {needed}"
        elif tuple(map(int, needed.split("."))) > tuple(map(int, capability.split("."))):
            reasons[target] = f"this GPU has compute capability {capability}, below {needed}"
        else:
            usable.append(target)
    return usable, reasons


class Plan:
    """The items of each group, and those that are not planned: [(what, why)]."""

    def __init__(self, manifest, targets, torch, options):
        self.manifest, self.targets, self.torch, self.options = manifest, targets, torch, options
        self.left_out = []
        chosen = options.groups.split(",")
        self.items = {name: getattr(self, name)() if name in chosen else [] for name in NAMES}

    def case_items(self, do, entries, group, limit, **more):
        """One item for each target that has libraries of these cases."""
        for target in self.targets:
            found = [{**entry, "library": self.manifest["libraries"][entry["kind"]][target]} for entry in entries
                     if target in self.manifest["libraries"][entry["kind"]]]
            if found:
                yield {"do": do, "title": f"{group}, {target}", "group": group, "target": target, "cases": found,
                       "limit": limit, **more}

    def groups_of_checks(self):
        groups = {}
        for entry in self.manifest["checks"]:
            if self.options.only in entry["name"]:
                groups.setdefault(entry["group"], []).append(entry)
        return groups

    def checks(self):
        limit = self.options.limit
        items = [item for group, entries in self.groups_of_checks().items()
                 for item in self.case_items("checks", entries, group, limit)]
        return items + [{"do": "instructions", "title": f"instructions, {name}", "name": f"instructions, {name}",
                         "group": "instructions", "target": "", "instructions": name, "limit": limit}
                        for name in instructions.groups() if self.options.only in f"instructions, {name}"]

    def row_items(self, group, limit, once=False):
        for row in self.manifest["rows"]:
            if row["group"] != group or self.options.only not in row["name"]:
                continue
            contenders = [each for each in row["contenders"]
                          if each["target"] in self.targets and each["target"] in self.manifest["libraries"][each["kind"]]]
            peers = [name for name in row["peers"] if name in self.options.peers.split(",")]
            if contenders:
                uses_torch = bool(self.torch and peers and not once)
                yield {"do": "row", "title": row["name"], "group": group, "row": {**row, "contenders": contenders},
                       "libraries": self.manifest["libraries"], "peers": peers if uses_torch else [], "once": once,
                       "rounds": self.options.rounds, "seconds": self.options.seconds, "torch": uses_torch,
                       "limit": limit}

    def rows(self):
        ceilings = {"do": "ceilings", "title": "ceilings", "group": "rows", "copy_bytes": self.manifest["copy_bytes"],
                    "gemm": self.manifest["gemm"], "torch": bool(self.torch), "limit": 2 * self.options.limit}
        if not self.torch:
            self.left_out.append(("the ceiling of GEMM and PyTorch's kernels", "no PyTorch"))
        items = list(self.row_items("rows", 2 * self.options.limit))
        return [ceilings, *items] if items else []

    def variants(self):
        return list(self.row_items("variants", 2 * self.options.limit))

    def lengths(self):
        return list(self.row_items("lengths", 2 * self.options.limit))

    def flex(self):
        if not self.torch:
            self.left_out.append(("FlexAttention", "no PyTorch"))
            return []
        return list(self.row_items("flex", 6 * self.options.limit))  # torch.compile takes long

    def counters(self):
        """Profiler counters of rows, and racecheck of the first case of each group of checks, in turn."""
        tools = {name: shutil.which(name) for name in ("ncu", "compute-sanitizer")}
        counted, checked = [], []
        if tools["ncu"]:
            for item in self.row_items("rows", 3 * self.options.limit, once=True):
                for each in item["row"]["contenders"]:
                    counted.append({**item, "title": f"{item['title']}, {each['name']}", "tool": "ncu",
                                    "row": {**item["row"], "contenders": [each]},
                                    "command": [tools["ncu"], "--csv", "--log-file", "{log}",
                                                *(word for name in SECTIONS for word in ("--section", name))]})
        else:
            self.left_out.append(("profiler counters", "ncu is not on the PATH"))
        if tools["compute-sanitizer"]:
            for group, entries in self.groups_of_checks().items():
                for item in self.case_items("calls", entries[:1], group, 3 * self.options.limit):
                    checked.append({**item, "title": f"racecheck, {item['title']}", "group": "racecheck",
                                    "tool": "racecheck",
                                    "command": [tools["compute-sanitizer"], "--tool", "racecheck", "--log-file", "{log}"]})
        else:
            self.left_out.append(("racecheck", "compute-sanitizer is not on the PATH"))
        both = [item for pair in zip(counted, checked) for item in pair]
        return both + counted[len(checked):] + checked[len(counted):]
