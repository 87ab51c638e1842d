"""The models of examples/training learn the same with PyTorch's attention and with Saccade's: their losses agree at
every step, their first gradients in every element, and Saccade computed the gradients of all layers."""

import collections
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("tqdm")

STEPS, LAYERS = 20, 2
TOLERANCE = 1e-5  # of losses from 5 to 2, whose last place is 2e-7 to 5e-7


@pytest.fixture(autouse=True)
def _examples(root, monkeypatch):
    monkeypatch.syspath_prepend(str(root / "examples" / "training"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the models are so small that threads would mostly wait for each other
    yield
    torch.set_num_threads(threads)


def gpt(variant, names=("eager", "saccade")):
    import char_gpt

    text, characters = char_gpt.encode(char_gpt.read_text())
    runs = char_gpt.make_runs(names, variant, characters, 0, layers=LAYERS, width=64, heads=2, context=96)
    return runs, char_gpt.batches(text, 0, size=2, context=96)


def vit(variant):
    import small_vit

    runs = small_vit.make_runs(("eager", "saccade"), variant, 0, layers=LAYERS, width=64, heads=2)
    return runs, small_vit.batches(0, size=4)


def gradients(run, batch):
    """The gradients of all parameters, and how often each operator was called for them."""
    torch.manual_seed(0)  # of the dropped weights
    with torch.profiler.profile() as profile, run.context():
        run.model.loss(*batch).backward()
    found = {name: parameter.grad for name, parameter in run.model.named_parameters() if parameter.requires_grad}
    run.model.zero_grad()
    return found, collections.Counter(event.name for event in profile.events())


def largest_difference(runs):
    return np.max([abs(a - b) for a, b in zip(*(run.losses for run in runs))])  # max() loses a NaN


@pytest.mark.parametrize(("make", "variant"), [
    (gpt, "causal"), (gpt, "alibi-learned"), (gpt, "t5"), (gpt, "window"), (gpt, "dropout"), (vit, "plain"), (vit, "relative"),
])  # fmt: skip
def test_losses_agree_at_every_step(make, variant):
    import trainer

    runs, batches = make(variant)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # Saccade warns if PyTorch computes a call instead
        batch = next(batches)
        (expected, eager_calls), (found, calls) = [gradients(run, batch) for run in runs]
        trainer.train(runs, batches, STEPS, seed=0, rate=3e-3)
    assert calls["saccade::attention_backward"] == LAYERS and eager_calls["saccade::attention_backward"] == 0
    assert not [name for name in calls if "scaled_dot_product" in name and "backward" in name]
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")
    if make is gpt:  # 20 batches of so few images are too little for the other one
        assert runs[0].losses[-1] < runs[0].losses[0] - 1
    assert largest_difference(runs) <= TOLERANCE, list(zip(*(run.losses for run in runs)))


def test_hybrid_model_learns_the_same():
    pytest.importorskip("transformers")
    import char_gpt
    import hybrid_lm
    import trainer

    text, characters = char_gpt.encode(char_gpt.read_text())
    layers = ("linear_attention", "full_attention")
    runs = hybrid_lm.make_runs(("eager", "saccade", "reordered"), characters, 0, layers=layers, width=64, heads=2)
    batches = char_gpt.batches(text, 0, size=2, context=96)
    batch = next(batches)
    (expected, eager_calls), (found, calls), (reordered, _) = [gradients(run, batch) for run in runs]
    assert calls["saccade::linear_attention_backward"] == calls["saccade::attention_backward"] == 1
    assert not [name for name in eager_calls if name.startswith("saccade::")]
    assert any(not torch.equal(reordered[name], gradient) for name, gradient in expected.items())
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda text: f"{name}: {text}")
    trainer.train(runs, batches, STEPS, seed=0, rate=3e-3)
    assert runs[0].losses[-1] < runs[0].losses[0] - 0.5
    assert largest_difference(runs[:2]) <= TOLERANCE, list(zip(*(run.losses for run in runs)))


def test_a_gradient_with_an_error_of_one_percent_exceeds_the_tolerance():
    import trainer

    runs, batches = gpt("causal", ("eager", "eager"))
    for block in runs[1].model.blocks:
        attend = block.attention.attend

        def wrong(q, k, v, attend=attend):
            v.register_hook(lambda gradient: 1.01 * gradient)
            return attend(q, k, v)

        block.attention.attend = wrong
    trainer.train(runs, batches, STEPS, seed=0, rate=3e-3)
    assert largest_difference(runs) > 10 * TOLERANCE


def test_a_missing_text_is_reported(tmp_path):
    import char_gpt

    with pytest.raises(SystemExit, match=r"no text to train on: .*none\.txt does not exist; name another .* --text"):
        char_gpt.read_text(tmp_path / "none.txt")
