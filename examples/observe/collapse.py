#!/usr/bin/env python3
"""Attention collapses during a training, is reported, and a loss on its entropy brings it back.

Usage: collapse.py [--picture FILE]
Tokens of four classes carry a number; each token has to return the mean over the tokens of its class, so that it must
attend to several. From step 200 on, scores are divided by a temperature of 0.01: each token then attends to one other.
The gradient of the task nearly vanishes there, that of the entropy does not.
"""

import argparse

import torch

import saccade

TOKENS, CLASSES, WIDTH, COLLAPSE, STEPS = 32, 4, 16, 200, 800


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = torch.nn.Linear(WIDTH, WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.temperature = 1.0

    def forward(self, tokens, numbers):
        """The output of each token, [batch, tokens], and the entropy of its weights."""
        tokens = tokens[:, None]  # one head
        output, found = saccade.attention(self.query(tokens) / self.temperature, self.key(tokens),
                                          numbers[:, None, :, None].contiguous(), stats=("entropy",))  # fmt: skip
        return output[:, 0, :, 0], found.entropy


def draw(centers):
    """Tokens, their numbers, and the means of the classes."""
    classes = torch.randint(CLASSES, (16, TOKENS))
    tokens = centers[classes] + 0.3 * torch.randn(16, TOKENS, WIDTH)
    numbers = torch.randn(16, TOKENS)
    is_same = (classes[:, :, None] == classes[:, None]).float()
    return tokens, numbers, (is_same @ numbers[..., None])[..., 0] / is_same.sum(-1)


def train(entropy_weight, steps=STEPS):
    """The loss and the mean entropy of each step, and the events. `entropy_weight` is the factor of the loss on the
    entropy below 1.5."""
    torch.manual_seed(0)
    model, centers = Model(), torch.randn(CLASSES, WIDTH)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    losses, entropies, events = [], [], []
    thresholds = {"uniform": None, "sharp": None, "sink": None, "dead": None, "collapse": 0.15}
    with saccade.observe(model, every=5, on_event=events.append, thresholds=thresholds, maps=False):
        for step in range(steps):
            model.temperature = 0.01 if step >= COLLAPSE else 1.0
            tokens, numbers, means = draw(centers)
            output, entropy = model(tokens, numbers)
            loss = (output - means).square().mean()
            optimizer.zero_grad()
            (loss + entropy_weight * torch.relu(1.5 - entropy).mean()).backward()
            optimizer.step()
            losses.append(loss.item())
            entropies.append(entropy.mean().item())
    return losses, entropies, events


def show(runs, file):
    """Draws the curves of runs by their titles."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(9, 2.8))
    for title, (losses, entropies, _) in runs.items():
        for axis, curve in zip(axes, (losses, entropies)):
            axis.plot([sum(curve[i : i + 10]) / 10 for i in range(len(curve) - 9)], label=title, linewidth=1.2)
    for axis, name in zip(axes, ("loss of the task", "entropy")):
        axis.axvline(COLLAPSE, color="#999999", linewidth=0.8, linestyle="--")
        axis.set(title=name, xlabel="step")
    axes[0].legend(frameon=False, loc="center right")
    figure.tight_layout()
    figure.savefig(file, dpi=110, metadata={"Software": None})


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--picture", metavar="FILE", help="also draw the curves")
    args = parser.parse_args()
    runs = {"without": train(0.0), "with a loss on the entropy": train(0.5)}
    for title, (losses, entropies, events) in runs.items():
        print(f"{title}: {[(event.step, event.kind) for event in events]}")
        for step in range(100, STEPS, 100):
            mean = lambda curve: sum(curve[step : step + 50]) / 50
            print(f"  steps {step} to {step + 49}: loss {mean(losses):.3f}, entropy {mean(entropies):.2f}")
    if args.picture:
        show(runs, args.picture)


if __name__ == "__main__":
    main()
