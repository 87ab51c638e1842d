"""The block of `saccade.observe`: which steps are observed, what it changes, what a record keeps, and bad input."""

import contextlib
import copy
import csv
import gc
import json
import os
import pickle
import sys
import threading

import numpy
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn

import saccade
import saccade.torch
from saccade.observe import writers


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.project = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (each.unflatten(-1, (4, 8)).transpose(1, 2) for each in self.project(x).chunk(3, -1))
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 * self.training).transpose(1, 2).flatten(-2)


@pytest.fixture
def model():
    torch.manual_seed(0)
    return nn.Sequential(Layer(), nn.Linear(32, 32), Layer())


@pytest.fixture
def x():
    return torch.randn(2, 16, 32, generator=torch.Generator().manual_seed(0))


def train(model, x, steps):
    """The losses and the gradients of the last step."""
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        losses.append(model(x).square().mean())
        losses[-1].backward()
        optimizer.step()
    return torch.stack(losses), [each.grad.clone() for each in model.parameters()]


def test_training_is_that_without(model, x):
    state = {name: each.clone() for name, each in model.state_dict().items()}
    expected, gradients = train(model, x, 4)
    model.load_state_dict(state)
    with saccade.observe(model, every=2) as record:
        losses, found = train(model, x, 4)
    assert torch.equal(losses, expected)
    assert all(map(torch.equal, found, gradients))
    assert record.steps == [0, 2]
    assert [layer.name for layer in record.layers] == ["0", "2"]
    numpy.testing.assert_array_less(0, record.statistics["entropy"])


def test_nothing_stays_behind(model, x):
    kernels = torch._C._dispatch_dump("aten::scaled_dot_product_attention")
    functions = F.multi_head_attention_forward
    with saccade.observe(model, every=2, maps=False):
        model(x)
        assert torch._C._dispatch_dump("aten::scaled_dot_product_attention") == kernels
        assert torch.backends.mha.get_fastpath_enabled()
    assert F.multi_head_attention_forward is functions
    assert not model._forward_hooks and not model._forward_pre_hooks
    assert not saccade._served.is_on


def test_copies_of_a_model_are_not_observed(model, x):
    """As of optimizers that average weights, and of checkpoints of whole modules."""
    model.eval()
    with saccade.observe(model, every=1) as record:
        copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        assert all(torch.equal(each(x), model(x)) for each in copies)
    assert record.steps == [0, 1]


def test_compiled_steps_are_not_observed(model, x):
    model.eval()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    with saccade.observe(model, every=1) as record:
        assert torch.equal(compiled(x), model(x))
    assert record.steps == [0]


def test_end_of_a_block_completes_after_errors_of_writers(model, x, tmp_path):
    class Full(writers.JsonLines):
        def close(self):
            super().close()
            raise OSError("the disk is full")

    others = [Full(tmp_path / "a.jsonl"), writers.Csv(tmp_path / "b.csv")]
    closed = []
    others[1].close = lambda: closed.append(True)
    path = tmp_path / "record.json"
    with pytest.raises(OSError, match="the disk is full"), saccade.observe(model, every=1, writers=others, path=path):
        model(x)
    assert closed and saccade.observe.Record.load(path).steps == [0]


def test_calls_of_one_module_are_told_apart(x):
    layer = Layer()
    layers = nn.Sequential(layer, layer)
    with saccade.observe(layers, maps=False) as record:
        layers(x)
    assert list(map(str, record.layers)) == ["0", "0 (call 1)"]


def test_layers_that_come_later_are_added(model, x):
    order = [model[:1], model]

    class Growing(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x):
            return order.pop(0)(x)

    with saccade.observe(growing := Growing(), every=1, maps=False) as record:
        growing(x)
        growing(x)
    assert len(record.layers) == 2
    first, second = record.statistics["entropy"]
    assert numpy.isnan(first[1]).all() and numpy.isfinite(second[1]).all() and numpy.isfinite(first[0]).all()


