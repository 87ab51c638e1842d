"""A compiled function takes NumPy arrays as they lie in memory and gives new ones, or writes into those of the caller."""

import numpy as np
import programs
import pytest
from programs import expected_attention, refused

import saccade

random = np.random.default_rng(3)
q, k, v = random.standard_normal((3, 2, 3, 7, 16)).astype(np.float32)
q1, k1, v1 = q[0, 0], k[0, 0], v[0, 0]
frozen = [x.copy() for x in (q, k, v)]
for x in frozen:
    x.flags.writeable = False


@pytest.fixture(scope="module")
def expected(attend):
    return attend(q, k, v)


def test_a_result_is_a_new_array_close_to_the_formula(expected):
    assert type(expected) is np.ndarray
    assert expected.dtype == np.float32
    assert expected.flags.c_contiguous
    assert np.abs(expected - expected_attention(q, k, v)).max() < 1e-5


def test_numpy_arrays_need_neither_torch_nor_tvm_ffi(run_script):
    run_script("numpy_calls_process.py")


# --- any memory

wide = np.full((2, 3, 9, 20), np.nan, np.float32)
wide[..., 1:8, 2:18] = k
records = np.zeros((2, 3, 7, 16), [("a", "f4"), ("k", "f4")])
records["k"] = k
MEMORY = {
    "transposed, sliced": (
        np.asfortranarray(q), k.transpose(3, 1, 0, 2).copy().transpose(2, 1, 3, 0), np.repeat(v, 2, -1)[..., ::2]
    ),
    "backwards": (q[::-1].copy()[::-1], np.flip(np.flip(k).copy()), v),
    "padded": (q, wide[..., 1:8, 2:18], v),
    "read-only": frozen,
    "of bytes": (np.frombuffer(q.tobytes(), np.float32).reshape(q.shape), k, v),
    "of a subclass": (q.view(type("Mine", (np.ndarray,), {})), k, v),
    "of records": (q, records["k"], v),
}  # fmt: skip


@pytest.mark.parametrize("inputs", MEMORY.values(), ids=MEMORY)
def test_memory_of_any_kind_gives_equal_bits(attend, expected, inputs):
    assert np.array_equal(attend(*inputs), expected)


def test_broadcast_memory_gives_equal_bits(attend):
    expanded = np.broadcast_to(k[:1, :1], k.shape)
    assert expanded.strides[:2] == (0, 0)
    assert np.array_equal(attend(q, expanded, v), attend(q, expanded.copy(), v))


def test_no_keys_give_zeros(attend):
    assert not attend(q, k[:, :, :0], v[:, :, :0]).any()


def test_no_queries_and_no_batch_give_no_elements(attend):
    assert attend(q[:, :, :0], k, v).shape == (2, 3, 0, 16)
    assert attend(q[:0], k[:0], v[:0]).shape == (0, 3, 7, 16)


# --- types


@pytest.mark.parametrize(("dtype", "element", "bound"), [(np.float64, "f64", 1e-12), (np.float16, "f16", 3e-3)])
def test_a_result_has_the_type_of_the_program(dtype, element, bound):
    arrays = [x.astype(dtype) for x in (q, k, v)]
    found = saccade.compile(programs.attention(element)).attend(*arrays)
    assert found.dtype == dtype
    assert np.abs(found - expected_attention(*arrays)).max() < bound


def test_arrays_of_ml_dtypes_are_bfloat16():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    arrays = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    found = saccade.compile(programs.attention("bf16")).attend(*arrays)
    assert found.dtype == ml_dtypes.bfloat16
    assert np.abs(found - expected_attention(*arrays)).max() < 3e-2


def test_float16_is_no_bfloat16():
    attend = saccade.compile(programs.attention("bf16")).attend
    words = ["argument 'q'", "found element type f16, expected bf16"]
    refused(TypeError, words, attend, *(x.astype(np.float16) for x in (q, k, v)))


# --- names, scalars, several results


def test_inputs_have_names_and_types(capped):
    assert [value.name for value in capped.inputs] == ["q", "k", "v", "n", "cap", "strict"]
    assert [value.dtype for value in capped.inputs[3:]] == ["int64", "float32", "bool"]
    assert capped.inputs[3].shape is None


