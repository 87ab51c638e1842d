"""Writes the results of a run as Markdown tables and CSV."""

import csv
import dataclasses
import datetime
import io
import os
import pathlib
import platform
import re
import statistics

from . import thresholds
from .rows import Table


def processor():
    """Name, SIMD extensions and number of usable processors of this machine."""
    with open("/proc/cpuinfo") as file:
        text = file.read()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = set(re.search(r"^flags\s*: (.*)$", text, re.M)[1].split())
    extensions = [("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_bf16", "AVX512_BF16"),
                  ("amx_bf16", "AMX")]
    have = ", ".join(label for flag, label in extensions if flag in flags)
    family, model = (re.search(rf"^{key}\s*: (\d+)$", text, re.M)[1] for key in ("cpu family", "model"))
    count = len(os.sched_getaffinity(0))
    return f"{name[1] if name else platform.machine()} (family {family}, model {model}; {have}), {count} processors"


def result_stem(name, options):
    """The path of today's result files without a suffix; creates the folder. `options` has --save and --out."""
    folder = pathlib.Path(__file__).resolve().parent.parent / "results" if options.save else options.out
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{datetime.date.today().isoformat()}-{name}"


def publish(text, name, options):
    """Prints a report and writes it to its file."""
    print(text, end="")
    file = result_stem(name, options).with_suffix(".md")
    file.write_text(text)
    print(f"\nresults: {os.path.relpath(file)}")