def test_callbacks_and_writers_get_every_step(model, x, tmp_path):
    steps, events = [], []
    for _ in range(2):  # files grow
        given = [writers.JsonLines(tmp_path / "a.jsonl"), writers.Csv(tmp_path / "a.csv"),
                 writers.TensorBoard(tmp_path / "board")]  # fmt: skip
        with saccade.observe(model, every=1, keep=2, on_step=steps.append, on_event=events.append, writers=given,
                             thresholds={"uniform": 0.0}) as record, torch.no_grad():  # fmt: skip
            for _ in range(5):
                model(x)
    assert [step.number for step in steps] == [*range(5)] * 2
    assert len(events) == 2 * 8
    assert record.steps == [0, 4]  # of `keep`
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(lines) == 2 * (5 + 8)
    numbers = [line for line in lines if "step" in line][4]
    numpy.testing.assert_allclose(numbers["entropy"], steps[4].statistics["entropy"], rtol=1e-6)
    assert [line["event"]["kind"] for line in lines if "event" in line] == ["uniform"] * 16
    rows = list(csv.DictReader((tmp_path / "a.csv").open()))
    assert len(rows) == 2 * 5 * 8
    assert rows[3]["layer"] == "0" and float(rows[3]["max"]) == pytest.approx(steps[0].statistics["max"][0][3])
    board = b"".join(each.read_bytes() for each in (tmp_path / "board").iterdir())
    assert b"attention/uniformity/2" in board and b"averages all values" in board


