"""Compiled programs in files: processes take them from there, and nothing that is wrong with a file or the directory
gives an error or a wrong result. Most tests run a fresh process."""

import json
import os
import pathlib
import shutil
import stat

import programs
import pytest
from programs import refused

import saccade
from saccade import _disk_cache


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "saccade"


@pytest.fixture
def compile_in_process(run_script, directory):
    """Compiles in a fresh process with the directory, or another value of SACCADE_CACHE; returns what it reports."""

    def compile(what="compile", cache=directory, **environment):
        return json.loads(run_script("disk_cache_process.py", what, SACCADE_CACHE=str(cache), **environment))

    return compile


def counts(report):
    """Compilations, and hits and misses on disk."""
    info = report["info"]
    return info["compilations"], info["disk_hits"], info["disk_misses"]


def entries(directory):
    return sorted(directory.glob("*.entry"))


@pytest.mark.parametrize("what", ["attention", "bind"])
def test_another_process_does_not_compile(compile_in_process, directory, what):
    first = compile_in_process(what)
    programs_of_it = {"attention": 1, "bind": 2}[what]
    assert counts(first) == (programs_of_it, 0, programs_of_it)
    assert len(entries(directory)) == programs_of_it
    second = compile_in_process(what)
    assert counts(second) == (0, programs_of_it, 0)
    assert second["sum"] == first["sum"]
    assert second["directory"] == str(directory)


def test_frontends_write_equal_programs_in_every_process(run_script, directory):
    for package in ("torch", "jax", "onnx"):
        pytest.importorskip(package)
    for seed, hits in (("1", 0), ("2", 3)):  # the order of sets of strings depends on it
        text = run_script("disk_cache_frontends_process.py", SACCADE_CACHE=str(directory), PYTHONHASHSEED=seed)
        info = json.loads(text)
        assert (info["disk_hits"], info["compilations"]) == (hits, 3 - hits)


def test_warnings_are_issued_by_every_process(compile_in_process):
    first, second = compile_in_process("lint"), compile_in_process("lint")
    assert counts(second) == (0, 1, 0)
    assert len(first["warnings"]) == 1 and "scale is 1/√512" in first["warnings"][0]
    assert second["warnings"] == first["warnings"]


