"""Draws the pictures of masks in the documentation: python docs/images/draw.py. The result is the same on every run.

A square is a pair of a query (down) and a key (right). Tiles are classified here by evaluating every pair, which is
affordable for 32 tokens; the compiler classifies them without.
"""

import pathlib

import matplotlib
import numpy as np

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

TOKENS, TILE = 32, 8
FOLDER = pathlib.Path(__file__).parent
COLORS = {"empty": "#f2f2f2", "partial": "#f0c987", "full": "#8fc1cf"}
VISIBLE = "#1f6f8b"
i, j = np.mgrid[:TOKENS, :TOKENS]
document = np.searchsorted([11, 18], np.arange(TOKENS), side="right")  # three documents of 11, 7 and 14 tokens
MASKS = {
    "causal": j <= i,
    "window of 8, causal": (j <= i) & (i - j < 8),
    "three documents, causal": (document[i] == document[j]) & (j <= i),
    "longformer, 2 global tokens": (abs(i - j) <= 4) | (i < 2) | (j < 2),
}


def classify(tile):
    return "full" if tile.all() else "partial" if tile.any() else "empty"


def draw(axes, name, mask):
    for row in range(0, TOKENS, TILE):
        for column in range(0, TOKENS, TILE):
            kind = classify(mask[row : row + TILE, column : column + TILE])
            axes.add_patch(Rectangle((column, row), TILE, TILE, facecolor=COLORS[kind], edgecolor="white", linewidth=2))
    for row, column in np.argwhere(mask):
        axes.add_patch(Rectangle((column + 0.22, row + 0.22), 0.56, 0.56, facecolor=VISIBLE, linewidth=0))
    axes.set_xlim(0, TOKENS)
    axes.set_ylim(TOKENS, 0)
    axes.set_aspect("equal")
    axes.set_xticks(range(0, TOKENS + 1, TILE))
    axes.set_yticks(range(0, TOKENS + 1, TILE))
    axes.tick_params(length=0, labelsize=8)
    axes.spines[:].set_visible(False)
    axes.set_title(name, fontsize=10)
    axes.set_xlabel("key", fontsize=9)
    axes.set_ylabel("query", fontsize=9)


def save(file, names):
    figure, panels = plt.subplots(1, len(names), figsize=(3.1 * len(names), 3.9), squeeze=False)
    for axes, name in zip(panels[0], names):
        draw(axes, name, MASKS[name])
    legend = [Patch(color=VISIBLE, label="the query attends to the key"),
              Patch(color=COLORS["full"], label="full tile: computed without mask"),
              Patch(color=COLORS["partial"], label="partial tile: mask evaluated"),
              Patch(color=COLORS["empty"], label="empty tile: skipped")]  # fmt: skip
    figure.legend(handles=legend, loc="lower center", ncols=2 if len(names) < 4 else 4, fontsize=9, frameon=False)
    figure.tight_layout(rect=(0, 0.13 if len(names) < 4 else 0.07, 1, 1))
    figure.savefig(FOLDER / file, dpi=110, metadata={"Software": None})
    plt.close(figure)


save("mask-tiles.png", list(MASKS))
save("documents.png", ["causal", "three documents, causal"])
