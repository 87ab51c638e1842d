"""The record of saccade.observe as a file."""

import json
import os

import numpy
import pytest

from saccade import _files
from saccade.observe.record import STATISTICS, Event, Layer, Map, MaskTiles, Received, Record, Tile


def make_record():
    grid = numpy.arange(6, dtype=numpy.uint8).reshape(2, 3)
    statistics = {name: [[numpy.array([n, numpy.nan, numpy.inf], numpy.float32)]] for n, name in enumerate(STATISTICS)}
    return Record("Model", [Layer("layers.0", 0, 3, 5, 7, True)], [100], statistics,
                  [Map(0.5, grid, 0, 1, 3, 3)], [Received(2.0, grid[0], 0, 1)], [Tile(1.0, grid, 0, 1, 0, 4, 8)],
                  [MaskTiles(0, 128, grid)], [Event(100, "nan", 0, 2, 3, None, "key", "…")], [["a", "ü"]])


def test_saved_records_are_read_back(tmp_path):
    record = make_record()
    record.save(tmp_path / "a.json")
    found = Record.load(tmp_path / "a.json")
    for name in ("model", "layers", "steps", "events", "tokens"):
        assert getattr(found, name) == getattr(record, name)
    for name in STATISTICS:
        numpy.testing.assert_array_equal(found.statistics[name], record.statistics[name])
    numpy.testing.assert_array_equal(found.series("max", 0, 2), [numpy.inf])
    for name in ("maps", "received", "tiles", "mask_tiles"):
        (one,), (other,) = getattr(found, name), getattr(record, name)
        numpy.testing.assert_array_equal(one.values, other.values)
        assert {**vars(one), "values": 0} == {**vars(other), "values": 0}
    numpy.testing.assert_allclose(found.maps[0].numbers()[0], [0, 0.5 / 255, 1 / 255], rtol=1e-6)


def test_unknown_keys_are_ignored(tmp_path):
    make_record().save(tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    found["x"] = found["layers"][0]["x"] = found["maps"][0]["x"] = 1
    (tmp_path / "a.json").write_text(json.dumps(found))
    assert Record.load(tmp_path / "a.json").layers == make_record().layers


@pytest.mark.parametrize(("change", "message"), [
    (lambda x: x.update(version=2), "version 2, expected 1"), (lambda x: x.update(format="x"), "is no record"),
    (lambda x: x.pop("layers"), "malformed record: KeyError: 'layers'"),
    (lambda x: x["maps"][0].update(rows=7), "malformed record"),
    (lambda x: x["tiles"][0].update(values="?"), "malformed record"),
    (lambda x: x["statistics"]["max"].append([]), "not those of 1 steps and 1 layers"),
    (lambda x: x["events"][0].update(layer=1), "layer is 1, expected 0 to 0"),
])  # fmt: skip
def test_other_files_are_refused(tmp_path, change, message):
    make_record().save(tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    change(found)
    (tmp_path / "a.json").write_text(json.dumps(found))
    with pytest.raises(ValueError, match=message):
        Record.load(tmp_path / "a.json")


def test_text_is_no_record(tmp_path):
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match="is no record"):
        Record.load(tmp_path / "a.json")


def test_errors_leave_the_old_file(tmp_path):
    _files.write(tmp_path / "a.json", "before")
    with pytest.raises(UnicodeEncodeError):
        _files.write(tmp_path / "a.json", "x" * 100_000 + "\ud800")
    assert (tmp_path / "a.json").read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == ["a.json"]


@pytest.mark.parametrize("operation", [_files.check_writable, lambda path: make_record().save(path)])
def test_paths_that_cannot_be_written_are_named(tmp_path, operation):
    (tmp_path / "file").touch()
    for name, error in (("missing/a.json", FileNotFoundError), ("file/a.json", NotADirectoryError), (".", IsADirectoryError),
                        ("", IsADirectoryError)):  # fmt: skip
        with pytest.raises(error) as found:
            operation(os.path.join(tmp_path, name))
        assert found.value.filename == os.path.join(tmp_path, name)
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_unknown_statistics_name_the_known_ones(tmp_path):
    make_record().save(tmp_path / "a.json")
    for record in (make_record(), Record.load(tmp_path / "a.json"), Record("Model")):
        with pytest.raises(KeyError, match="expected one of entropy"):
            record.series("mean", 0, 0)


def test_series_of_layers_are_means_or_maxima():
    record = make_record()
    record.statistics["entropy"] = [[numpy.array([1, 2, 6], numpy.float32)]]
    assert record.series("entropy", layer=0) == [3]
    record.statistics["max"] = record.statistics["entropy"]
    assert record.series("max", layer=0) == [6]


@pytest.mark.parametrize(("place", "message"), [
    ((0, 3), "head is 3, expected 0 to 2"), ((0, -1), "head is -1"), ((1, 0), "layer is 1, expected 0 to 0"),
])  # fmt: skip
def test_series_of_missing_heads_say_which_there_are(place, message):
    with pytest.raises(ValueError, match=message):
        make_record().series("entropy", *place)
    with pytest.raises(ValueError, match="layer is 0, but there is none"):
        Record("Model").series("entropy", 0)