@dataclasses.dataclass
class Report:
    """All results of a run; parts that were not requested are empty."""

    ours: str
    versions: str
    threads: int
    target: str
    table: Table
    limits: str = ""  # a sentence on the instructions of peers
    processes: int = 1
    compilations: list = dataclasses.field(default_factory=list)  # (kind, seconds)
    summaries: list = dataclasses.field(default_factory=list)
    memory: list = dataclasses.field(default_factory=list)  # (case, bytes)
    compile_time: dict = dataclasses.field(default_factory=dict)  # seconds by stage
    compile_time_before: dict = dataclasses.field(default_factory=dict)  # the same of the build of --before
    compile_count: int = 0

    def markdown(self):
        target = "" if self.target == "host" else f" Code and peak are for the CPU target {self.target}."
        parts = [f"{processor()}; {self.threads} threads. {self.versions}.{target}{self.limits}\n"]
        if self.summaries:
            for type in dict.fromkeys(each.row.case.type for each in self.summaries):
                parts.append(self.speed_table([each for each in self.summaries if each.row.case.type == type]))
            parts += [self.threshold_table(), self.remarks()]
        if self.memory:
            parts.append(self.memory_table())
        if self.compile_time:
            stages = ", ".join(self.compile_stage(*each) for each in self.compile_time.items())
            parts.append(f"Compile time of one attention in process, median of {self.compile_count}: {stages}.\n")
        return "\n".join(parts)

    def compile_stage(self, stage, seconds):
        before = self.compile_time_before.get(stage)
        return f"{stage} {seconds:.3f} s" + (f" ({seconds / before:.2f}× of {before:.3f} s before)" if before else "")

    def contenders(self, summaries):
        names = dict.fromkeys(name for each in summaries for name in each.rate)
        return [name for name in names if name != self.ours]

    def speed_table(self, summaries):
        others = self.contenders(summaries)
        header = ["case", self.ours, "of peak", *others, "best peer", "bound", "peak GFLOP/s", "read GB/s"]
        rows = []
        for each in summaries:
            unit = unit_of(each)
            row = [str(each.row.case), f"{each.rate[self.ours] / 1e9:.1f} {unit}", f"{each.fraction[self.ours]:.2f}"]
            row += [f"{each.ratio[name][0]:.2f}× of {each.rate[name] / 1e9:.3g}" if name in each.ratio else ""
                    for name in others]
            best = each.best_peer
            row.append(f"{each.ratio[best][0]:.2f}× {best}" if best else "")
            rows.append([*row, "read" if each.row.case.is_decode else "peak", f"{each.peak / 1e9:.0f}",
                         f"{each.bandwidth / 1e9:.0f}"])
        return table(header, rows)

    def threshold_table(self):
        """All thresholds with their verdicts; empty if no row has one."""
        lines, checks = [], []
        for each in self.summaries:
            mine = thresholds.of_row(each, self.summaries, self.table, self.ours)
            checks += mine
            if mine:
                lines.append([str(each.row.case), "; ".join(map(str, mine))])
        means = thresholds.of_means(self.summaries, self.table)
        lines += [["all", str(check)] for check in means]
        if not lines:
            return ""
        met = [check.is_met for check in checks + means]
        count = f"{met.count(True)} thresholds met, {met.count(False)} missed, {met.count(None)} not measured.\n"
        return table(["case", "thresholds"], lines) + "\n" + count

    def remarks(self):
        rounds = len(self.summaries[0].found.rounds)
        kinds = ", ".join(str(kind) for kind, _ in self.compilations)
        sets = f"{self.processes} set{'s' if self.processes > 1 else ''} of processes"
        lines = [
            f"{len(self.compilations)} compilations with dynamic sizes ({kinds}) serve {len(self.summaries)} rows. FLOPs "
            "are those of the two matmuls: half under a causal mask, those of visible keys under a window. Decode is in "
            "GB/s of keys and values. \"2.00× of 50\" is the speedup over a peer that reaches 50 GFLOP/s or GB/s. "
            f" Medians of {rounds} rounds in {sets}; "
            "peak (FMA in registers) and read bandwidth are measured in the same rounds."
        ]
        for name in [self.ours, *self.contenders(self.summaries)]:
            mine = [each for each in self.summaries if name in each.found.errors]
            for type in dict.fromkeys(each.row.case.type for each in mine):
                error, case = max((each.found.errors[name], str(each.row.case)) for each in mine
                                  if each.row.case.type == type)
                lines.append(f"Largest error of {name} against float64 in {type}: {error:.1e} ({case}).")
        lines += self.mean_lines() + self.note_lines() + self.failure_lines()
        busy = [each for each in self.summaries if min(each.processors.values()) < 0.9 * self.threads]
        if busy:
            used = ", ".join(
                f"{each.row.case}: " + " ".join(f"{name} {value:.1f}" for name, value in each.processors.items())
                for each in busy)
            lines.append(f"**Not all {self.threads} threads were running** (median of processors in use: {used}): the "
                         "machine was busy, or the problem was too small.")
        return "\n\n".join(lines) + "\n"

    def mean_lines(self):
        lines = []
        for name in self.contenders(self.summaries):
            for type in dict.fromkeys(each.row.case.type for each in self.summaries):
                ratios = [each.ratio[name][0] for each in self.summaries
                          if name in each.ratio and each.row.case.type == type and each.row.group in ("prefill", "own")]
                if ratios:
                    lines.append(f"Geometric mean of {self.ours} / {name} over {len(ratios)} rows in {type}: "
                                 f"{statistics.geometric_mean(ratios):.2f}.")
        return lines

    def note_lines(self):
        """One-time work of contenders, which is not timed."""
        seconds = {}
        for each in self.summaries:
            for name, notes in each.found.notes.items():
                for what, value in notes.items():
                    seconds.setdefault((name, what), []).append(value)
        return [f"Not timed: {what} of {name}, {min(values):.2g} to {max(values):.2g} s per case."
                for (name, what), values in seconds.items()]

    def failure_lines(self):
        """Contenders without a result for a case, with the reason."""
        cases = {}
        for each in self.summaries:
            for failure in each.found.failures.items():
                cases.setdefault(failure, []).append(str(each.row.case))
        return [f"No result of {name} for {', '.join(failed)}: {reason}" for (name, reason), failed in cases.items()]

    def memory_table(self):
        rows = [[str(case), f"{size / 2**20:.1f}"] for case, size in self.memory]
        return table(["case", "MiB beyond inputs and output"], rows)

    def csv(self):
        """One line per row and contender."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["case", "type", "group", "contender", "rate", "unit", "fraction_of_peak", "processors",
                         "error", "ours_to_it", "ours_to_it_min", "ours_to_it_max", "rounds", "peak_gflops", "read_gbs",
                         "thresholds"])
        for each in self.summaries:
            case = each.row.case
            checks = "; ".join(map(str, thresholds.of_row(each, self.summaries, self.table, self.ours))).replace("*", "")
            for name in each.rate:
                count = sum(name in one.rate for one in each.found.rounds)
                ratio = [f"{value:.4f}" for value in each.ratio[name]] if name in each.ratio else [""] * 3
                writer.writerow([case, case.type, each.row.group, name, f"{each.rate[name] / 1e9:.2f}", unit_of(each),
                                 f"{each.fraction[name]:.4f}", f"{each.processors[name]:.2f}",
                                 f"{each.found.errors[name]:.2e}", *ratio, count, f"{each.peak / 1e9:.2f}",
                                 f"{each.bandwidth / 1e9:.2f}", checks if name == self.ours else ""])
        return text.getvalue()


def unit_of(summary):
    return "GB/s" if summary.row.case.is_decode else "GFLOP/s"


def table(header, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    ruler = "|" + "|".join("---" if column == 0 else "---:" for column in range(len(header))) + "|"
    return "\n".join([line(header), ruler, *map(line, rows)]) + "\n"
