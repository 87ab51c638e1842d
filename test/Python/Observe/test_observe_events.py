"""Events of `saccade.observe`: thresholds, collapse, NaN and Inf with their places."""

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch import nn

import saccade

S, D, H = 24, 8, 4
WITHOUT = dict.fromkeys(("dead", "sink", "sharp", "uniform", "collapse"))


class Layer(nn.Module):
    """Attention to its own input, whose heads can be spoiled by `change(q, k, v)`."""

    def __init__(self):
        super().__init__()
        self.change = lambda q, k, v: (q, k, v)
        self.options = {}

    def forward(self, x):
        x = x.unflatten(-1, (H, D)).transpose(1, 2)
        q, k, v = self.change(x.clone(), x.clone(), x.clone())
        return F.scaled_dot_product_attention(q, k, v, **self.options).transpose(1, 2).flatten(-2)


@pytest.fixture
def model():
    return nn.Sequential(*[Layer() for _ in range(3)])


@pytest.fixture
def x():
    return torch.randn(2, S, H * D, generator=torch.Generator().manual_seed(0))


def events_of(model, x, **thresholds):
    with saccade.observe(model, maps=False, thresholds=WITHOUT | thresholds) as record:
        model(x)
    return record.events


def times(tensor, head, factor):
    tensor = tensor.clone()
    tensor[:, head] *= factor
    return tensor


@pytest.mark.parametrize(("kind", "change"), [
    ("dead", lambda q, k, v: (q, k, times(v, 2, 1e-6))),
    ("sharp", lambda q, k, v: (times(q, 2, 1000), k, v)),
    ("uniform", lambda q, k, v: (times(q, 2, 0), k, v)),
    ("sink", lambda q, k, v: (torch.cat((q[:, :, :, :-1], torch.full_like(q[..., -1:], 30)), -1),
                              torch.cat((k[:, :, :, :-1], F.pad(torch.full((2, H, 1, 1), 30.0), (0, 0, 0, S - 1)) * (
                                  torch.arange(H) == 2)[:, None, None]), -1), v)),
])  # fmt: skip
def test_spoiled_heads_are_found(model, x, kind, change):
    model[1].change = change
    default = getattr(saccade.observe.Thresholds(), kind)
    (event,) = [event for event in events_of(model, x, **{kind: default}) if event.layer == 1]
    assert (event.step, event.kind, event.head) == (0, kind, 2)
    assert event.message.startswith("1, head 2: ")
    assert not [event for event in events_of(model, x) if event.layer == 1]


def test_thresholds_can_be_set(model, x):
    found = events_of(model, x, uniform=0.0)
    assert len(found) == 3 * H and {event.kind for event in found} == {"uniform"}


@pytest.mark.parametrize(("thresholds", "error", "message"), [
    ({"sharq": 1}, ValueError, "did you mean 'sharp'"), ({"sink": "x"}, TypeError, "thresholds"), (3, TypeError, "a dict"),
])  # fmt: skip
def test_bad_thresholds_are_refused(model, thresholds, error, message):
    with pytest.raises(error, match=message), saccade.observe(model, thresholds=thresholds):
        pass


def test_states_are_reported_once_until_they_end(model, x):
    factors = iter([1, 1000, 1000, 1, 1000])
    seen = []
    with saccade.observe(model, every=1, maps=False, thresholds=WITHOUT | {"sharp": 0.05}, on_event=seen.append) as record:
        for factor in factors:
            model[2].change = lambda q, k, v: (times(q, 1, factor), k, v)
            model(x)
    assert [(event.step, event.layer, event.head) for event in seen] == [(1, 2, 1), (4, 2, 1)]
    assert record.events == seen


def put(tensor, place, number):
    tensor[place] = number
    return tensor


@pytest.mark.parametrize(("change", "expected"), [
    (lambda q, k, v: (put(q, (1, 2, 7, 3), torch.nan), k, v), ("nan", 2, 7, None, "query")),
    (lambda q, k, v: (q, put(k, (0, 3, 5, 0), torch.inf), v), ("inf", 3, 0, 5, "key")),
    (lambda q, k, v: (q, k, put(v, (0, 1, 4, 0), torch.nan)), ("nan", 1, 0, 4, "value")),
    (lambda q, k, v: (put(q, (0, 2, 6), 3e30), put(k, (0, 2, 9), 3e30), v), ("nan", 2, 6, 9, "score")),
])  # fmt: skip
def test_first_nan_has_its_place(model, x, change, expected):
    model[1].change = change
    (event,) = events_of(model, x)
    assert (event.layer, event.kind, event.head, event.query, event.key, event.operand) == (1, *expected)


def test_nan_of_a_shared_key_has_a_head_that_reads_it(model, x):
    model[1].change = lambda q, k, v: (q, put(k[:, :2].clone(), (0, 1, 5, 0), torch.nan), v[:, :2])
    model[1].options = {"enable_gqa": True}
    (event,) = events_of(model, x)
    assert (event.head, event.query, event.key, event.operand) == (2, 0, 5, "key")


def test_nan_of_the_input_is_told_from_that_of_a_projection(model, x):
    x[0, 3, 9] = torch.nan
    (event,) = events_of(model, x)
    assert (event.layer, event.head, event.query) == (0, 1, 3)
    assert "came with the input of the layer" in event.message
    model[0].change = lambda q, k, v: (put(q, (0, 0, 0, 0), torch.nan), k, v)
    (event,) = events_of(model, x.nan_to_num())
    assert "the projection of query" in event.message


def test_nan_of_a_mask_has_its_place(model, x):
    model[0].options = {"attn_mask": put(torch.zeros(S, S), (3, 4), torch.nan)}
    (event,) = events_of(model, x)
    assert (event.layer, event.kind, event.query, event.key, event.operand) == (0, "nan", 3, 4, "mask")


def test_later_layers_with_nan_are_no_events(model, x):
    for layer in model:
        layer.change = lambda q, k, v: (put(q, (0, 0, 0, 0), torch.nan), k, v)
    assert [event.layer for event in events_of(model, x)] == [0]


def test_collapse_in_training_is_reported_at_its_step():
    """The temperature of a layer falls during the training, so that its entropy collapses, and rises again."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, H * D), Layer(), nn.Linear(H * D, 16))
    optimizer = torch.optim.SGD(model.parameters(), 1e-3)
    x, y = torch.randn(2, 2, S, 16)
    seen = []
    with saccade.observe(model, every=5, maps=False, on_event=seen.append) as record:
        for step in range(60):
            factor = 200.0 if 22 <= step < 40 else 1.0
            model[1].change = lambda q, k, v: (q * factor, k, v)
            loss = F.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    collapsed = [event for event in seen if event.kind == "collapse"]
    assert [(event.step, event.layer, event.head) for event in collapsed] == [(25, 0, None)]
    uniformity = dict(zip(record.steps, record.statistics["uniformity"]))
    assert uniformity[20][0].mean() > 0.5 > 0.1 > uniformity[25][0].mean() and uniformity[40][0].mean() > 0.5