@pytest.mark.parametrize(
    ("n", "cap", "strict"),
    [(5, 2.5, True), (np.int32(7), np.float32(0.5), np.bool_(False)), (np.array(3), 4, 1), (0, 1, 0)],
    ids=["Python", "NumPy", "array", "int"],
)
def test_scalars_of_any_kind_equal_the_formula(capped, n, cap, strict):
    output, lse = capped(q1, k1, v1, n, cap, strict)
    for found, exact in zip((output, lse), programs.expected_capped(q1, k1, v1, n, cap, strict)):
        assert found.dtype == np.float32
        assert np.allclose(found, exact, atol=1e-5)
    for again in (capped(q1, strict=strict, v=v1, n=n, k=k1, cap=cap), capped(q1, k1, v1, n, cap=cap, strict=strict)):
        assert np.array_equal(again[0], output)
        assert np.array_equal(again[1], lse)


def test_shapes_of_results_are_told_without_a_call(capped):
    assert capped.result_shapes(q1[:4], k1, v1, 5, 2.5, True) == ((4, 16), (4,))
    assert capped.result_shapes(q1[:4], k=k1, v=v1, n=5, cap=2.5, strict=True) == ((4, 16), (4,))


SCALARS = [
    (TypeError, ["capped takes 6 arguments", "missing: cap, strict"], (5,), {}),
    (TypeError, ["capped has no argument 'm'", "q, k, v, n, cap, strict"], (5, 2.5, True), {"m": 3}),
    (TypeError, ["two values for argument 'q'"], (5, 2.5), {"q": q1}),
    (TypeError, ["takes 6 arguments (q, k, v, n, cap, strict), found 7"], (5, 2.5, True, 1), {}),
    (TypeError, ["n is 5.0, expected an integer (index)"], (5.0, 2.5, True), {}),
    (TypeError, ["n is array([5]), expected an integer"], (np.array([5]), 2.5, True), {}),
    (ValueError, ["n is 9223372036854775808, expected -9223372036854775808"], (2**63, 2.5, True), {}),
    (TypeError, ["cap is '2.5', expected a number (f32)"], (5, "2.5", True), {}),
    (ValueError, ["strict is 2, expected 0 ... 1 (i1)"], (5, 2.5, 2), {}),
]


@pytest.mark.parametrize(("kind", "words", "scalars", "named"), SCALARS, ids=[case[1][0] for case in SCALARS])
def test_wrong_arguments_are_refused(capped, kind, words, scalars, named):
    refused(kind, words, capped, q1, k1, v1, *scalars, **named)


# --- the extents of a result may depend on what a tensor holds


@pytest.fixture(scope="module")
def filled():
    return saccade.compile(programs.filled).filled


def test_a_tensor_says_how_long_the_result_is(filled):
    for length in (3, 3, 5, 0, 5):
        found = filled(np.array(length, np.int32), np.array(1.5, np.float32))
        assert found.shape == (length,)
        assert (found == 1.5).all()


def test_a_negative_length_in_a_tensor_is_refused(filled):
    words = ["filled: result 'result' (tensor<?xf32>)", "negative extent -2"]
    refused(ValueError, words, filled, np.array(-2, np.int32), np.array(1.5, np.float32))


# --- what the code refuses, in the words of the program

WRONG = [
    (ValueError, ["argument 'q'", "found extent 15 in dimension 3, expected 16"], (q[..., 1:], k, v)),
    (TypeError, ["argument 'k'", "found 3 dimensions, expected 4"], (q, k[0], v)),
    (TypeError, ["argument 'v'", "found element type i32, expected f32"], (q, k, v.astype(np.int32))),
    (ValueError, ["value", "found 6, expected 7"], (q, k, v[:, :, 1:])),
]


@pytest.mark.parametrize(("kind", "words", "inputs"), WRONG, ids=["extent", "dimensions", "element type", "length"])
def test_arrays_that_do_not_fit_are_refused(attend, kind, words, inputs):
    refused(kind, words, attend, *inputs)


def test_shapes_of_results_of_what_does_not_fit_are_refused(attend):
    refused(ValueError, ["value", "found 6, expected 7"], attend.result_shapes, q, k, v[:, :, 1:])
