"""The training loop of both examples: several models in lockstep on the same batches, their losses and times."""

import contextlib
import dataclasses
import json
import pathlib
import statistics
import time

import torch
from torch import nn
from tqdm import tqdm

SMOOTHING = 20  # steps that a point of a smoothed loss averages
WARM_UP = 20  # steps in which the learning rate rises
NOISE = ("reordered", "f64")  # runs that differ from "eager" by rounding errors only


@dataclasses.dataclass
class Run:
    """A model in training."""

    name: str
    model: nn.Module
    context: object = contextlib.nullcontext
    """Makes a context manager in which forward and backward run."""
    losses: list = dataclasses.field(default_factory=list)
    seconds: list = dataclasses.field(default_factory=list)

    def smoothed(self):
        return smooth(self.losses)


def smooth(losses):
    """The mean of the last SMOOTHING losses at each step from the first that has as many."""
    return torch.tensor(losses, dtype=torch.float64).unfold(0, min(SMOOTHING, len(losses)), 1).mean(1)


def train(runs, batches, steps, seed, title="", rate=1e-3):
    """Trains all runs for `steps` batches. They take turns within a step, in alternating order, so that the load of the
    machine affects their times alike. Each sees the same random numbers."""
    optimizers = [torch.optim.AdamW(run.model.parameters(), betas=(0.9, 0.99)) for run in runs]
    progress = tqdm(range(steps), desc=title, unit="step")
    for step in progress:
        batch = next(batches)
        for run, optimizer in list(zip(runs, optimizers))[:: 1 if step % 2 else -1]:
            dtype = next(run.model.parameters()).dtype
            arguments = [x.to(dtype) if x.is_floating_point() else x for x in batch]
            optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / WARM_UP)
            torch.manual_seed(seed + step)
            start = time.perf_counter()
            with run.context():
                loss = run.model.loss(*arguments)
                optimizer.zero_grad()
                loss.backward()
            optimizer.step()
            run.seconds.append(time.perf_counter() - start)
            run.losses.append(loss.item())
        progress.set_postfix_str("  ".join(f"{run.name} {run.losses[-1]:.4f}" for run in runs))


def largest_difference(one, other):
    """The largest difference of the smoothed losses of two runs."""
    return (one.smoothed() - other.smoothed()).abs().max().item()


def report(title, runs):
    """Prints final losses, times and differences from the first run."""
    first = runs[0]
    print(title)
    print(f"  {'run':10} {'final loss':>10} {'ms a step':>10} {'first step':>10}  difference from {first.name}")
    for run in runs:
        typical = 1e3 * statistics.median(run.seconds[1:] or run.seconds)
        print(f"  {run.name:10} {run.smoothed()[-1]:10.5f} {typical:10.1f} {1e3 * run.seconds[0]:10.1f}"
              + ("" if run is first else f"  {largest_difference(run, first):.2e}"))
    named = {run.name: run for run in runs}
    if not {"eager", "saccade"} <= named.keys() or len(first.losses) < 2:
        return
    ratios = sorted(eager / saccade for eager, saccade in
                    list(zip(named["eager"].seconds, named["saccade"].seconds))[1:])
    print(f"  time of eager / time of saccade, of the same step: median {statistics.median(ratios):.2f}, "
          f"quartiles {ratios[len(ratios) // 4]:.2f} and {ratios[3 * len(ratios) // 4]:.2f}")
    noise = [largest_difference(named[name], named["eager"]) for name in NOISE if name in named]
    if noise:
        rounding = torch.finfo(torch.float32).eps * named["eager"].smoothed().min().item()
        ratio = largest_difference(named["saccade"], named["eager"]) / max(*noise, rounding)
        print(f"  saccade differs by {ratio:.2f} times the noise: {'passed' if ratio <= 2 else 'FAILED'} (at most 2)")


def plot(results, path):
    """Draws the smoothed losses of {title: {name: losses}} above their differences from the eager run."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, rows = plt.subplots(2, len(results), figsize=(0.6 + 2.3 * len(results), 4.4), squeeze=False, sharex=True,
                                sharey="row", height_ratios=(3, 2))
    styles = {"eager": ("#e07b39", 4), "saccade": ("#1f6f8b", 1.3), "reordered": ("#909090", 1), "f64": ("#404040", 1)}
    for (title, curves), above, below in zip(results.items(), *rows):
        for name, losses in curves.items():
            color, width = styles[name]
            steps = range(len(losses) - len(smooth(losses)), len(losses))
            if name in ("eager", "saccade"):
                above.plot(steps, smooth(losses), color=color, linewidth=width, label=name)
            if name != "eager" and "eager" in curves:
                below.semilogy(steps, (smooth(losses) - smooth(curves["eager"])).abs().clamp(min=1e-9), color=color,
                               linewidth=1.3, label=name)
        above.set_title(title, fontsize=10)
        below.set_xlabel("step", fontsize=9)
        for axes in (above, below):
            axes.tick_params(labelsize=8)
            axes.spines[["top", "right"]].set_visible(False)
    rows[0, 0].set_ylabel("loss", fontsize=9)
    rows[1, 0].set_ylabel("difference from eager", fontsize=9)
    for axes in rows[:, 0]:
        if axes.lines:
            axes.legend(fontsize=8, frameon=False)
    figure.tight_layout()
    figure.savefig(path, dpi=80, metadata={"Software": None})
    plt.close(figure)


def add_options(parser):
    """The options that both examples have."""
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--attention", choices=("eager", "saccade", "both"), default="both")
    parser.add_argument("--noise", nargs="+", choices=NOISE, default=[],
                        help="also train with PyTorch's attention and its sums in another order, or in float64: these "
                             "losses differ by rounding errors only")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--losses", metavar="FILE", help="add the losses to those in a JSON file")
    parser.add_argument("--plot", metavar="FILE", help="draw the losses, of all runs in the JSON file if there is one")


def chosen(options):
    """The names of the runs."""
    return [*(("eager", "saccade") if options.attention == "both" else (options.attention,)), *options.noise]


_finished = {}


def finish(title, runs, options):
    """Prints the results of one model, keeps its losses and draws all."""
    report(title, runs)
    file = pathlib.Path(options.losses) if options.losses else None
    if file is not None and file.exists():
        _finished.update(json.loads(file.read_text()))
    _finished[title] = {run.name: run.losses for run in runs}
    if file is not None:
        file.write_text(json.dumps(_finished))
    if options.plot:
        plot(_finished, options.plot)
