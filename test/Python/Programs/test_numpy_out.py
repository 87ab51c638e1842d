"""`out` and `into` of a compiled function write into NumPy arrays of the caller, with any strides."""

import numpy as np
import pytest
from programs import refused

q, k, v = np.random.default_rng(3).standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
q1, k1, v1 = q[0, 0], k[0, 0], v[0, 0]
frozen = q.copy()
frozen.flags.writeable = False


@pytest.fixture(scope="module")
def expected(attend):
    return attend(q, k, v)


@pytest.fixture
def turned():
    """Memory for the output, in another order of dimensions."""
    return np.full((7, 2, 16, 3), np.nan, np.float32).transpose(1, 3, 0, 2)


@pytest.fixture
def outs():
    """Memory for the results of @capped."""
    return np.full((7, 16), np.nan, np.float32), np.full(7, np.nan, np.float32)


def test_out_takes_the_output(attend, expected):
    out = np.full_like(q, np.nan)
    assert attend(q, k, v, out=out) is out
    assert np.array_equal(out, expected)


def test_out_of_any_strides_takes_the_output(attend, expected, turned):
    assert np.array_equal(attend(q, k, v, out=turned), expected)


def test_out_takes_several_results(capped, outs):
    assert capped(q1, k1, v1, 5, 2.5, True, out=outs) is outs
    assert np.array_equal(outs[0], capped(q1, k1, v1, 5, 2.5, True)[0])


def test_into_writes_the_output(attend, expected):
    into = np.empty_like(q)
    assert attend.into(q, k, v, into) is None
    assert np.array_equal(into, expected)


# And not the other way round.
@pytest.mark.parametrize("numbers", [(5, 2, True), (np.int32(5), np.float64(2), 1)], ids=["Python", "NumPy"])
def test_into_takes_an_int_for_a_float(capped, outs, numbers):
    capped.into(q1, k1, v1, *numbers, *outs)
    assert np.array_equal(outs[0], capped(q1, k1, v1, 5, 2.0, True)[0])


def test_into_refuses_wrong_arguments(attend, capped, outs):
    into = np.empty_like(q)
    refused(TypeError, ["n is 5.0, expected an integer (index)"], capped.into, q1, k1, v1, 5.0, 2.5, True, *outs)
    refused(TypeError, ["found 5 arguments, expected 6 inputs"], capped.into, q1, k1, v1, 5, 2.5)
    refused(TypeError, ["k is a list, expected"], attend.into, q, [1.0], v, into)
    refused(TypeError, ["k has dtype >f4", "other byte order"], attend.into, q, k.astype(">f4"), v, into)
    refused(ValueError, ["output is a read-only NumPy array"], attend.into, q, k, v, frozen)


def test_out_of_another_shape_or_type_is_refused(attend, turned):
    words = ["result 'output'", "found extent 6 in dimension 2, expected 7"]
    refused(ValueError, words, attend, q, k, v, out=turned[:, :, :6])
    words = ["result 'output'", "element type f64, expected f32"]
    refused(TypeError, words, attend, q, k, v, out=turned.astype(float))


def test_out_with_another_number_of_arrays_is_refused(attend, capped, outs):
    refused(TypeError, ["out has 2 arrays, expected 1"], attend, q, k, v, out=outs)
    refused(TypeError, ["out has 1 arrays, expected 2"], capped, q1, k1, v1, 5, 2.5, True, out=outs[0])


def test_out_that_is_no_array_is_refused(capped, outs):
    refused(TypeError, ["out[1] is a list"], capped, q1, k1, v1, 5, 2.5, True, out=(outs[0], []))


def test_out_that_cannot_be_written_is_refused(attend):
    refused(ValueError, ["out is a read-only NumPy array"], attend, q, k, v, out=frozen)


def test_out_that_overlaps_with_an_input_is_refused(attend):
    refused(ValueError, ["overlap"], attend, q, k, v, out=q)