def test_tensorboard_is_optional(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(ImportError, match=r"pip install saccade\[observe\]"):
        writers.TensorBoard(tmp_path)


def test_interrupted_runs_keep_what_was_recorded(model, x, tmp_path):
    class Interrupting(nn.Module):
        def forward(self, x):
            if len(record.steps) == 2:
                raise KeyboardInterrupt
            return x

    broken = nn.Sequential(*model, Interrupting())
    with contextlib.suppress(KeyboardInterrupt), saccade.observe(broken, every=1, path=tmp_path / "a.json") as record:
        for _ in range(5):
            broken(x)
    assert saccade.observe.Record.load(tmp_path / "a.json").steps == [0, 1]
    with saccade.observe(broken, every=1, maps=False) as record:  # the block may go on
        for _ in range(3):
            with contextlib.suppress(KeyboardInterrupt):
                broken(x)
    assert record.steps == [0, 1]


def test_exceptions_of_the_model_end_a_step(model, x):
    with saccade.observe(model, every=1, maps=False) as record:
        model(x)
        with pytest.raises(RuntimeError, match="shapes"):
            model(x[..., :5])
        model(x)
    assert record.steps == [0, 2]


class Guard(nn.Module):
    """Raises an exception if its input is not finite, as trainings do."""

    def forward(self, x):
        if not x.isfinite().all():
            raise ArithmeticError("the guard")
        return x


def test_step_whose_forward_raises_has_the_layers_before(model, x, tmp_path):
    class LaterAttention(Layer):
        pass

    guarded = nn.Sequential(model[0], Guard(), LaterAttention())
    events, steps = [], []
    given = [writers.JsonLines(tmp_path / "a.jsonl")]
    with torch.no_grad(), saccade.observe(guarded, every=1, on_event=events.append, on_step=steps.append, writers=given,
                                          tile=16) as record:  # fmt: skip
        guarded(x)
        guarded[0].project.bias[32 + 8] = torch.nan
        with pytest.raises(ArithmeticError, match="the guard"):
            guarded(x)
    assert [(event.step, event.kind, event.operand) for event in events if event.kind == "nan"] == [(1, "nan", "key")]
    assert record.events == events and record.steps == [step.number for step in steps] == [0, 1]
    assert numpy.isnan(record.statistics["entropy"][1][1]).all()  # of the layer that was not reached
    assert '"kind": "nan"' in (tmp_path / "a.jsonl").read_text() and not record.missed
    assert {tile.layer for tile in record.tiles} == {0}


def test_record_that_is_not_saved_leaves_the_exception(model, x, tmp_path):
    found = []

    def run(error):
        (tmp_path / "folder").mkdir()
        with saccade.observe(model, path=tmp_path / "folder/a.json", maps=False) as record:
            found.append(record)
            model(x)
            (tmp_path / "folder").rmdir()
            if error is not None:
                raise error

    with (pytest.warns(saccade.Warning, match=r"the record is not saved: .*'\S*folder/a\.json'"),
          pytest.raises(ArithmeticError, match="of the user")):  # fmt: skip
        run(ArithmeticError("of the user"))
    assert found[0].steps == [0]
    with pytest.raises(FileNotFoundError):
        run(None)


@pytest.mark.parametrize(("options", "message"), [
    (dict(tokens=[["a"] * 16, ["b"] * 3]), r"tokens has 3 texts for batch 1, .* queries × keys of 16 × 16$"),
    (dict(zoom=[(15, 15), (15, 16)]), r"zoom has \(15, 16\), but no layer has this query and key: .* 16 × 16$"),
])  # fmt: skip
def test_positions_that_no_layer_has_are_a_warning(model, x, options, message):
    with pytest.warns(saccade.Warning, match=message) as found, saccade.observe(model, **options):
        model(x)
    assert len(found) == 1


def test_memory_does_not_grow_with_steps(model, x):
    def objects():
        gc.collect()
        return len(gc.get_objects())

    with saccade.observe(model, every=1, keep=16, maps=False) as record, torch.no_grad():
        counts = []
        for step in range(300):
            model(x[:1, :4])
            if step in (100, 299):
                counts.append(objects())
    assert len(record.steps) <= 16 and record.steps[0] == 0 and record.steps[-1] == 299
    assert counts[1] - counts[0] < 200, counts


def test_one_kernel_serves_batches_of_many_lengths(model, x):
    with saccade.observe(model.eval(), every=1, tile=8) as record, torch.no_grad():
        compilations = []
        for length in (9, 16, 5, 8):
            model(x[:, :length])
            compilations.append(saccade.cache_info().compilations)
        assert [layer.keys for layer in record.layers] == [8, 8] and len(record.tiles) == 8
    assert compilations[0] == compilations[1] and compilations[2] == compilations[3]


def test_model_without_attention_is_refused(x):
    linear = nn.Linear(32, 32)
    with saccade.observe(linear), pytest.raises(saccade.NotServed, match="Linear has no attention that saccade"):
        linear(x)


class HandAttention(nn.Module):
    def forward(self, x):
        return (x @ x.mT).softmax(-1) @ x


def test_attention_that_is_not_seen_is_named(model, x):
    hand = nn.Sequential(nn.Linear(32, 32), HandAttention())
    with saccade.observe(hand), pytest.raises(saccade.NotServed, match="1: HandAttention computes its attention by"):
        hand(x)
    mixed = nn.Sequential(*model, HandAttention())
    with pytest.warns(saccade.Warning, match="not observe 3: HandA"), saccade.observe(mixed, maps=False) as record:
        mixed(x)
    assert list(record.missed) == ["3"] and "not observed: 3" in str(record)


def test_model_that_is_not_called_is_a_warning(model):
    with pytest.warns(saccade.Warning, match="was not called"), saccade.observe(model):
        pass


@pytest.mark.parametrize(("options", "error", "message"), [
    (dict(evry=1), TypeError, "did you mean 'every'.*expected every, on_event"), (dict(every=0), ValueError, "every is 0"),
    (dict(every=True), TypeError, "every"), (dict(keep=1), ValueError, "keep is 1"), (dict(tile=-1), ValueError, "tile"),
    (dict(on_step=3), TypeError, "on_step is 3, expected a function"), (dict(writers=["a"]), TypeError, "writers has 'a'"),
    (dict(writers=writers.Csv(os.devnull)), TypeError, "writers is .*Csv.*, expected a sequence"),
    (dict(maps=2), TypeError, "maps is 2"), (dict(path="missing/a.json"), FileNotFoundError, "'missing/a.json'"),
    (dict(tokens=["a", "b"]), TypeError, "tokens has 'a', expected a list of texts for each batch"),
    (dict(tokens="ab"), TypeError, "tokens has 'ab', expected a list"), (dict(tokens=[3]), TypeError, "tokens has 3"),
])  # fmt: skip
def test_bad_arguments_are_refused(model, options, error, message):
    with pytest.raises(error, match=message):
        saccade.observe(model, **options)


def test_other_models_are_refused(model):
    with pytest.raises(TypeError, match=r"model is of type list, expected a torch\.nn\.Module"):
        saccade.observe([model])
    with pytest.raises(TypeError, match=r"compiled by torch\.compile"):
        saccade.observe(torch.compile(model))


def test_tables_have_layers_heads_and_events(model, x, monkeypatch, capsys):
    with saccade.observe(model, thresholds={"uniform": 0.0}) as record:
        model(x)
    title, header, *rows = str(record).splitlines()
    assert title == "Sequential: 2 layers (4 heads, 16 × 16), 1 observed step, the last one is 0"
    assert header.split("  ")[0] == "layer" and len(rows) == 2 + 8
    assert rows[1].split()[:2] == ["2", f"{record.statistics['entropy'][0][1].mean():.3g}"]
    record.show(layer=1)
    assert capsys.readouterr().out.splitlines()[1].startswith("2, head")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as on a terminal
    record.show()
    printed = capsys.readouterr().out
    assert printed.startswith(title) and "\x1b[" in printed.splitlines()[2] and "uniform" in printed.splitlines()[2]
    monkeypatch.setitem(sys.modules, "rich", None)
    record.show()
    assert capsys.readouterr().out.strip() == str(record)


def test_processes_get_the_means(run_script):
    assert run_script("distributed_observe.py").strip() == "equal"


def test_modes_of_pytorch(model, x):
    def observe(call, network=model):
        with saccade.observe(network, every=1, maps=False) as record:
            call()
        return record

    def recompute():
        torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False).square().mean().backward()

    model.eval()
    expected = observe(lambda: model(x)).statistics["entropy"][0]
    with torch.inference_mode():
        numpy.testing.assert_array_equal(observe(lambda: model(x)).statistics["entropy"][0], expected)
    with torch.autocast("cpu", torch.bfloat16):
        numpy.testing.assert_allclose(observe(lambda: model(x)).statistics["entropy"][0], expected, rtol=1e-3)
    assert len(observe(recompute).layers) == 2
    thread = threading.Thread(target=model, args=(x,))
    assert len(observe(lambda: (thread.start(), thread.join())).layers) == 2
    with pytest.warns(saccade.Warning, match="was not called"):  # traced calls are no steps
        observe(lambda: torch.export.export(model, (x,)))


