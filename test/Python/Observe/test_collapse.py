"""A training in which attention collapses: it is reported at its step, and a loss on the entropy brings it back."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "examples" / "observe"))

import collapse


def test_a_collapse_is_reported_and_the_loss_on_the_entropy_mends_it():
    losses, entropies, events = collapse.train(entropy_weight=0.5, steps=650)
    assert [(event.kind, event.step) for event in events] == [("collapse", collapse.COLLAPSE)]
    mean = lambda curve, step: sum(curve[step - 20 : step]) / 20
    assert mean(losses, 200) < 0.05 and mean(entropies, 200) > 2
    assert mean(losses, 240) > 0.5 and mean(entropies, 240) < 0.3
    assert mean(losses, 650) < 0.1 and mean(entropies, 650) > 2