def test_a_damaged_file_is_compiled_again(compile_in_process, directory):
    first = compile_in_process()
    (entry,) = entries(directory)
    data = bytearray(entry.read_bytes())
    data[len(data) // 2] ^= 16
    entry.write_bytes(data)
    again = compile_in_process()
    assert counts(again) == (1, 0, 1) and again["sum"] == first["sum"]
    assert counts(compile_in_process()) == (0, 1, 0)


def test_the_directory_is_private(compile_in_process, directory):
    compile_in_process()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert all(stat.S_IMODE(entry.stat().st_mode) == 0o600 for entry in entries(directory))


def test_an_unsafe_default_directory_is_a_warning(compile_in_process, directory):
    directory.mkdir()
    directory.chmod(0o777)
    report = compile_in_process("compile", "1", XDG_CACHE_HOME=str(directory.parent))
    assert counts(report) == (1, 0, 0) and report["directory"] is None
    (message,) = report["warnings"]
    assert "other users can write it (mode 777), expected a mode like 700; SACCADE_CACHE=0 disables" in message
    assert not entries(directory)


def test_a_directory_that_cannot_be_made_is_no_error(compile_in_process, tmp_path):
    (tmp_path / "file").write_text("no directory")
    report = compile_in_process(cache=tmp_path / "file" / "below")
    assert counts(report) == (1, 0, 1) and not report["warnings"]


# --- the choice of the directory


@pytest.mark.parametrize(
    ("cache", "base", "expected"),
    [
        (None, "/base", "/base/saccade"),
        ("1", "/base", "/base/saccade"),
        ("1", "", "/somewhere/.cache/saccade"),
        ("1", "relative", "/somewhere/.cache/saccade"),
        ("", "/base", "/base/saccade"),
        ("0", "/base", None),
        ("/elsewhere", "/base", "/elsewhere"),
    ],
)
def test_the_environment_chooses_the_directory(monkeypatch, cache, base, expected):
    monkeypatch.setenv("HOME", "/somewhere")
    monkeypatch.setenv("XDG_CACHE_HOME", base)
    monkeypatch.delenv("SACCADE_CACHE") if cache is None else monkeypatch.setenv("SACCADE_CACHE", cache)
    assert _disk_cache.default_directory() == expected


@pytest.mark.parametrize("value", ["yes", "relative/path"])
def test_a_wrong_environment_is_refused(monkeypatch, value):
    monkeypatch.setenv("SACCADE_CACHE", value)
    refused(ValueError, ["SACCADE_CACHE", repr(value), "0, 1 or an absolute path"], _disk_cache.default_directory)


@pytest.fixture
def chosen(directory):
    """The cache of this process in the directory."""
    before = saccade.disk_cache()
    saccade.set_disk_cache(directory)
    saccade.cache_clear()
    yield directory
    saccade.set_disk_cache(before)


def test_a_process_may_choose_and_clear(chosen):
    assert saccade.disk_cache() == str(chosen)
    saccade.compile(programs.attention())
    saccade.cache_clear()
    saccade.compile(programs.attention())
    assert saccade.cache_info() == (0, 0, 1, 1, 0)
    saccade.cache_clear(disk=True)
    assert not entries(chosen)
    assert saccade.cache_info() == (0, 0, 0, 0, 0)
    saccade.compile(programs.attention())
    assert saccade.cache_info() == (0, 1, 1, 0, 1)
    saccade.set_disk_cache(None)
    assert saccade.disk_cache() is None
    saccade.cache_clear(disk=True)
    assert len(entries(chosen)) == 1


def test_a_relative_directory_is_that_of_the_call(chosen, monkeypatch):
    monkeypatch.chdir(chosen.parent)
    saccade.set_disk_cache("relative")
    assert saccade.disk_cache() == str(chosen.parent / "relative")


def test_the_size_is_limited(chosen):
    for age, name in enumerate(["oldest", "older", "old"]):
        known = entries(chosen)
        saccade.compile(programs.attention("f32", name))
        (entry,) = set(entries(chosen)) - set(known)
        os.utime(entry, (1e9 + age, 1e9 + age))
    os.utime(chosen / "last-prune", (0, 0))
    saccade.set_disk_cache(chosen, max_bytes=2 * entry.stat().st_size + 8192)
    saccade.compile(programs.attention("f32", "new"))
    assert len(entries(chosen)) == 2
    saccade.cache_clear()
    for name in ("old", "new"):
        saccade.compile(programs.attention("f32", name))
    assert saccade.cache_info().disk_hits == 2


def test_clearing_reports_what_it_cannot_remove(chosen):
    saccade.compile(programs.attention())
    (chosen / "x.entry").mkdir()
    refused(OSError, ["cannot remove", "x.entry"], saccade.cache_clear, disk=True)
    shutil.rmtree(chosen)
    saccade.cache_clear(disk=True)


def test_an_unsafe_directory_is_refused(directory):
    before = saccade.disk_cache()
    directory.mkdir()
    directory.chmod(0o770)
    refused(ValueError, [str(directory), "mode 770", "like 700"], saccade.set_disk_cache, directory)
    assert saccade.disk_cache() is None
    directory.rmdir()
    directory.write_text("a file")
    refused(ValueError, [str(directory), "not a directory"], saccade.set_disk_cache, directory)
    saccade.set_disk_cache(before)


@pytest.mark.parametrize(
    ("exception", "words", "arguments"),
    [
        (TypeError, ["directory is 3", "expected a path"], (3,)),
        (ValueError, ["null character"], ("a\0b",)),
        (TypeError, ["max_bytes is '1 GiB'", "expected an int"], ("/x", "1 GiB")),
        (ValueError, ["max_bytes is 0", "1 or more"], ("/x", 0)),
        (ValueError, ["max_bytes is", "1 or more"], ("/x", 1 << 64)),
    ],
)
def test_wrong_arguments_are_refused(exception, words, arguments):
    before = saccade.disk_cache()
    refused(exception, words, saccade.set_disk_cache, *arguments)
    assert saccade.disk_cache() == before


def test_tests_use_no_directory_of_the_user():
    assert os.environ["SACCADE_CACHE"] == "0"
    assert saccade.disk_cache() is None or pathlib.Path.home() not in pathlib.Path(saccade.disk_cache()).parents
