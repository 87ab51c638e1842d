"""Model types from shrunken configurations: a subset of what `./dev soak` runs, against docs/reference/model-types.md."""

import ast
import pathlib
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
import model_type_page

SCRIPT = pathlib.Path(__file__).parents[2] / "Fuzz" / "model_types.py"
# Masks that the model's code extends, repeats, inverts or adds; models without SDPA, and with attention of their own;
# sinks of each query.
TYPES = ("albert", "bert", "bloom", "bridgetower", "deepseek_v4", "distilbert", "falcon", "gemma2", "git", "gpt_oss",
         "inkling2_text", "lasr_encoder", "mpt", "siglip2", "splinter")  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """{type: result}, of a run of the script in a process of its own."""
    records = tmp_path_factory.mktemp("types") / "records.jsonl"
    line = [sys.executable, str(SCRIPT), *(f"--type={each}" for each in TYPES), f"--records={records}"]
    found = subprocess.run(line, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout + found.stderr
    each = [ast.literal_eval(line.replace("null", "None")) for line in records.read_text().splitlines()]
    return {record["type"]: model_type_page.result_of(record) for record in each}


@pytest.mark.parametrize("name", TYPES)
def test_a_model_type_is_as_the_page_says(results, name):
    """Equal to "eager", and served or not as the page says."""
    assert results[name] == model_type_page.read()[name]


def test_no_model_type_is_wrong():
    assert "wrong" not in model_type_page.read().values()
