"""The logger "saccade" and the variable SACCADE_LOG."""

import logging
import math
import re
import subprocess
import sys

import pytest

import saccade
from saccade import _log

PROGRAM = """func.func @attend(%x: tensor<?x16xf32>) -> tensor<?x16xf32> {
  %o = attn.attention %x[s,d], %x[s,d], %x[s,d] : (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x16xf32>) -> tensor<?x16xf32>
  return %o : tensor<?x16xf32>
}"""


def messages(caplog, level):
    return [record.message for record in caplog.records if record.name == "saccade" and record.levelno == level]


def test_compilations_and_hits_have_names_and_seconds(caplog, monkeypatch, tmp_path):
    monkeypatch.setattr(_log, "LONG", math.inf)
    saccade.cache_clear()
    saccade.set_disk_cache(tmp_path / "programs")
    try:
        with caplog.at_level(logging.DEBUG, "saccade"):
            saccade.compile(PROGRAM)
            saccade.compile(PROGRAM)
            saccade.cache_clear()
            saccade.compile(PROGRAM)
    finally:
        saccade.set_disk_cache(None)
    found = messages(caplog, logging.DEBUG)
    assert [re.sub(r"\d+\.\d{3} s", "T", message) for message in found] == [
        f"{what} attend of <program> for host: T" for what in ("compiled", "cache hit:", "disk cache hit:")]


def test_long_steps_are_informations_and_are_reported_while_they_run(caplog, monkeypatch):
    monkeypatch.setattr(_log, "LONG", 0.0)
    monkeypatch.setattr(_log, "PROGRESS", 0.001)
    with caplog.at_level(logging.INFO, "saccade"):
        saccade.cache_clear()
        saccade.compile(PROGRAM)
    found = messages(caplog, logging.INFO)
    assert any(message.startswith("still compiling <program> for host after ") for message in found[:-1])
    assert found[-1].startswith("compiled attend of <program> for host: ")


def test_a_step_that_raises_is_not_logged(caplog):
    with caplog.at_level(logging.DEBUG, "saccade"), pytest.raises(saccade.CompileError):
        saccade.compile("func.func @f(")
    assert not messages(caplog, logging.DEBUG)


@pytest.mark.parametrize(("value", "shows_hits", "expected"), [
    ("debug", True, "saccade: compiled attend of <program> for host: "), ("INFO", False, ""), ("0", False, ""),
    ("loud", False, "<string>:1: Warning: the environment variable SACCADE_LOG is 'loud', expected 'debug' or 'info'"),
])  # fmt: skip
def test_the_variable_shows_messages(value, shows_hits, expected, monkeypatch):
    monkeypatch.setenv("SACCADE_LOG", value)
    script = f"import saccade; saccade.compile({PROGRAM!r}); saccade.compile({PROGRAM!r})"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert expected in done.stderr
    assert ("cache hit" in done.stderr) == shows_hits


def test_the_steps_of_a_module_are_logged(caplog):
    torch = pytest.importorskip("torch")
    import saccade.torch

    with caplog.at_level(logging.DEBUG, "saccade"):
        saccade.torch.compile(torch.nn.Linear(4, 4).eval(), (torch.randn(2, 4),))
    # The export may take long enough to be an information.
    found = [record.message.partition(":")[0] for record in caplog.records if record.name == "saccade"]
    found = [message for message in found if not message.startswith("still ")]  # of a step that takes ten seconds
    assert found == ["exporting Linear by torch.export", "reading the graph of Linear", "compiled main of <program> for host",
                     "packing 2 weights"]
