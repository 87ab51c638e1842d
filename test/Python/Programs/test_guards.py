"""What compiled code would read wrongly is an exception that names the argument, what was found and what was expected."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import programs
from programs import refused
from torch._subclasses.fake_tensor import FakeTensorMode

import saccade

pytestmark = pytest.mark.filterwarnings("ignore")

SHAPE = 2, 3, 7, 16
generator = torch.Generator().manual_seed(1)
q, k, v = torch.randn(3, *SHAPE, generator=generator)
array = q.numpy()
with FakeTensorMode():
    fake = torch.empty(SHAPE)


@pytest.fixture(scope="module")
def attend():
    return saccade.compile(programs.attention()).attend


@pytest.fixture(scope="module")
def expected(attend):
    return attend(q, k, v)


@pytest.fixture
def refuses(attend):
    """Asserts that every argument, and `out`, in every kind of call refuses something."""

    def check(exception, words, wrong):
        refused(exception, ["q is " if words[0].startswith("is ") else "q ", *words], attend, wrong, k, v)
        refused(exception, ["k ", *words], attend, q, wrong, v)
        refused(exception, ["v ", *words], attend, array, k, wrong)
        refused(exception, ["v ", *words], attend.result_shapes, q, k, wrong)
        refused(exception, ["out ", *words], attend, q, k, v, out=wrong)

    return check


# --- gradients


@pytest.mark.parametrize("kind", ["leaf", "computed", "parameter"])
def test_tensors_with_gradients_are_refused_but_pass_under_no_grad(attend, expected, refuses, kind):
    leaf = q.clone().requires_grad_()
    tensor = {"leaf": leaf, "computed": leaf * 1, "parameter": torch.nn.Parameter(q)}[kind]
    refuses(ValueError, ["requires grad", "no backward", "torch.no_grad()", ".detach()"], tensor)
    with torch.no_grad():
        assert torch.equal(attend(tensor, k, v), expected)
    assert torch.equal(attend(tensor.detach(), k, v), expected)


# --- bits that say that memory is not what it seems


def test_negative_views_are_refused_until_resolved(attend, refuses):
    negative = q._neg_view()
    refuses(ValueError, ["is a view with the negative bit set", ".resolve_neg()"], negative)
    assert torch.equal(attend(negative.resolve_neg(), k, v), attend(-q, k, v))


def test_imaginary_parts_of_conjugates_are_refused(refuses):
    refuses(ValueError, ["negative bit"], torch.complex(q, k).conj().imag)


def test_conjugates_are_refused_by_their_type(attend):
    conjugate = torch.complex(q, k).conj()
    refused(TypeError, ["q has dtype torch.complex64"], attend, conjugate, array, v)
    refused(TypeError, ["argument 'q'", "complex64, expected f32"], attend, conjugate, k, v)


# --- no memory of one's own


class Wrapper(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), named=None):
        raise NotImplementedError

    @staticmethod
    def __new__(cls, shape):
        return torch.Tensor._make_wrapper_subclass(cls, shape)


WITHOUT_MEMORY = {
    "fake": (["is a FakeTensor", "expected a plain torch.Tensor: it has no memory to read"], lambda: fake),
    "meta": (["is on meta, expected cpu"], lambda: torch.empty(SHAPE, device="meta")),
    "sparse": (["is a sparse_coo tensor, expected a dense one"], lambda: q.to_sparse()),
    "nested": (["is a nested tensor"], lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "efficient zeros": (["has no memory to read"], lambda: torch._efficientzerotensor(SHAPE)),
    "subclass": (["is a Wrapper", "expected a plain torch.Tensor"], lambda: Wrapper(SHAPE)),
}


@pytest.mark.parametrize(("words", "make"), WITHOUT_MEMORY.values(), ids=WITHOUT_MEMORY)
def test_tensors_without_memory_are_refused(refuses, words, make):
    refuses(TypeError, words, make())


@pytest.mark.parametrize("transform", ["vmap", "grad"])
def test_tensors_inside_of_torch_func_are_refused(refuses, transform):
    seen = []

    def inside(x):
        refuses(TypeError, ["has no memory to read", "torch.func"], x)
        seen.append(x)
        return x.sum()

    if transform == "vmap":
        torch.vmap(inside)(torch.zeros(4, *SHAPE))
    else:
        torch.func.grad(inside)(q)
    assert seen


# --- NumPy

WRONG_TYPES = {
    "byte order": (["has dtype >f4", "other byte order", "expected native float32"], array.astype(">f4")),
    "complex": (["has dtype complex64", "expected one of float64, float32"], array.astype(np.complex64)),
    "object": (["has dtype object"], array.astype(object)),
    "string": (["has dtype <U"], array.astype(str)),
    "masked": (["is a masked array"], np.ma.masked_array(array, array > 0)),
}


@pytest.mark.parametrize(("words", "wrong"), WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_arrays_of_other_types_are_refused(refuses, words, wrong):
    refuses(TypeError, words, wrong)


def test_an_array_at_an_odd_address_is_refused(refuses):
    shifted = np.frombuffer(b"." + array.tobytes(), np.uint8)[1:].view(np.float32).reshape(array.shape)
    refuses(ValueError, ["not aligned in memory"], shifted)


def test_a_field_of_packed_records_is_refused(refuses):
    refuses(ValueError, ["not aligned in memory"], np.zeros(array.shape, [("x", "f4"), ("tag", "u2")])["x"])


def test_strides_that_are_no_multiple_of_the_element_are_refused(attend):
    crooked = np.lib.stride_tricks.as_strided(np.zeros(4000, np.float32), array.shape, (1344, 448, 64, 6))
    refused(ValueError, ["aligned"], attend, crooked, k, v)


def test_strides_of_three_halves_pass():
    pairs = np.zeros((*array.shape, 6), np.uint8).view(np.float16)[..., :2]
    halves = saccade.compile(programs.attention("f16")).attend
    assert halves(*[pairs[..., 0]] * 3).shape == array.shape


# --- no arrays


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (["is a list, expected a torch CPU tensor or a NumPy array"], q.tolist()),
        (["is a float, expected"], 1.5),
        (["is a numpy.float32, expected"], np.float32(3)),
    ],
    ids=["list", "float", "NumPy scalar"],
)
def test_what_is_no_array_is_refused(refuses, words, wrong):
    refuses(TypeError, words, wrong)


def test_none_as_an_input_is_refused(attend):
    refused(TypeError, ["k is None, expected a torch CPU tensor or a NumPy array"], attend, q, None, v)


# It does not know what only torch knows.
def test_the_function_object_of_tvm_ffi_touches_no_memory_that_is_not_there(attend, expected):
    refused(ValueError, ["argument 'k'", "a fake tensor has no data"], attend.tvm_ffi, q, fake, v, torch.empty_like(q))
    assert torch.equal(attend(q, k, v), expected)
