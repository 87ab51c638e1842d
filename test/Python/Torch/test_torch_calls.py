"""A compiled function takes torch tensors as they lie in memory. It returns new tensors, or writes into those of the
caller."""

import pytest

pytest.importorskip("torch")

import numpy as np
import programs
import torch
from programs import refused

import saccade
from saccade import _arrays
from saccade.function import Function

torch.manual_seed(3)
q, k, v = torch.randn(3, 2, 3, 7, 16)
q1, k1, v1 = q[0, 0], k[0, 0], v[0, 0]


@pytest.fixture(scope="module")
def filled():
    return saccade.compile(programs.filled).filled


@pytest.fixture(scope="module")
def expected(attend):
    """The result for q, k and v, which all calls must repeat to the bit."""
    return attend(q, k, v)


@pytest.fixture
def same(attend, expected):
    """Calls the function and asserts that the result is the expected one to the bit."""

    def call(*inputs, **named):
        found = attend(*inputs, **named)
        assert torch.equal(found, expected), (found - expected).abs().max()
        return found

    return call


@pytest.fixture
def float64_by_default():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


def test_result_is_a_contiguous_tensor_that_agrees_with_float64(expected):
    assert type(expected) is torch.Tensor
    assert expected.dtype == torch.float32
    assert expected.is_contiguous()
    assert np.abs(expected.numpy() - programs.expected_attention(q, k, v)).max() < 1e-5


# --- Any memory.


def test_permuted_tensors_are_taken(same):
    same(q.transpose(1, 2).contiguous().transpose(1, 2), k.permute(3, 1, 0, 2).contiguous().permute(2, 1, 3, 0), v)


def test_slice_of_a_larger_tensor_is_taken(same):
    wide = torch.full((2, 3, 9, 20), torch.nan)
    wide[..., 1:8, 2:18] = k
    same(q, wide[..., 1:8, 2:18], v)


def test_parameters_and_subclasses_are_taken(same):
    same(torch.nn.Parameter(q, requires_grad=False), k.as_subclass(type("Mine", (torch.Tensor,), {})), v)


def test_expanded_tensor_is_taken(attend):
    expanded = k[:1, :1].expand(k.shape)
    assert torch.equal(attend(q, expanded, v), attend(q, expanded.contiguous(), v))


def test_empty_tensors_are_taken(attend):
    assert not attend(q, k[:, :, :0], v[:, :, :0]).any()
    assert attend(q[:, :, :0], k, v).shape == (2, 3, 0, 16)
    assert attend(q[:0], k[:0], v[:0]).shape == (0, 3, 7, 16)


def test_tensors_of_inference_mode_are_taken(same):
    with torch.inference_mode():
        same(q.clone(), k, v)


def test_tensor_that_requires_grad_is_taken_under_no_grad(same):
    with torch.no_grad():
        same(q.clone().requires_grad_(), k, v)


def test_default_dtype_does_not_matter(same, float64_by_default):
    same(q, k, v)


def test_default_device_does_not_matter(same):
    with torch.device("meta"):
        same(q, k, v)


@pytest.mark.parametrize(
    ("dtype", "element", "bound"),
    [(torch.float64, "f64", 1e-12), (torch.float16, "f16", 3e-3), (torch.bfloat16, "bf16", 3e-2)],
    ids=["f64", "f16", "bf16"],
)
def test_result_has_the_type_of_the_inputs(dtype, element, bound):
    tensors = [x.to(dtype) for x in (q, k, v)]
    found = saccade.compile(programs.attention(element)).attend(*tensors)
    exact = programs.expected_attention(*[x.double() for x in tensors])
    assert found.dtype == dtype
    assert np.abs(found.double().numpy() - exact).max() < bound


# --- The shortest path of a call.


def test_plain_tensors_skip_the_checks_of_other_tensors(same, monkeypatch):
    monkeypatch.setattr(_arrays, "check_torch", None)
    same(q, torch.nn.Parameter(k, requires_grad=False), v)


def test_calls_with_tensors_alone_go_through_tvm_ffi(same, attend, monkeypatch):
    monkeypatch.setattr(Function, "_call_described", None)
    same(q, k, v)
    same(q, k, v, out=torch.empty_like(q))


# --- Where the result is written.


def test_one_torch_tensor_beside_arrays_makes_the_result_a_tensor(same):
    for inputs in ((q, k.numpy(), v), (q.numpy(), k.numpy(), v)):
        assert type(same(*inputs)) is torch.Tensor


@pytest.mark.parametrize("make_out", [
    pytest.param(lambda: torch.empty_like(q), id="contiguous"),
    pytest.param(lambda: torch.full((7, 2, 16, 3), torch.nan).permute(1, 3, 0, 2), id="permuted"),
])  # fmt: skip
def test_out_is_written_and_autograd_sees_it(same, make_out):
    out = make_out()
    version = out._version
    assert same(q, k, v, out=out) is out
    assert out._version > version, "autograd must see that out was written"


def test_array_as_out_of_tensors_is_written(attend, expected):
    array = np.empty(q.shape, np.float32)
    assert attend(q, k, v, out=array) is array
    assert np.array_equal(array, expected.numpy())


def test_tensor_as_out_of_arrays_is_written(same):
    out = torch.empty_like(q)
    assert same(q.numpy(), k.numpy(), v.numpy(), out=out) is out
    assert out._version == 1


