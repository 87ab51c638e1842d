"""`python -m saccade.observe`: models by folder or function, records, exit codes."""

import pytest

pytest.importorskip("torch")

from saccade.observe.__main__ import main
from saccade.observe.record import Record

MODULE = """
import torch
def encoder():
    layer = torch.nn.TransformerEncoderLayer(16, nhead=2, dim_feedforward=16, batch_first=True)
    return torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.TransformerEncoder(layer, num_layers=1))
def words():
    return encoder(), lambda text: ({"input": torch.arange(len(text.split()))[None]}, text.split())
def linear():
    return torch.nn.Sequential(torch.nn.Embedding(256, 16), torch.nn.Linear(16, 16))
def broken():
    return 3
def unread():
    raise RuntimeError("the model runs before its files are checked")
"""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The current folder, with the models of `MODULE`."""
    (tmp_path / "observed_models.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_models_of_functions_read_bytes_or_what_they_say(capsys):
    assert main(["observed_models:encoder", "--text", "é!", "--text", "two texts", "-o", "a.json"]) == 0
    record = Record.load("a.json")
    assert record.steps == [0, 1] and record.tokens == [list("two texts")]
    assert record.layers[0].keys == 9 and len(record.tiles) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("Sequential: 1 layers (2 heads, 9 × 9), 2 observed steps, the last one is 1\n")
    assert main(["a.json"]) == 0
    assert capsys.readouterr().out == printed
    assert main(["a.json", "--layer", "0"]) == 0
    assert "head" in capsys.readouterr().out
    assert main(["observed_models:words", "--text", "three words here", "-o", "a.json"]) == 0
    assert Record.load("a.json").tokens == [["three", "words", "here"]]


def test_models_of_folders_bring_their_tokens(root, capsys):
    pytest.importorskip("transformers")
    assert main([str(root / "examples/observe/model"), "--text", "the animal was tired", "-o", "a.json"]) == 0
    record = Record.load("a.json")
    assert "animal" in record.tokens[0] and record.layers[0].keys == len(record.tokens[0])


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["observed_models:linear", "--text", "a"], 1, "no attention that saccade.observe sees"),
    (["observed_models:broken", "--text", "a"], 1, "returns 3, expected a torch.nn.Module"),
    (["observed_models:missing", "--text", "a"], 1, "has no attribute 'missing'"),
    (["missing_module:f", "--text", "a"], 1, "f: the module 'missing_module' cannot be imported: No module"),
    (["missing", "--text", "a"], 1, "missing is no folder"), ([".", "--text", "a"], 1, "is no folder of a model"),
    (["missing.json"], 3, "No such file"), (["observed_models.json"], 3, "is no record"),
    (["observed_models:encoder", "--text", "a", "-o", "missing/a.json"], 3, "No such file or directory: 'missing/a.json'"),
    (["observed_models:unread", "--text", "a", "-o", "missing/a.json"], 3, "No such file or directory: 'missing/a.json'"),
    (["observed_models:unread", "--text", "a", "--html", "."], 3, "Is a directory: '.'"),
    (["observed_models:encoder", "--text", "a", "--text", ""], 2, "--text is empty"),
    (["observed_models:encoder", "--text", "a", "--zoom", "3"], 2, "--zoom: '3' is no pair QUERY,KEY of positions"),
    (["observed_models:encoder", "--text", "a", "--zoom=-1,2"], 2, "'-1,2' is no pair"),
    (["observed_models:encoder"], 2, "a model requires --text"), (["a.json", "--text", "a"], 2, "are for models"),
])  # fmt: skip
def test_mistakes_have_exit_codes(folder, arguments, code, message, capsys):
    (folder / "observed_models.json").write_text("{}")
    try:
        found = main(arguments)
    except SystemExit as end:  # of argparse
        found = end.code
    assert found == code
    assert message in capsys.readouterr().err
