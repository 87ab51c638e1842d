"""The page of a record as a text: one file that loads nothing, of bounded size, and an error leaves the file of before.
test_report_browser.py opens it in a browser."""

import base64
import hashlib
import html.parser
import json
import pathlib
import re
import resource

import drawn_records
import numpy as np
import pytest

from saccade.observe import report
from saccade.observe.record import Event, Map, Received, Tile, to_json

HOSTILE = ("</script><b>", "</script x", "<!--<script x", "]]>", "&amp;", '"', "\\", "\u2028", "\n", "@STYLE@", "", "日本")


class Page(html.parser.HTMLParser):
    """The elements of a page with their attributes, and the texts of scripts and styles."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.texts, self.inside = [], {}, None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = dict(attributes).get("id", tag) if tag in ("script", "style") else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.texts[self.inside] = self.texts.get(self.inside, "") + data

    @property
    def record(self):
        return json.loads(self.texts["record"])


@pytest.fixture(scope="module")
def small():
    return drawn_records.with_events_and_mask(drawn_records.record())


def test_the_page_loads_nothing(small):
    text = report.page(small)
    found = Page(text)
    addresses = [value for _, attributes in found.elements for name, value in attributes.items() if name in ("src", "href")]
    assert addresses == ["data:,"]
    assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttpRequest|\bimport\(", text)
    assert not [attributes for _, attributes in found.elements if any(name.startswith("on") for name in attributes)]


def test_the_policy_permits_this_style_and_this_script_only(small):
    found = Page(report.page(small))
    policy = next(attributes["content"] for tag, attributes in found.elements if "http-equiv" in attributes)
    digest = {name: base64.b64encode(hashlib.sha256(found.texts[name].encode()).digest()).decode() for name in ("style", "script")}
    assert policy == (f"default-src 'none'; img-src data:; style-src 'sha256-{digest['style']}'; "
                      f"script-src 'sha256-{digest['script']}'")  # fmt: skip


def test_tokens_and_names_cannot_end_an_element():
    hostile = drawn_records.record(tokens=HOSTILE)
    hostile.model = "</title><script>alert(1)</script>"
    hostile.events.append(Event(0, "nan", 0, 0, None, None, None, "</script><script>alert(1)</script>"))
    found = Page(report.page(hostile))
    assert [tag for tag, _ in found.elements if tag in ("script", "b")] == ["script", "script"]
    assert found.record["tokens"] == [list(HOSTILE)]
    assert found.record["events"][0]["message"] == hostile.events[0].message


def test_the_page_has_the_record(small):
    found, expected = Page(report.page(small)).record, to_json(small)
    assert found.pop("left_out") == []
    for name in ("layers", "steps", "maps", "received", "tiles", "mask_tiles", "events", "tokens"):
        assert found[name] == expected[name], name
    assert found["statistics"]["entropy"][-1][1][2] == "nan"
    assert found["statistics"]["entropy"][0][0][0] == pytest.approx(expected["statistics"]["entropy"][0][0][0], rel=1e-3)


def test_every_installed_file_is_in_the_page():
    files = {path.name for path in pathlib.Path(report.__file__).with_name("page").iterdir()}
    assert files == {"page.html", "style.css", *(f"{name}.js" for name in report._SCRIPTS)}


def test_12_layers_of_12_heads_and_2048_tokens_fit_in_5_mb(tmp_path):
    """Bytes are random, and there are more tiles than fit: those of each head first, and the page says what is missing."""
    generator = np.random.default_rng(0)
    big = drawn_records.record(layers=12, heads=12, steps=range(0, 100_000, 100))
    big.layers = [type(layer)(layer.name, 0, 12, 2048, 2048, True) for layer in big.layers]
    big.tokens = [[f"token{i}" for i in range(2048)]]
    draw = lambda *shape: generator.integers(0, 256, shape, dtype=np.uint8)
    heads = [(layer, head) for layer in range(12) for head in range(12)]
    big.maps = [Map(1.0, draw(64, 64), *head, 32, 32) for head in heads]
    big.received = [Received(9.0, draw(2048), *head) for head in heads]
    big.tiles = [Tile(1.0, draw(128, 128), 0, 0, 0, first, 0) for first in range(0, 2048, 128)]
    big.tiles += [Tile(1.0, draw(128, 128), *head, 0, 0, 0) for head in heads[1:]]
    big.events = [Event(100, "dead", 0, 0, None, None, None, "the head does nothing")] * 1500
    report.write(big, tmp_path / "report.html")
    assert 3_500_000 < (tmp_path / "report.html").stat().st_size <= 5_000_000
    found = Page((tmp_path / "report.html").read_text(encoding="utf-8")).record
    places = [(tile["layer"], tile["head"]) for tile in found["tiles"]]
    assert len(places) > 100
    assert places == heads[: len(places)]
    assert len(found["maps"]) == 144
    assert len(found["steps"]) == 200
    assert found["steps"][-1] == 99_900
    assert len(found["statistics"]["max"]) == 200
    assert found["left_out"] == ["One of 5 observed steps is shown.", "The first 1000 of 1500 events are shown.",
                                 f"{len(big.tiles) - len(places)} of {len(big.tiles)} tiles of exact weights are in the "
                                 "record only, to keep this file small."]  # fmt: skip


def test_a_full_disk_leaves_the_report_of_before(small, tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            report.write(small, path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert path.read_text() == "before"
    assert list(tmp_path.iterdir()) == [path]


def test_a_path_that_cannot_be_written_leaves_no_file(small, tmp_path):
    with pytest.raises(FileNotFoundError):
        report.write(small, tmp_path / "none" / "report.html")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        report.write(small, tmp_path / "folder")
    assert list(tmp_path.iterdir()) == [tmp_path / "folder"]


def test_a_path_in_place_of_a_record_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"record is 'it.json', expected a saccade.observe.Record"):
        report.write("it.json", tmp_path / "a.html")
