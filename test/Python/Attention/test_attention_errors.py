"""What `saccade.attention` cannot take is refused with the usual exception, which names the argument, what was found
and what was expected. Every case runs twice: when nothing is compiled yet, and when a kernel of its kind is.
"""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused
from torch._subclasses import FakeTensorMode

import saccade

generator = torch.Generator().manual_seed(1)
q, k, v = (torch.randn(shape, generator=generator) for shape in ((2, 4, 5, 16), (2, 2, 7, 16), (2, 2, 7, 8)))
arrays = tuple(x.numpy() for x in (q, k, v))
nested = torch.nested.nested_tensor([torch.ones(2, 7, 16), torch.ones(2, 5, 16)])
out, lse = torch.empty(2, 4, 5, 8), torch.empty(2, 4, 5)
frozen = np.empty((2, 4, 5, 8), np.float32)
frozen.flags.writeable = False
learned = torch.tensor(0.1, requires_grad=True)


@pytest.fixture(params=["cold", "warm"], autouse=True, scope="module")
def cache(request):
    saccade.cache_clear()
    if request.param == "warm":
        saccade.attention(q, k, v)
        saccade.attention(q, k, v, return_lse=True, causal="bottom_right", kv_len=3)
        saccade.attention(q, k, v, kv_len=torch.tensor([3, 4]))
        saccade.attention(q, k[:, :, :5], torch.ones(2, 2, 7, 16), layout="bhds")


def refuse(kind, words, *operands, **options):
    """The call raises exactly `kind`, with a message that has all of `words` and no trace of MLIR."""
    error = refused(kind, words.split(" | "), saccade.attention, *(operands or (q, k, v)), **options)
    assert "#" not in str(error)
    assert "%" not in str(error)


def cases(names, values):
    """One test for each case, named after the words of its message."""
    return pytest.mark.parametrize(names, values, ids=[f"{n}: {case[1]}" for n, case in enumerate(values)])


OPERANDS = [
    (TypeError, "q is None | torch CPU tensor or a NumPy array", (None, k, v)),
    (TypeError, "q is a list", (q.tolist(), k, v)),
    (TypeError, "k is a float", (q, 1.0, v)),
    (TypeError, "k is a NumPy array | expected a torch tensor | q", (q, arrays[1], v)),
    (TypeError, "v is a torch tensor | expected a NumPy array | q", (*arrays[:2], v)),
    (TypeError, "q has element type int64 | float64, float32, float16, bfloat16", (q.long(), k.long(), v.long())),
    (TypeError, "k has element type float16 | expected float32 | q", (q, k.half(), v)),
    (TypeError, "v has element type float64 | expected float32 | q", (q, k, v.double())),
    (TypeError, "q has 3 dimensions | (4, 5, 16) | expected 4 | bhsd", (q[0], k, v)),
    (TypeError, "k has 5 dimensions | expected 4 | bhsd", (q, k[None], v)),
    (TypeError, "v has 1 dimension, (16,), expected 4", (q, k, torch.ones(16))),
    (TypeError, "v has 0 dimensions | expected 4 | bhsd", (q, k, torch.tensor(1.0))),
    (ValueError, "k has head size 8 | expected 16 | q", (q, k[..., :8], v)),
    (ValueError, "q has head size 0 | expected at least 1", (q[..., :0], k[..., :0], v)),
    (ValueError, "v has head size 0 | expected at least 1", (q, k, v[..., :0])),
    (ValueError, "k has batch size 1 | expected 2 | q", (q, k[:1], v)),
    (ValueError, "v has batch size 1 | expected 2 | q", (q, k, v[:1])),
    (ValueError, "q has 3 heads | a multiple of the 2 heads of k", (q[:, :3], k, v)),
    (ValueError, "q has 4 heads | a multiple of the 0 heads of k", (q, k[:, :0], v[:, :0])),
    (ValueError, "v has head count 1 | expected 2 | k", (q, k, v[:, :1])),
    (ValueError, "v has length 6 | expected 7 | k", (q, k, v[:, :, :6])),
    (ValueError, "q is a view with the negative bit set | resolve_neg", (torch._neg_view(q), k, v)),
    (ValueError, "v is a view with the negative bit set", (q, k, torch.complex(v, v).conj().imag)),
    (TypeError, "q is on meta | expected cpu", (q.to("meta"), k, v)),
    (TypeError, "k is on meta | expected cpu", (q, k.to("meta"), v)),
    (TypeError, "v is a FakeTensor", (q, k, FakeTensorMode().from_tensor(v))),
    (TypeError, "k is a sparse_coo tensor | expected a dense one", (q, k.to_sparse(), v)),
    (TypeError, "q is a nested tensor | expected a dense one", (nested, k, v)),
    (TypeError, "v is a nested tensor | expected a dense one", (q, k, nested)),
]


@pytest.mark.parametrize(
    "options", [{}, {"return_lse": True, "causal": "bottom_right", "kv_len": 3}], ids=["plain", "options"]
)
@cases(("kind", "words", "operands"), OPERANDS)
def test_operands_that_do_not_fit_are_refused(kind, words, operands, options):
    refuse(kind, words, *operands, **options)


