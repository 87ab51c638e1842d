"""Plots of a run: the fraction of the measured peak that each contender reached."""

OURS_COLOR, HANDWRITTEN_COLOR = "#1f6f8b", "#444444"
PEER_COLORS = ["#d9a05b", "#b5544a", "#7a9e5f", "#8a6fa8", "#c98fa9", "#9b8b6e"]
HIDDEN = ("base",)  # Saccade on another case


def plot_shares(shares, title, path):
    """A group of bars for each label; `shares` has (label, contender, fraction of peak, bar label)."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    labels = list(dict.fromkeys(label for label, *_ in shares))
    names = list(dict.fromkeys(name for _, name, *_ in shares))
    colors = dict(zip(names, [OURS_COLOR, *PEER_COLORS]))
    height = 0.85 / len(names)
    figure, axes = plt.subplots(figsize=(8, 1.5 + 0.25 * len(names) * len(labels)))
    for number, name in enumerate(names):
        mine = [(labels.index(label) + number * height, share, text) for label, by, share, text in shares if by == name]
        drawn = axes.barh([place for place, *_ in mine], [share for _, share, _ in mine], height, label=name,
                          color=colors[name])  # fmt: skip
        axes.bar_label(drawn, [text for *_, text in mine], padding=2, fontsize=6)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks([row + 0.42 for row in range(len(labels))], labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel(title, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=7, loc="lower right")
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def plot(summaries, ours, threads, path):
    """A panel for each type, a group of bars for each row; 1 is the measured peak, in decode the read bandwidth."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    types = list(dict.fromkeys(each.row.case.type for each in summaries))
    names = [name for name in dict.fromkeys(name for each in summaries for name in each.rate) if name not in HIDDEN]
    peers = iter(PEER_COLORS * 2)
    fixed = {ours: OURS_COLOR, "handwritten": HANDWRITTEN_COLOR}
    colors = {name: fixed.get(name) or next(peers) for name in names}
    max_rows = max(sum(each.row.case.type == type for each in summaries) for type in types)
    figure, panels = plt.subplots(1, len(types), figsize=(1 + 7 * len(types), 1.5 + 0.16 * (len(names) + 1) * max_rows),
                                  squeeze=False)
    for axes, type in zip(panels[0], types):
        mine = [each for each in summaries if each.row.case.type == type]
        height = 0.85 / len(names)
        for number, name in enumerate(names):
            rows = [(row, each) for row, each in enumerate(mine) if name in each.rate]
            places = [row + number * height for row, _ in rows]
            drawn = axes.barh(places, [each.fraction[name] for _, each in rows], height, label=name, color=colors[name])
            axes.bar_label(drawn, [f"{each.rate[name] / 1e9:.0f}" for _, each in rows], padding=2, fontsize=6)
        axes.axvline(1, color="black", linewidth=1)
        axes.set_yticks([row + 0.42 for row in range(len(mine))], [str(each.row.case) for each in mine], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlim(0, 1.08 * max(1.05, *(value for each in mine for value in each.fraction.values())))
        axes.set_xlabel(f"fraction of the peak (decode: of the read bandwidth), {threads} threads; labels are "
                        "GFLOP/s or GB/s", fontsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    handles = {}
    for axes in panels[0]:
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels())))
    figure.legend(handles.values(), handles.keys(), loc="upper center", ncol=len(names), frameon=False, fontsize=8)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.4 / figure.get_figheight()))
    figure.savefig(path, dpi=130)
    plt.close(figure)
