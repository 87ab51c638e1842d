"""The exact weights of tiles of long calls are those of a softmax in float64."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import saccade
from saccade.observe import __main__ as command
from saccade.observe import zoomed
from saccade.observe.calls import Call

i, j = np.mgrid[:300, :300]


@pytest.fixture(scope="module")
def operands():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 4, 300, 16, generator=generator), torch.randn(2, 2, 300, 16, generator=generator)


def softmax(query, key, bias, kept):
    """The weights of batch 0 with two query heads for each KV head."""
    query, key = query[0].double().numpy(), key[0].double().numpy().repeat(2, 0)
    scores = np.where(kept, query @ key.transpose(0, 2, 1) / 4 + bias, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


@pytest.mark.parametrize(("options", "bias", "kept"), [
    pytest.param({}, 0, np.full((300, 300), True), id="plain"),
    pytest.param({"causal": "top_left"}, 0, j <= i, id="causal"),
    pytest.param({"score": lambda s, b, h, i, j: s - 0.1 * abs(i - j), "mask": lambda b, h, i, j: (i - j) % 3 != 1},
                 -0.1 * abs(i - j), (i - j) % 3 != 1, id="score and mask"),
])  # fmt: skip
def test_tiles_are_those_of_the_softmax(operands, options, bias, kept):
    query, key = operands
    call = Call(query, key, key, options, {}, query)
    expected = softmax(query, key, bias, kept)
    found = zoomed.tiles_at(call, [(130, 5), (299, 299), (131, 100), (0, 299), (300, 0), (0, 300)])
    assert [(first_query, first_key) for first_query, first_key, _ in found] == [(128, 0), (0, 256), (256, 256)]
    for first_query, first_key, weights in found:
        tile = expected[:, first_query : first_query + 128, first_key : first_key + 128]
        assert weights.shape == tile.shape
        np.testing.assert_allclose(weights, tile, rtol=1e-5, atol=1e-6)


class Attend(torch.nn.Module):
    def forward(self, ids):
        table = torch.randn(2, 256, 16, generator=torch.Generator().manual_seed(1))
        x = table[:, ids[0]][None]
        return torch.nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)


@pytest.fixture
def long():
    return torch.arange(200)[None] % 256


def test_a_record_has_the_tiles_of_every_head(long):
    model = Attend()
    with saccade.observe(model, tile=64, zoom=[(150, 0), (150, 149)]) as record:
        model(long)
    places = [(tile.head, tile.first_query, tile.first_key, *tile.values.shape) for tile in record.tiles]
    assert places == [(head, 128, first, 72, size) for head in range(2) for first, size in ((0, 128), (128, 72))]
    both = record.tiles[0].numbers().sum(1) + record.tiles[1].numbers().sum(1)
    np.testing.assert_allclose(both, 1, atol=0.05)


def test_short_calls_have_all_of_their_weights_and_no_others(long):
    model = Attend()
    with saccade.observe(model, tile=256, zoom=[(150, 0)], maps=True) as record:
        model(long)
    assert [tile.values.shape for tile in record.tiles] == [(200, 200)] * 2


@pytest.mark.parametrize(("zoom", "error", "message"), [
    ([3], TypeError, "zoom has 3, expected pairs of a query and a key"), ([(1, 2, 3)], TypeError, "pairs"),
    ([(-1, 0)], ValueError, "zoom: the query is -1"), ([(0, 1.5)], ValueError, "zoom: the key is 1.5"),
])  # fmt: skip
def test_places_that_are_none_are_refused(zoom, error, message):
    with pytest.raises(error, match=message):
        saccade.observe(Attend(), zoom=zoom)


def test_the_command_records_tiles_of_long_texts(monkeypatch, tmp_path, capsys):
    (tmp_path / "attend.py").write_text("from test_zoomed_tiles import Attend\n")
    monkeypatch.syspath_prepend(tmp_path)
    record = tmp_path / "record.json"
    assert command.main(["attend:Attend", "--text", "x" * 150, "--zoom", "149,149", "-o", str(record)]) == 0
    tiles = saccade.observe.Record.load(record).tiles
    assert [(tile.first_query, tile.first_key, tile.values.shape) for tile in tiles] == [(128, 128, (22, 22))] * 2
    with pytest.raises(SystemExit):
        command.main(["attend:Attend", "--text", "x", "--zoom", "3"])
    assert "argument --zoom: '3' is no pair" in capsys.readouterr().err