def test_threads_run_a_model_at_once(model, x):
    with saccade.observe(model.eval(), every=1, maps=False) as record, torch.no_grad():
        threads = [threading.Thread(target=lambda: [model(x) for _ in range(20)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert record.steps == sorted(set(record.steps)) and 0 < len(record.steps) <= 80
    assert len(record.layers) == 2
    numpy.testing.assert_array_equal(record.statistics["max"][0], record.statistics["max"][-1])


def test_parameter_with_nan_is_named(model, x):
    with torch.no_grad():
        model[1].weight[3, 4] = torch.nan
    with saccade.observe(model, maps=False) as record:
        model(x)
    event = record.events[0]
    assert (event.kind, event.layer) == ("nan", 1)
    assert event.message.endswith("it came with the input of the layer; parameter 1.weight is not finite")


def test_double_precision(model, x):
    with saccade.observe(model, maps=False) as record:
        model(x)
    with saccade.observe(model.double(), maps=False) as exact:
        model(x.double())
    numpy.testing.assert_allclose(record.statistics["entropy"][0], exact.statistics["entropy"][0], rtol=1e-5)


def test_calls_of_pytorch_are_not_served(model, x):
    with saccade.observe(model, maps=False) as record, saccade.served() as report:
        model(x)
    assert len(record.layers) == 2 and report.total == 0


def test_model_that_calls_itself_is_one_step(model, x):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = model

        def forward(self, x, again=True):
            return self(self.inner(x), again=False) if again else self.inner(x)

    with saccade.observe(twice := Twice(), every=1, maps=False) as record:
        twice(x)
        twice(x)
    assert record.steps == [0, 1]
    assert list(map(str, record.layers)) == ["inner.0", "inner.2", "inner.0 (call 1)", "inner.2 (call 1)"]


def test_observations_nest_beside_reports(model, x):
    with (saccade.observe(model, maps=False) as outer, saccade.observe(model, maps=False) as inner, torch.no_grad(),
          saccade.torch.enabled(), saccade.served() as report):
        model.eval()(x)
    assert len(outer.layers) == len(inner.layers) == report.served == report.total == 2
