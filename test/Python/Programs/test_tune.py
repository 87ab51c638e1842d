"""saccade.tune: which tiles become entries, tables that the compiler reads, and runs that are continued."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import programs
import pytest

import saccade
from saccade.tune import Case, ShapeClass, Tiles, search, tune
from saccade.tune.__main__ import Progress, table_of, write_table
from saccade.tune.__main__ import main as tune_main

kind = ShapeClass("f32", 16, 32)
cases = (Case("full", 1, 2, 40, 40), Case("causal", 1, 2, 40, 56))
small, large = Tiles(48, 64), Tiles(96, 128)


@pytest.fixture
def speeds(monkeypatch):
    """Replaces the measured ratios of pairs: a function of tiles, case and number of pairs. Counts the measurements."""
    taken = []

    def plant(ratios):
        def measure(shape_class, default, module, tiles, cases, pairs, is_final):
            taken.append((tiles, is_final))
            logarithms = {str(case): np.log(ratios(tiles, case, pairs)) for case in cases}
            medians = {case: float(np.exp(np.median(each))) for case, each in logarithms.items()}
            return search.Measurement(tiles, is_final, medians, search.lower_bound(list(logarithms.values())))

        monkeypatch.setattr(search, "measure", measure)
        return taken

    return plant


def constant(speed):
    return lambda tiles, case, pairs: np.full(pairs, speed(tiles, case))


def test_faster_tiles_win(speeds):
    speeds(constant(lambda tiles, case: {small: 1.1, large: 1.2}[tiles]))
    result = tune(kind, cases=cases, tiles=[small, large])
    assert result.best.tiles == large
    assert result.best.mean == pytest.approx(1.2)


@pytest.mark.parametrize("ratios", [
    pytest.param(constant(lambda tiles, case: 0.99), id="slower"),
    pytest.param(constant(lambda tiles, case: 1.005), id="hardly faster"),
    pytest.param(constant(lambda tiles, case: 1.3 if case.mask == "full" else 0.95), id="one case is slower"),
    pytest.param(lambda tiles, case, pairs: np.tile([0.5, 1.02, 1.8], pairs)[:pairs], id="noise"),
    pytest.param(lambda tiles, case, pairs: np.full(pairs, 1.5 if pairs == search.SCREENING else 1.0), id="lucky"),
])  # fmt: skip
def test_no_entry_unless_better(speeds, tmp_path, ratios):
    speeds(ratios)
    result = tune(kind, cases=cases, tiles=[small, large])
    assert result.best is None
    # An entry of an earlier run is not better any more.
    table = tmp_path / "table.json"
    row = {"element": "f32", "head_size": 16, "value_head_size": 32, "rows": 48, "cols": 64}
    other = {**row, "target": "v3", "head_size": 8}
    table.write_text(json.dumps({"version": 1, "entries": [{**row, "target": result.target}, other]}))
    write_table(str(table), [result])
    assert json.loads(table.read_text())["entries"] == [other]
    assert "default" in table_of([result])


def test_tiles_with_wrong_results_are_no_measurement():
    default, other = (saccade.compile(kind.program()) for _ in range(2))
    operands = kind.operands(cases[0])
    assert search.measure(kind, default, other, small, cases, 3, True).ratios.keys() == {str(case) for case in cases}

    class Wrong:
        def __getitem__(self, name):
            return lambda *operands, out=None: default[name](*operands) + 1

    assert np.allclose(default["full"](*operands), other["full"](*operands))
    assert search.measure(kind, default, Wrong(), small, cases, 3, True).ratios == {}


def test_calls_alternate():
    calls = []
    functions = [lambda *_, out: calls.append("new"), lambda *_, out: calls.append("default")]
    assert len(search.compare(functions, [], [None, None], 2)) == 2
    assert calls == ["new", "default", "default", "new"]


def test_table_is_what_the_compiler_reads(speeds, tmp_path):
    speeds(constant(lambda tiles, case: 1.1))
    result = tune(kind, cases=cases, tiles=[small])
    table = tmp_path / "table.json"
    write_table(str(table), [result])
    q, k, v = kind.operands(cases[0])
    tuned = saccade.compile(kind.program(), schedule_table=str(table))
    assert str(small) in tuned.ir("schedule")
    assert str(small) not in saccade.compile(kind.program()).ir("schedule")
    assert np.allclose(tuned["full"](q, k, v), saccade.compile(kind.program())["full"](q, k, v), atol=1e-5)
    # A changed table is read again.
    write_table(str(table), [])
    table.write_text(table.read_text().replace('"rows": 48', '"rows": 96'))
    assert "rows = 96, cols = 64" in saccade.compile(kind.program(), schedule_table=str(table)).ir("schedule")


def test_a_table_is_given_by_a_path(tmp_path, monkeypatch):
    entry = '{"target": "v3", "element": "f32", "head_size": 16, "value_head_size": 16, "rows": ROWS, "cols": 64}'
    (tmp_path / "table.json").write_text(f'{{"version": 1, "entries": [\n{entry.replace("ROWS", "60")}]}}')
    (tmp_path / "wrong.json").write_text(f'{{"version": 1, "entries": [\n{entry.replace("ROWS", "61")}]}}')
    monkeypatch.chdir(tmp_path)
    for table in (tmp_path / "table.json", pathlib.Path("table.json"), "table.json"):
        text = saccade.compile(programs.attention(), target="v3", schedule_table=table).ir("schedule")
        assert "rows = 60, cols = 64" in text
    with pytest.raises(saccade.CompileError, match=r"entry 0 .* rows are 61, expected a multiple of 12") as caught:
        saccade.compile(programs.attention(), target="v3", schedule_table=pathlib.Path("wrong.json"))
    assert "wrong.json:2:1" in str(caught.value)


def test_interrupted_run_continues(speeds, tmp_path):
    taken = speeds(constant(lambda tiles, case: 1.1))
    path = str(tmp_path / "table.json.progress")
    first = Progress(path, "settings")
    report = lambda measurement, number, count: first.add(kind, measurement)
    tune(kind, cases=cases, tiles=[small], report=report)
    with open(path, "a") as file:
        file.write('{"class": "f32')
    assert taken == [(small, False), (small, True)]
    again = Progress(path, "settings")
    result = tune(kind, cases=cases, tiles=[small, large], known=again.of(kind))
    assert taken[2:] == [(large, False), (large, True)]
    assert result.best.tiles == small
    assert Progress(path, "other settings").of(kind) == []


def test_command(tmp_path):
    table = tmp_path / "table.json"
    command = [sys.executable, "-m", "saccade.tune", "f32:16", "-o", str(table), "--tiles=48x64", "--case=full:1x1x20x20"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"SACCADE_CACHE": "0"})
    assert done.returncode == 0, done.stderr
    assert "f32:16:16 1/2 screened 48 rows, 64 keys: " in done.stderr
    assert done.stdout.startswith("class ")
    assert json.loads(table.read_text())["version"] == 1
    assert os.listdir(tmp_path) == ["table.json"]


@pytest.mark.parametrize(("arguments", "code", "message"), [
    (["f33:64", "-o", "t.json"], 2, "'f33:64' is no class, expected ELEMENT:HEAD_SIZE"),
    (["f32:0", "-o", "t.json"], 2, "'f32:0' has a head size of 0"),
    (["f32:64", "-o", "t.json", "--case=full:1x2"], 2, "'full:1x2' is no case"),
    (["f32:9000", "-o", "t.json"], 1, "head size of key is 9000, expected at most 8192"),
    (["f32:16", "-o", "missing/t.json", "--tiles=48x64", "--case=full:1x1x4x4"], 3, "missing/t.json.progress: No such file"),
])  # fmt: skip
def test_errors(tmp_path, arguments, code, message):
    done = subprocess.run([sys.executable, "-m", "saccade.tune", *arguments], capture_output=True, text=True, cwd=tmp_path,
                          env=os.environ | {"PYTHONPATH": os.path.abspath(os.environ.get("PYTHONPATH", ""))})
    assert done.returncode == code, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(("arguments", "message"), [
    (["--tiles=48"], "'48' of --tiles is no pair of sizes"),
    (["--tiles=0x0"], "'0x0' of --tiles is no pair of sizes"),
    (["--target=nope"], "'nope'"),
    (["--target=aarch64"], "architecture"),
])
def test_invalid_options_are_messages(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.setattr(sys, "argv", ["saccade-tune", "f32:8", "-o", str(tmp_path / "table.json"), *arguments])
    try:
        code = tune_main()
    except SystemExit as error:
        code = error.code
    assert code in (1, 2) and message in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"entries": [{}]}', '{"version": 1}'])
def test_a_file_that_is_no_table_is_refused_before_measuring(tmp_path, capsys, monkeypatch, text):
    table = tmp_path / "table.json"
    table.write_text(text)
    monkeypatch.setattr(sys, "argv", ["saccade-tune", "f32:8", "-o", str(table)])
    assert tune_main() == 1 and "is no table of schedules" in capsys.readouterr().err
    assert table.read_text() == text


def test_a_part_of_a_line_is_skipped(tmp_path):
    path = tmp_path / "table.json.progress"
    path.write_text('{"class": "f32:8", "sett')
    progress = Progress(str(path), "settings")
    measurement = search.Measurement(Tiles(24, 64), True, {"case": 1.0}, 0.9)
    progress.add(ShapeClass.parse("f32:8"), measurement)
    assert Progress(str(path), "settings").of(ShapeClass.parse("f32:8")) == [measurement]
