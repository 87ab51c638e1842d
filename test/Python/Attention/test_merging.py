"""saccade.merge_state: attention over disjoint sets of keys."""

import re

import numpy as np
import pytest

import saccade

RNG = np.random.default_rng(3)


def states(count, shape=(2, 3, 7, 16), dtype=np.float32):
    """Random states; a quarter of the rows have no keys, and log-sum-exps differ by up to hundreds."""
    result = []
    for _ in range(count):
        lse = (RNG.standard_normal(shape[:3]) * RNG.choice([1, 100], shape[:3])).astype(dtype)
        empty = RNG.random(shape[:3]) < 0.25
        lse[empty] = -np.inf
        out = RNG.standard_normal(shape).astype(dtype)
        out[empty] = 0
        result.append((out, lse))
    return result


def close(found, expected, tolerance=3e-6):
    for x, y in zip(found, expected):
        np.testing.assert_allclose(x, y, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("seed", range(20))
def test_grouping_and_order_do_not_matter(seed):
    a, b, c = states(3)
    left = saccade.merge_state(*saccade.merge_state(*a, *b), *c)
    close(left, saccade.merge_state(*a, *saccade.merge_state(*b, *c)))
    close(left, saccade.merge_state(*c, *saccade.merge_state(*b, *a)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_empty_state_is_the_identity(dtype):
    [a] = states(1, dtype=dtype)
    empty = np.zeros_like(a[0]), np.full_like(a[1], -np.inf)
    for merged in (saccade.merge_state(*a, *empty), saccade.merge_state(*empty, *a)):
        assert all(np.array_equal(x, y) for x, y in zip(merged, a))
    assert not np.isnan(saccade.merge_state(*empty, *empty)[0]).any()


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "shd"])
def test_a_shared_prefix_and_the_rest_of_each_sequence(layout):
    q, k, v = (np.asarray(RNG.standard_normal((2, 4, n, 32)), np.float32) for n in (5, 70, 70))
    k[:, :, :50], v[:, :, :50] = k[:1, :, :50], v[:1, :, :50]
    expected = saccade.attention(q, k, v, causal="bottom_right", return_lse=True)
    # All queries of a head attend to the prefix in one call, as if they belonged to one sequence.
    together = q.transpose(1, 0, 2, 3).reshape(1, 4, 10, 32)
    out, lse = saccade.attention(together, k[:1, :, :50], v[:1, :, :50], return_lse=True)
    prefix = (out.reshape(4, 2, 5, 32).transpose(1, 0, 2, 3), lse.reshape(4, 2, 5).transpose(1, 0, 2))
    rest = saccade.attention(q, k[:, :, 50:], v[:, :, 50:], causal="bottom_right", return_lse=True)
    if layout == "bhsd":
        return close(saccade.merge_state(*prefix, *rest), expected)
    order = [0, 2, 1, 3]
    prefix, rest, expected = ((out.transpose(order), lse) for out, lse in (prefix, rest, expected))
    if layout == "shd":
        prefix, rest, expected = ((out[0], lse[0]) for out, lse in (prefix, rest, expected))
    close(saccade.merge_state(*prefix, *rest, layout=layout), expected)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_outputs_of_16_bits(dtype):
    torch = pytest.importorskip("torch")
    (a, la), (b, lb) = ([torch.from_numpy(x) for x in state] for state in states(2))
    a, b = a.to(getattr(torch, dtype)), b.to(getattr(torch, dtype))
    out, lse = saccade.merge_state(a, la, b, lb)
    expected = saccade.merge_state(a.float(), la, b.float(), lb)
    assert torch.equal(out, expected[0].to(out.dtype)) and torch.equal(lse, expected[1])


@pytest.mark.parametrize(("change", "error", "message"), [
    ({"other_lse": np.zeros((2, 3, 8), np.float32)}, ValueError, "other_lse has shape (2, 3, 8), expected (2, 3, 7)"),
    ({"other_out": np.zeros((2, 3, 7, 8), np.float32)}, ValueError, "other_out has shape (2, 3, 7, 8), expected (2, 3, 7, 16)"),
    ({"lse": np.zeros((2, 3, 7))}, TypeError, "lse has element type float64, expected float32"),
    ({"lse": np.zeros((2, 3), np.float32)}, TypeError, "lse has 2 dimensions, expected 3"),
    ({"out": np.zeros((2, 3, 7, 16), np.int32)}, TypeError, "out has element type int32"),
    ({"out": 1}, TypeError, "out is an int, expected a torch CPU tensor or a NumPy array"),
    ({"out": [[1.0]]}, TypeError, "out is a list, expected a torch CPU tensor or a NumPy array"),
    ({"lse": None}, TypeError, "lse is None, expected a torch CPU tensor or a NumPy array"),
])  # fmt: skip
def test_errors(change, error, message):
    (out, lse), (other_out, other_lse) = states(2)
    arguments = {"out": out, "lse": lse, "other_out": other_out, "other_lse": other_lse, **change}
    with pytest.raises(error, match=re.escape(message)):
        saccade.merge_state(**arguments)


def test_an_error_of_mixed_libraries_names_the_first_argument():
    torch = pytest.importorskip("torch")
    (out, lse), (other_out, other_lse) = states(2)
    with pytest.raises(TypeError, match="lse is a NumPy array, expected a torch tensor, as out is"):
        saccade.merge_state(torch.from_numpy(out), lse, other_out, other_lse)