@pytest.mark.parametrize(
    "options", [{"kv_len": torch.tensor([3, 4])}, {"score": lambda s, b, h, i, j: s}], ids=["kv_len", "score"]
)
def test_a_missing_query_is_refused_before_what_depends_on_it(options):
    refuse(TypeError, "q is None", None, k, v, **options)


def test_a_layout_that_the_operands_do_not_have_is_refused():
    refuse(TypeError, 'q has 4 dimensions | expected 3: layout "hsd"', layout="hsd")
    refuse(ValueError, "k has head size 7 | expected 5", layout="bhds")


OPTIONS = [
    (TypeError, 'causal is True | "top_left" | "bottom_right" | offset', {"causal": True}),
    (TypeError, "causal is False | alignment", {"causal": False}),
    (ValueError, "causal is 'left' | \"top_left\"", {"causal": "left"}),
    (TypeError, "causal is 1.5 | int offset", {"causal": 1.5}),
    (TypeError, "causal is | int offset", {"causal": np.array([1, 2])}),
    (TypeError, "scale is True | expected a number", {"scale": True}),
    (TypeError, "scale is '1' | expected a number", {"scale": "1"}),
    (TypeError, "scale is | expected a number", {"scale": torch.tensor([0.1, 0.2])}),
    (ValueError, "scale is nan, expected a finite number", {"scale": float("nan")}),
    (ValueError, "scale is inf, expected a finite number", {"scale": np.float32("inf")}),
    (TypeError, "window is True | (left, right)", {"window": True}),
    (TypeError, "window is 2.5", {"window": 2.5}),
    (ValueError, "window is 0 | at least 1", {"window": 0}),
    (ValueError, "window has 1 numbers | expected 2: (left, right)", {"window": (3,)}),
    (TypeError, "window has left = 'a'", {"window": ("a", 2)}),
    (ValueError, "window has right = -2 | None or -1", {"window": (1, -2)}),
    (ValueError, "kv_len is 8 | expected 0 to 7 | k", {"kv_len": 8}),
    (ValueError, "kv_len is -1 | expected 0 to 7", {"kv_len": -1}),
    (TypeError, "kv_len is True | int32 or int64", {"kv_len": True}),
    (TypeError, "kv_len is [3, 4] | int32 or int64", {"kv_len": [3, 4]}),
    (TypeError, "kv_len has element type float32 | int32 or int64", {"kv_len": torch.tensor([3.0, 4.0])}),
    (TypeError, "kv_len is a NumPy array | expected a torch tensor", {"kv_len": np.array([3, 4])}),
    (ValueError, "kv_len has shape (3,) | expected (2,)", {"kv_len": torch.tensor([3, 4, 5])}),
    (ValueError, "kv_len has shape (1, 2) | expected (2,)", {"kv_len": torch.tensor([[3, 4]])}),
    (ValueError, "kv_len exceeds the length of key: found 8, expected at most 7", {"kv_len": torch.tensor([3, 8])}),
    (ValueError, "kv_len is negative: found -1, expected at least 0", {"kv_len": torch.tensor([-1, 3]).int()}),
    *((TypeError, f"return_lse is {wrong!r} | True or False", {"return_lse": wrong})
      for wrong in ("yes", 1, 0, None, np.True_)),
    *((ValueError, f"layout is {layout!r} | \"bhsd\"", {"layout": layout}) for layout in ("bhs", "bhsdd", "bhsx", "")),
    *((TypeError, f"layout is {layout!r} | a string", {"layout": layout}) for layout in (4, ["b", "h"])),
    *((ValueError, f"option 'target' has the value {target!r} | expected one of | portable", {"target": target})
      for target in ("v9", "")),
    *((TypeError, f"target is {target!r} | a string", {"target": target}) for target in (3, ["v3"], True)),
]  # fmt: skip


@cases(("kind", "words", "options"), OPTIONS)
def test_values_that_an_option_does_not_have_are_refused(kind, words, options):
    refuse(kind, words, **options)


def test_a_scale_with_a_gradient_passes_under_no_grad():
    with torch.no_grad():
        saccade.attention(q, k, v, scale=learned)


OUTPUTS = [
    (ValueError, "out has shape (2, 4, 5, 16) | expected (2, 4, 5, 8)", torch.empty_like(q)),
    (ValueError, "out has shape (4, 5, 8) | expected (2, 4, 5, 8)", out[0]),
    (TypeError, "out has element type float16 | expected float32", out.half()),
    (TypeError, "out is a NumPy array | expected a torch tensor", out.numpy()),
    (TypeError, "out is a tuple | return_lse=True | (output, lse)", (out,)),
    (TypeError, "out is a tuple | return_lse=True", (out, lse)),
    (TypeError, "out is a list | with return_lse=True the tuple (output, lse)", [out]),
    *((TypeError, "out is a", wrong) for wrong in ({"out": out}, 3, "out")),
    (ValueError, "out requires grad", out.clone().requires_grad_()),
    (ValueError, "out | stride 0 | expected a positive one", torch.empty(4, 5, 8).expand(2, 4, 5, 8)),
    (ValueError, "out | overlaps with argument 'q'", q[..., 4:12]),
]


