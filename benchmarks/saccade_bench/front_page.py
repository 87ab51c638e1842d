"""Draws docs/images/attention-cpu.png, the plot of the README, from benchmarks/results: python -m saccade_bench.front_page.

PyTorch and ONNX Runtime are read from the CSV file of the peers, FlexAttention from the tables of masks.
"""

import csv
import pathlib
import re

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
PEERS, MASKS = "2026-11-21-cpu-peers.csv", "2026-11-21-masks.md"
MACHINE = "two cores of an AMD EPYC (Zen 4, AVX-512, BF16), 2 threads"
COLORS = {"Saccade": "#1f6f8b", "PyTorch": "#d9a05b", "ONNX Runtime": "#b5544a", "FlexAttention": "#7a9e5f",
          "FlexAttention with its mask": "#b9d3a5"}  # fmt: skip
NAMES = {"saccade": "Saccade", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
CASES = {
    "32x12x196x64 full": "ViT-Base\n32×12 heads, 196 tokens",
    "16x12x512x64 full": "encoder\n16×12 heads, 512 tokens",
    "1x12x1024x64 causal": "causal\n12 heads, 1,024 tokens",
    "1x32(8)x2048x128 causal": "causal, grouped queries\n32 heads on 8, 2,048 tokens",
    "256x3x49x32 full bias": "Swin window, bias\n256×3 heads, 49 tokens",
}


def read_peers(element):
    """GFLOP/s by case and contender."""
    with open(RESULTS / PEERS, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["type"] == element]
    return {case: {NAMES[row["contender"]]: float(row["rate"]) for row in rows
                   if row["case"] == f"{case} {element}" and row["contender"] in NAMES} for case in CASES}  # fmt: skip


def read_masks():
    """Milliseconds by mask and contender."""
    found = {}
    for line in (RESULTS / MASKS).read_text().splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 9 and cells[1] in ("f32", "bf16") and cells[5]:
            ours, flex, mask = float(cells[2]), float(cells[5]), float(cells[7])
            found[f"{cells[0]}, {cells[1]}"] = {"Saccade": ours, "FlexAttention": flex, "FlexAttention with its mask": flex + mask}
    assert found, "no rows of FlexAttention in " + MASKS
    return found


def draw(axes, groups, labels, title, unit):
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    height = 0.8 / len(names)
    for row, group in enumerate(groups.values()):
        for place, name in enumerate(n for n in names if n in group):
            bar = axes.barh(row - 0.4 + (place + 0.5) * height, group[name], height, color=COLORS[name])
            axes.bar_label(bar, [f"{group[name]:.3g}"], padding=2, fontsize=7)
    axes.set_yticks(range(len(groups)), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(unit, fontsize=8)
    axes.margins(x=0.1)
    axes.tick_params(axis="x", labelsize=8)
    axes.spines[["top", "right"]].set_visible(False)


def main():
    figure, panels = plt.subplots(1, 3, figsize=(15, 4.9), width_ratios=(1, 1, 1))
    for axes, element in zip(panels, ("f32", "bf16")):
        draw(axes, read_peers(element), CASES.values() if element == "f32" else [""] * len(CASES),
             f"attention, {element}", "GFLOP/s (longer is faster)")  # fmt: skip
    masks = read_masks()
    draw(panels[2], masks, [re.sub(r", (?=\w+$)", "\n", name) for name in masks], "masks, 8 heads of 64, 8,192 tokens",
         "ms (shorter is faster)")  # fmt: skip
    handles = [plt.Rectangle((0, 0), 1, 1, color=color) for color in COLORS.values()]
    figure.legend(handles, COLORS, loc="upper center", ncols=len(COLORS), fontsize=9, frameon=False)
    figure.text(0.5, 0.01, f"{MACHINE}. Saccade compiles once for all sizes; FlexAttention for each shape. ONNX Runtime was measured in f32 only.", ha="center", fontsize=8)
    figure.tight_layout(rect=(0, 0.03, 1, 0.93))
    figure.savefig(ROOT / "docs" / "images" / "attention-cpu.png", dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
