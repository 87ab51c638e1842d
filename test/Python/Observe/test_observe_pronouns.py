"""The model of examples/observe attends as the tutorial says."""

import pytest

pytest.importorskip("transformers")

from saccade.observe import __main__ as command
from saccade.observe.record import Record

TEXT = "the animal did not cross the street because it was too "


@pytest.fixture(scope="module")
def attended(root, tmp_path_factory):
    """A function from an adjective and a head of layer 1 to the token that "it" attends to most, and its weight."""
    path = tmp_path_factory.mktemp("records") / "record.json"

    def attended(adjective, head):
        assert command.main([str(root / "examples/observe/model"), "--text", TEXT + adjective, "-o", str(path)]) == 0
        record = Record.load(path)
        assert record.model == "BertForMaskedLM"
        tokens = record.tokens[0]
        tile = next(tile for tile in record.tiles if (tile.layer, tile.head) == (1, head))
        row = tile.numbers()[tokens.index("it")]
        return tokens[row.argmax()], round(float(row.max()), 2)

    return attended


def test_head_6_rests_on_a_separator(attended):
    assert attended("tired", 6) == ("[SEP]", pytest.approx(0.61, abs=0.02))
    assert attended("wide", 6)[0] == "[SEP]"


def test_head_2_finds_what_tells_the_nouns_apart(attended):
    token, weight = attended("tired", 2)
    assert (token, weight > 0.97) == ("tired", True)
    assert attended("wide", 2)[0] == "street"


def test_a_model_is_loaded_as_it_was_saved(attended, capfd):
    attended("tired", 0)
    found = capfd.readouterr()
    assert "UNEXPECTED" not in found.err + found.out
    assert "MISSING" not in found.err + found.out
