"""`saccade.run` returns the function's results as arrays, and raises an exception with the tool's exit code where the
tool refuses the call."""

import numpy as np
import pytest

import saccade

RANDOM = np.random.default_rng(7)
QUERY = RANDOM.standard_normal((1, 8, 5, 64)).astype(np.float32)
KEY, VALUE = RANDOM.standard_normal((2, 1, 2, 9, 64)).astype(np.float32)
SLOPE = np.linspace(0.1, 0.8, 8, dtype=np.float32)


@pytest.fixture(scope="module")
def graph(root):
    return root / "examples" / "alibi.mlir"


@pytest.fixture(scope="module")
def output(graph):
    (output,), _ = saccade.run(graph, "alibi", [QUERY, KEY, VALUE, SLOPE])
    return output


def test_result_agrees_with_numpy(output):
    # In float64: 4 query heads a KV head, causal from the end.
    wide = lambda x: np.repeat(x.astype(np.float64), 4, axis=1)
    distance = np.arange(9)[None, :] - np.arange(5)[:, None]
    scores = np.einsum("bhqd,bhkd->bhqk", QUERY.astype(np.float64), wide(KEY)) / 8 + SLOPE[:, None, None] * distance
    scores = np.where(distance <= 4, scores, -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    expected = np.einsum("bhqk,bhkd->bhqd", p / p.sum(-1, keepdims=True), wide(VALUE))
    assert output.dtype == np.float32
    assert output.shape == (1, 8, 5, 64)
    assert np.abs(output - expected).max() < 1e-5


def test_elements_of_a_view_that_is_not_contiguous_count(graph, output):
    (again,), _ = saccade.run(graph, "alibi", [np.asfortranarray(QUERY), KEY, VALUE, SLOPE])
    assert np.array_equal(again, output)


@pytest.mark.parametrize(("arguments", "code"), [
    pytest.param([QUERY, KEY, VALUE], 2, id="count"), pytest.param([QUERY, KEY[:, :1], VALUE, SLOPE], 1, id="heads"),
])  # fmt: skip
def test_wrong_call_is_refused_with_the_exit_code(graph, arguments, code):
    with pytest.raises(saccade.ToolError) as failure:
        saccade.run(graph, "alibi", arguments)
    assert failure.value.code == code
    assert str(failure.value)