@cases(("kind", "words", "out"), OUTPUTS)
def test_an_out_that_cannot_take_the_output_is_refused(kind, words, out):
    refuse(kind, words, out=out)


PAIRS = [
    (TypeError, "out has 1 array, expected 2: (output, lse)", (out,)),
    (TypeError, "out has 3 arrays, expected 2", (out, lse, lse)),
    (TypeError, "out[1] is None", (out, None)),
    (TypeError, "out is a list", [out, lse]),
    (ValueError, "out[0] has shape (2, 4, 5) | expected (2, 4, 5, 8)", (lse, out)),
    (ValueError, "out[1] has shape (2, 5, 4) | expected (2, 4, 5)", (out, lse.transpose(1, 2))),
    (TypeError, "out[1] has element type float64 | expected float32", (out, lse.double())),
    (TypeError, "out[1] is a NumPy array | expected a torch tensor", (out, lse.numpy())),
    (ValueError, "out[1] requires grad", (out, lse.clone().requires_grad_())),
    (ValueError, "out[1] | overlaps", (out, out[..., 0])),
    (ValueError, "out[1] | stride 0", (out, torch.empty(4, 5).expand(2, 4, 5))),
]


@cases(("kind", "words", "out"), PAIRS)
def test_an_out_that_cannot_take_output_and_lse_is_refused(kind, words, out):
    refuse(kind, words, return_lse=True, out=out)


def test_an_out_that_is_an_input_is_refused():
    refuse(ValueError, "out | overlaps with argument 'q'", q, k, torch.cat([v, v], -1), out=q)


def test_a_read_only_out_is_refused():
    refuse(ValueError, "out is a read-only NumPy array", *arrays, out=frozen)


FUNCTIONS = [
    (TypeError, "score is 'relu' | (s, b, h, i, j)", {"score": "relu"}),
    (TypeError, "mask is a torch tensor, expected a function (b, h, i, j) -> bool, or None: a boolean mask is mask=lambda", {"mask": torch.ones(5, 7).bool()}),
    (TypeError, "or None: a tensor is added to the scores by score=saccade.scores.bias(score)", {"score": np.ones((5, 7))}),
    (TypeError, "score is saccade.masks.Mask | give it as mask", {"score": saccade.masks.causal()}),
    (TypeError, "mask is saccade.scores.Score | give it as score", {"mask": saccade.scores.soft_cap(3.0)}),
    (saccade.TraceError, "score function takes | expected (s, b, h, i, j)", {"score": lambda s, i, j: s}),
    (saccade.TraceError, "mask function", {"mask": lambda b, h, i, j: i >= j and j > 2}),
    (saccade.TraceError, "score function", {"score": lambda s, b, h, i, j: s if i > j else 0.0}),
    (saccade.TraceError, "mask function | int", {"mask": lambda b, h, i, j: int(i) == 0}),
    (saccade.TraceError, "mask function returns None", {"mask": lambda b, h, i, j: None}),
    (saccade.TraceError, "score function | bessel_j0", {"score": lambda s, b, h, i, j: torch.special.bessel_j0(s)}),
]


@cases(("kind", "words", "options"), FUNCTIONS)
def test_functions_that_cannot_be_traced_are_refused(kind, words, options):
    refuse(kind, words, **options)


def table(tensor):
    return lambda s, b, h, i, j: s + tensor[h]


CAPTURES = [
    (ValueError, "'tensor' | negative bit", torch._neg_view(torch.ones(4))),
    (TypeError, "'tensor' | meta", torch.ones(4, device="meta")),
    (ValueError, "'tensor' | score | head count | found 3 | at least 4", torch.ones(3)),
    (saccade.TraceError, "tensor | 2", torch.ones(4, 4)),
]


@cases(("kind", "words", "tensor"), CAPTURES)
def test_captured_tensors_that_cannot_be_read_are_refused(kind, words, tensor):
    saccade.attention(q, k, v, score=table(torch.ones(4)))
    refuse(kind, words, score=table(tensor))


def test_a_captured_tensor_with_a_gradient_passes_under_no_grad():
    with torch.no_grad():
        saccade.attention(q, k, v, score=table(torch.ones(4, requires_grad=True)))


# --- options of other libraries ---------------------------------------------------------------------------------------

RECIPES = {
    "attn_mask": ["mask=lambda b, h, i, j: attn_mask", "saccade.scores.bias(attn_mask)"], "is_causal": ['causal="top_left"'],
    "score_mod": ["score=score_mod"], "block_mask": ["mask=block_mask.mask_mod"], "enable_gqa": ["multiple of the heads"],
    "colour": ["unexpected keyword argument 'colour'"],
    "bias": ["score=saccade.scores.bias(bias)", "mask=lambda b, h, i, j: bias[b, h, i, j]"],
    "casual": ["did you mean 'causal'?"],
}  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_options_of_other_libraries_are_refused_with_what_to_write(name):
    x = torch.zeros(1, 1, 2, 8)
    refused(TypeError, [f"'{name}'", *RECIPES[name]], saccade.attention, x, x, x, **{name: None})
