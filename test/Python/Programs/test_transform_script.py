"""The option transform_script: paths, points, a script that changes, and errors."""

import numpy as np
import pytest

import saccade

RANDOM = np.random.default_rng(3)
QUERY = RANDOM.standard_normal((1, 8, 50, 64)).astype(np.float32)
KEY, VALUE = RANDOM.standard_normal((2, 1, 2, 70, 64)).astype(np.float32)
STEPS = """module attributes {transform.with_named_sequence} {
  transform.named_sequence @__transform_main(%program: !transform.any_op {transform.readonly}) {
    %steps = transform.structured.match ops{["attn.accumulate"]} in %program : (!transform.any_op) -> !transform.any_op
    transform.attn.lower_accumulate %steps : !transform.any_op
    transform.yield
  }
}
"""


@pytest.fixture(scope="module")
def graph(root):
    return root / "examples" / "soft-cap.mlir"


@pytest.fixture(scope="module")
def sizes(root):
    return root / "examples" / "schedules" / "tile-sizes.mlir"


@pytest.fixture
def script(tmp_path, sizes):
    path = tmp_path / "script.mlir"
    path.write_text(sizes.read_text())
    return path


@pytest.mark.parametrize("form", [str, lambda path: path, lambda path: [path], lambda path: f"tiling:{path}"])
def test_a_script_sets_tile_sizes(graph, sizes, form):
    module = saccade.compile(graph, transform_script=form(sizes))
    assert "rows = 96, cols = 64" in module.ir("tiling")
    expected = saccade.compile(graph).soft_cap(QUERY, KEY, VALUE)
    assert np.abs(module.soft_cap(QUERY, KEY, VALUE) - expected).max() < 1e-5


def test_scripts_at_two_points(graph, sizes, tmp_path):
    (tmp_path / "steps.mlir").write_text(STEPS)
    module = saccade.compile(graph, transform_script=[sizes, f"codegen.vectors:{tmp_path / 'steps.mlir'}"])
    one = saccade.compile(graph, transform_script=sizes)
    assert np.array_equal(module.soft_cap(QUERY, KEY, VALUE), one.soft_cap(QUERY, KEY, VALUE))


def test_a_relative_path_is_one_of_the_working_directory(graph, script, monkeypatch):
    monkeypatch.chdir(script.parent)
    assert "rows = 96" in saccade.compile(graph, transform_script="script.mlir").ir("tiling")


def test_a_program_is_compiled_again_if_its_script_has_changed(graph, script):
    assert "rows = 96, cols = 64" in saccade.compile(graph, transform_script=script).ir("tiling")
    before = saccade.compile(graph, transform_script=script).soft_cap(QUERY, KEY, VALUE)
    script.write_text(script.read_text().replace("cols = 64", "cols = 16"))
    assert "rows = 96, cols = 16" in saccade.compile(graph, transform_script=script).ir("tiling")
    after = saccade.compile(graph, transform_script=script).soft_cap(QUERY, KEY, VALUE)
    assert not np.array_equal(before, after)
    assert np.abs(before - after).max() < 1e-5


def test_a_step_that_fails_is_an_error_of_the_script(graph, script):
    script.write_text(script.read_text().replace("96", "97"))
    with pytest.raises(saccade.CompileError, match="tile_queries has 97 rows, expected a multiple of 12") as caught:
        saccade.compile(graph, transform_script=script)
    assert "script.mlir" in str(caught.value)


@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("missing.mlir", ValueError, "cannot read the script 'missing.mlir'"),
        ("tiling:", ValueError, "expected .POINT:.FILE"),
        (3, TypeError, "expected a path or a list of paths"),
    ],
)
def test_other_values_are_refused(graph, value, error, message):
    with pytest.raises(error, match=message):
        saccade.compile(graph, transform_script=value)