# --- Names, scalars, several results, no dimensions.


@pytest.mark.parametrize(
    ("n", "cap", "strict"),
    [(5, 2.5, True), (np.int32(7), np.float32(0.5), np.bool_(False)), (torch.tensor(3), 4, 0)],
    ids=["python", "numpy", "torch"],
)
def test_scalars_of_python_numpy_and_torch_are_taken(capped, n, cap, strict):
    output, lse = capped(q1, k1, v1, n, strict=strict, cap=cap)
    for found, exact in zip((output, lse), programs.expected_capped(q1, k1, v1, int(n), cap, strict)):
        assert type(found) is torch.Tensor
        assert np.allclose(found.numpy(), exact, atol=1e-5)


def test_several_results_are_written_into_out(capped):
    outs = (torch.empty(7, 16), torch.empty(7))
    assert capped(q1, k1, v1, 5, 2.5, True, out=outs) is outs
    assert torch.equal(outs[1], capped(q1, k1, v1, 5, 2.5, True)[1])


@pytest.mark.parametrize("order", [1, -1])
def test_out_may_be_a_tensor_and_an_array(capped, order):
    outs = (torch.full((7, 16), torch.nan), np.full(7, np.nan, np.float32))
    if order < 0:
        outs = (outs[0].numpy(), torch.from_numpy(outs[1]))
    assert capped(q1, k1, v1, 5, 2.5, True, out=outs) is outs
    for found, expected in zip(outs, capped(q1, k1, v1, 5, 2.5, True)):
        assert np.array_equal(found, expected)


def test_extent_of_the_result_is_the_one_of_each_call(filled):
    for length in (3, 3, 5, 0, 5):
        found = filled(torch.tensor(length, dtype=torch.int32), torch.tensor(1.5))
        assert found.shape == (length,), length
        assert (found == 1.5).all(), length


def test_negative_extent_of_the_result_is_refused(filled):
    words = ["filled: result 'result' (tensor<?xf32>)", "negative extent -2"]
    refused(ValueError, words, filled, torch.tensor(-2, dtype=torch.int32), torch.tensor(1.5))


# --- What the code refuses, in the words for NumPy arrays.


@pytest.mark.parametrize(("error", "words", "inputs"), [
    (ValueError, ["argument 'q'", "found extent 15 in dimension 3, expected 16"], (q[..., 1:], k, v)),
    (TypeError, ["argument 'k'", "found 3 dimensions, expected 4"], (q, k[0], v)),
    (TypeError, ["argument 'v'", "found element type i32, expected f32"], (q, k, v.int())),
    (ValueError, ["value", "found 6, expected 7"], (q, k, v[:, :, 1:])),
    (ValueError, ["value", "found 6, expected 7"], (q, k.numpy(), v[:, :, 1:])),
], ids=["extent", "dimensions", "type", "length", "length-mixed"])  # fmt: skip
def test_wrong_argument_is_refused(attend, error, words, inputs):
    refused(error, words, attend, *inputs)


@pytest.mark.parametrize(("error", "words", "out"), [
    (ValueError, ["result 'output'", "found extent 6 in dimension 2"], torch.empty(2, 3, 6, 16)),
    (TypeError, ["result 'output'", "element type f64"], q.double()),
    (ValueError, ["overlap"], q),
    (ValueError, ["found stride 0 in dimension 0"], torch.empty(1, 3, 7, 16).expand(2, -1, -1, -1)),
], ids=["extent", "type", "overlap", "stride"])  # fmt: skip
def test_wrong_out_is_refused(attend, error, words, out):
    refused(error, words, attend, q, k, v, out=out)


# --- The function object of TVM-FFI: inputs, then results.


def test_tvm_ffi_writes_the_result_behind_the_inputs(attend, expected):
    out = torch.full_like(q, torch.nan)
    assert attend.tvm_ffi is attend.tvm_ffi
    assert attend.tvm_ffi(q, k, v, out) is None
    assert torch.equal(out, expected)


def test_tvm_ffi_takes_scalars_and_several_results(capped):
    outs = (torch.full((7, 16), torch.nan), torch.empty(7))
    capped.tvm_ffi(q1, k1, v1, 5, 2.5, True, *outs)
    assert torch.equal(outs[0], capped(q1, k1, v1, 5, 2.5, True)[0])


@pytest.mark.parametrize(("error", "words", "arguments"), [
    (TypeError, ["attend: found 3 arguments, expected 3 inputs and memory for 1 result"], (q, k, v)),
    (TypeError, ["argument 'k'", "found an integer, expected a tensor"], (q, 3, v, torch.empty_like(q))),
    (ValueError, ["argument 'v'", "extent 15"], (q, k, v[..., 1:], torch.empty_like(q))),
], ids=["count", "integer", "extent"])  # fmt: skip
def test_wrong_arguments_of_tvm_ffi_are_refused(attend, error, words, arguments):
    refused(error, words, attend.tvm_ffi, *arguments)


def test_into_writes_the_result(attend, expected):
    into = torch.full_like(q, torch.nan)
    attend.into(q, k, v, into)
    assert torch.equal(into, expected)


def test_tvm_ffi_keeps_the_code_alive(expected):
    alone = saccade.compile(programs.attention(name="alone")).alone.tvm_ffi
    saccade.cache_clear()
    out = torch.zeros_like(q)
    alone(q, k, v, out)
    assert torch.equal(out, expected)
