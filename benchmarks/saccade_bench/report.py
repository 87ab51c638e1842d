"""What a run found, as a table, as CSV, and as a plot."""

import csv
import dataclasses
import io
import os
import platform
import re
import statistics

from .cases import Case


def processor():
    """The processor's name and how many of it this process may use."""
    with open("/proc/cpuinfo") as file:
        text = file.read()
    name = re.search(r"^model name\s*: (.*)$", text, re.M)
    flags = set(re.search(r"^flags\s*: (.*)$", text, re.M)[1].split())
    levels = [("avx2", "AVX2"), ("avx512f", "AVX-512"), ("avx512_bf16", "AVX512_BF16")]
    have = ", ".join(label for flag, label in levels if flag in flags)
    family, model = (re.search(rf"^{key}\s*: (\d+)$", text, re.M)[1] for key in ("cpu family", "model"))
    count = len(os.sched_getaffinity(0))
    return f"{name[1] if name else platform.machine()} (family {family}, model {model}; {have}), {count} processors"


@dataclasses.dataclass
class Report:
    """Everything a run found; parts that were not asked for are empty."""

    ours: str
    versions: str
    threads: int
    processes: int = 1
    compilations: list = dataclasses.field(default_factory=list)  # (kind, seconds)
    summaries: list = dataclasses.field(default_factory=list)
    memory: list = dataclasses.field(default_factory=list)  # (case, bytes)
    compile_time: dict = dataclasses.field(default_factory=dict)  # seconds by stage
    compile_count: int = 0

    def markdown(self):
        parts = [f"{processor()}; {self.threads} threads. {self.versions}.\n"]
        if self.summaries:
            parts += [self.speed_table(), self.remarks()]
        if self.memory:
            parts.append(self.memory_table())
        if self.compile_time:
            stages = ", ".join(f"{stage} {seconds:.3f} s" for stage, seconds in self.compile_time.items())
            parts.append(f"Compile time of one attention in process, median of {self.compile_count}: {stages}.\n")
        return "\n".join(parts)

    def speed_table(self):
        names = list(self.summaries[0].rate)
        peers = list(self.summaries[0].ratio)
        header = ["case"] + [title for name in names for title in (f"{name} GFLOP/s", "of peak")]
        header += [f"{self.ours} / {peer} (min–max)" for peer in peers] + ["peak GFLOP/s", "read GB/s"]
        rows = []
        for each in self.summaries:
            row = [str(each.case)]
            for name in names:
                row += [f"{each.rate[name] / 1e9:.1f}", f"{each.fraction[name]:.2f}"]
            row += ["{:.2f} ({:.2f}–{:.2f})".format(*each.ratio[peer]) for peer in peers]
            rows.append(row + [f"{each.peak / 1e9:.0f}", f"{each.bandwidth / 1e9:.0f}"])
        return table(header, rows)

    def remarks(self):
        rounds = self.summaries[0].rounds
        kinds = ", ".join(str(kind) for kind, _ in self.compilations)
        lines = [
            f"{len(self.compilations)} compilations with sizes known at run time only ({kinds}) serve "
            f"{len(self.summaries)} cases. FLOPs are 4·B·H·S²·D, half of it under a causal mask. Medians of "
            f"{rounds} rounds in {self.processes} set{'s' if self.processes > 1 else ''} of processes; peak (fused "
            "multiply-adds in registers) and read bandwidth are measured in the same rounds."
        ]
        for name in self.summaries[0].rate:
            worst = max(self.summaries, key=lambda each: each.errors[name])
            lines.append(f"Largest error of {name} against float64: {worst.errors[name]:.1e} ({worst.case}).")
        for peer in self.summaries[0].ratio:
            mean = statistics.geometric_mean(each.ratio[peer][0] for each in self.summaries)
            lines.append(f"Geometric mean of {self.ours} / {peer}: {mean:.2f}.")
        busy = [each for each in self.summaries if min(each.processors.values()) < 0.9 * self.threads]
        if busy:
            used = ", ".join(
                f"{each.case}: " + " ".join(f"{name} {value:.1f}" for name, value in each.processors.items())
                for each in busy)
            lines.append(f"**Not all {self.threads} threads were running** (processors in use by median: {used}): the "
                         "machine was busy, or the work did not fill it.")
        return "\n".join(lines) + "\n"

    def memory_table(self):
        rows = [[str(case), f"{size / 2**20:.1f}"] for case, size in self.memory]
        return table(["case", "MiB beyond inputs and output"], rows)

    def csv(self):
        names, peers = list(self.summaries[0].rate), list(self.summaries[0].ratio)
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        header = [field.name for field in dataclasses.fields(Case)] + ["rounds", "peak_gflops", "read_gbs"]
        header += [f"{name}_{what}" for name in names for what in ("gflops", "fraction", "processors", "error")]
        header += [f"ratio_{peer}_{what}" for peer in peers for what in ("median", "min", "max")]
        writer.writerow(header)
        for each in self.summaries:
            row = [*dataclasses.astuple(each.case), each.rounds, f"{each.peak / 1e9:.2f}", f"{each.bandwidth / 1e9:.2f}"]
            for name in names:
                row += [f"{each.rate[name] / 1e9:.2f}", f"{each.fraction[name]:.4f}", f"{each.processors[name]:.2f}",
                        f"{each.errors[name]:.2e}"]
            writer.writerow(row + [f"{value:.4f}" for peer in peers for value in each.ratio[peer]])
        return text.getvalue()

    def plot(self, path):
        import matplotlib

        matplotlib.use("Agg")
        import matplotlib.pyplot as plt

        names = list(self.summaries[0].rate)
        figure, axes = plt.subplots(figsize=(9, 1.2 + 0.8 * len(self.summaries)))
        height = 0.8 / len(names)
        for number, name in enumerate(names):
            places = [row + number * height for row in range(len(self.summaries))]
            bars = axes.barh(places, [each.rate[name] / 1e9 for each in self.summaries], height, label=name,
                             color="#1f6f8b" if name == self.ours else "#d9a05b")
            axes.bar_label(bars, [f"{each.rate[name] / 1e9:.0f}" for each in self.summaries], padding=3, fontsize=8)
        for row, each in enumerate(self.summaries):
            ends = (row - height / 2, row + (len(names) - 0.5) * height)
            label = "peak measured in the same rounds" if row == 0 else None
            axes.plot([each.peak / 1e9] * 2, ends, color="black", linewidth=1.5, label=label)
        axes.set_yticks([row + (len(names) - 1) * height / 2 for row in range(len(self.summaries))],
                        [str(each.case) for each in self.summaries])
        axes.invert_yaxis()
        axes.set_xlabel(f"GFLOP/s, {self.threads} threads")
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncol=len(names) + 1, frameon=False)
        figure.savefig(path, dpi=150, bbox_inches="tight")
        plt.close(figure)


def table(header, rows):
    line = lambda cells: "| " + " | ".join(cells) + " |"
    ruler = "|" + "|".join("---" if column == 0 else "---:" for column in range(len(header))) + "|"
    return "\n".join([line(header), ruler, *map(line, rows)]) + "\n"
