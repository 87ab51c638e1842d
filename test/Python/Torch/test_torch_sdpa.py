"""`saccade.torch.scaled_dot_product_attention` takes, returns and refuses what PyTorch's function does. Agreement on random
calls is shown by test/Fuzz/sdpa_calls.py."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import saccade
import saccade.torch
from saccade.torch import sdpa

ours, pytorchs = saccade.torch.scaled_dot_product_attention, F.scaled_dot_product_attention
generator = torch.Generator().manual_seed(1)
q, k, v = (torch.randn(shape, generator=generator) for shape in ((2, 4, 6, 8), (2, 4, 9, 8), (2, 4, 9, 8)))
mask = torch.randn(6, 9, generator=generator)


def close(found, expected, tolerance=1e-5):
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    assert found.stride() == expected.stride()
    assert not found.numel() or (found - expected).abs().max() <= tolerance


# --- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES = {
    "one dimension": lambda f: f(q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]),
    "mixed types": lambda f: f(q, k.double(), v),
    "mixed types of 16 bits": lambda f: f(q.half(), k.half(), v.bfloat16()),
    "head sizes": lambda f: f(q, k[..., :5], v),
    "head sizes of three dimensions": lambda f: f(q[0], k[0, ..., :5], v[0]),
    "lengths of three dimensions": lambda f: f(q[0], k[0], v[0, :, :5]),
    "batches": lambda f: f(torch.cat([q, q[:1]]), k, v),
    "heads": lambda f: f(q, k[:, :3], v[:, :3]),
    "heads without enable_gqa": lambda f: f(q, k[:, :2], v[:, :2]),
    "heads that do not divide": lambda f: f(q, k[:, :3], v[:, :3], enable_gqa=True),
    "groups of two dimensions": lambda f: f(q[0, 0], k[0, 0], v[0, 0], enable_gqa=True),
    "integers": lambda f: f(q.int(), k.int(), v.int()),
    "booleans": lambda f: f(q > 0, k > 0, v > 0),
    "complex": lambda f: f(q + 0j, k + 0j, v + 0j),
    "devices": lambda f: f(q, k.to("meta"), v),
    "a sparse tensor": lambda f: f(q.to_sparse(), k, v),
    "a list": lambda f: f(q.tolist(), k, v),
    "a NumPy array": lambda f: f(q.numpy(), k, v),
    "None": lambda f: f(q, k, None),
    "a missing argument": lambda f: f(q, k),
    "an unknown argument": lambda f: f(q, k, v, mask=mask),
    "a scale by position": lambda f: f(q, k, v, None, 0.0, False, 0.5),
    "a scale that is no number": lambda f: f(q, k, v, scale="1"),
    "is_causal that is no bool": lambda f: f(q, k, v, is_causal=1),
    "enable_gqa that is no bool": lambda f: f(q, k, v, enable_gqa=2),
    "dropout that is no number": lambda f: f(q, k, v, dropout_p=None),
    "dropout above 1": lambda f: f(q, k, v, dropout_p=2.0),
    "negative dropout": lambda f: f(q, k, v, dropout_p=-0.5),
    "a mask that is a list": lambda f: f(q, k, v, [[True]]),
    "a mask of integers": lambda f: f(q, k, v, mask.int()),
    "a mask of float64": lambda f: f(q, k, v, mask.double()),
    "a mask of float16": lambda f: f(q, k, v, mask.half()),
    "a mask of one dimension": lambda f: f(q, k, v, mask[0]),
    "a mask without dimensions": lambda f: f(q, k, v, mask[0, 0]),
    "a mask of another length": lambda f: f(q, k, v, mask[:, :5]),
    "a mask of other heads": lambda f: f(q, k, v, mask.expand(2, 3, 6, 9)),
    "a mask of other batches": lambda f: f(q, k, v, mask.expand(3, 1, 6, 9)),
    "a mask of more dimensions": lambda f: f(q, k, v, mask.expand(1, 1, 1, 6, 9)),
    "a mask of more dimensions than heads": lambda f: f(q[0], k[0], v[0], mask.expand(1, 1, 6, 9)),
    "a mask and is_causal": lambda f: f(q[0], k[0], v[0], mask, is_causal=True),
}


def error_of(call, function):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:  # noqa: PT011
            call(function)
    return caught.value


@pytest.fixture(params=["cold", "warm"], scope="module")
def cache(request):
    """Whether kernels of the kinds of these calls are known."""
    saccade.cache_clear()
    if request.param == "warm":
        ours(q, k, v)
        ours(q, k, v, mask)
        ours(q.half(), k.half(), v.half())


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_raise_what_pytorch_raises(name, cache):
    expected, found = (error_of(MISTAKES[name], function) for function in (pytorchs, ours))
    assert type(found) is type(expected)
    # Python's parser of arguments and PyTorch's word these differently.
    if name not in ("a missing argument", "an unknown argument", "a scale by position"):
        assert str(found) == str(expected).replace(" (position 4)", "")


def test_what_pytorch_takes_and_saccade_does_not_is_named():
    with pytest.raises(NotImplementedError, match="attn_mask should not be set when is_causal=True"):
        ours(q, k, v, mask, is_causal=True)
    with pytest.raises(NotImplementedError, match="key has 9 rows and value 5, expected equal"):
        ours(q, k, v[:, :, :5])  # PyTorch reads the first elements of a longer one
    nested = torch.nested.nested_tensor([torch.ones(4, 7, 8), torch.ones(4, 5, 8)])
    with pytest.raises(NotImplementedError, match="query is a nested tensor, expected a dense one"):
        ours(nested, nested, nested)
    with pytest.raises(NotImplementedError, match="dropout_p is not 0, and vmap maps a tensor"):
        torch.vmap(lambda *x: ours(*x, dropout_p=0.5), randomness="different")(q, k, v)


# --- calls that are PyTorch's -----------------------------------------------------------------------------------------


def test_tensors_that_require_grad_pass_without_grad_mode():
    with torch.no_grad():
        assert not ours(torch.nn.Parameter(q), k, v).requires_grad


def test_tracers_and_modes_see_the_operators_of_pytorch():
    from torch.fx.experimental.proxy_tensor import make_fx

    ours(q, k, v)
    graph = make_fx(lambda x: ours(x, x, x))(q)
    assert any("flash_attention" in str(node.target) for node in graph.graph.nodes)
    assert ours(*(x.to("meta") for x in (q, k, v))).shape == q.shape


@pytest.mark.filterwarnings("ignore:.*torch.jit.trace.*deprecated:DeprecationWarning")
@pytest.mark.parametrize("call", [lambda f, x: f(x, k, v), lambda f, x: f(x, k, v, mask), lambda f, x: f(x[0], k[0], v[0])],
                         ids=["plain", "mask", "three dimensions"])
def test_jit_trace_records_the_operators_of_pytorch_without_warnings(call):
    call(ours, q)  # its kernel is known
    with warnings.catch_warnings():
        warnings.simplefilter("error", torch.jit.TracerWarning)
        traced = torch.jit.trace(lambda x: call(ours, x), q)
    close(traced(2 * q), call(pytorchs, 2 * q))


def test_torch_compile_makes_an_operator_of_a_call():
    compiled = torch.compile(lambda x: ours(x + 0, k, v) * 2, backend="eager", fullgraph=True)
    with torch.no_grad():
        close(compiled(q), 2 * pytorchs(q, k, v))
        close(compiled(q[:, :, :3]), 2 * pytorchs(q[:, :, :3], k, v))


# --- forms of calls ---------------------------------------------------------------------------------------------------


def test_new_sizes_and_masks_compile_nothing():
    saccade.cache_clear()
    table = torch.zeros(3, 5, 70, 80)
    for dtype in (torch.bool, torch.float32):
        kinds = [table[:, :1, :1], table[:1, :1], table]
        for kind in kinds:
            ours(q[:, :, :2], k, v, torch.zeros(2 if kind.shape[0] > 1 else 1, 4 if kind.shape[1] > 1 else 1,
                                                2 if kind.shape[2] > 1 else 1, 9).to(dtype))
        before = saccade.cache_info().compilations
        for batch, heads, queries, keys in ((2, 5, 30, 70), (3, 2, 64, 11)):
            x, y = torch.randn(batch, heads, queries, 8), torch.randn(batch, heads, keys, 8)
            for kind in kinds:
                part = kind[:batch, :heads, :queries, :keys].to(dtype)
                close(ours(x, y, y, part), pytorchs(x, y, y, part))
        assert saccade.cache_info().compilations == before


def test_masks_are_read_in_place():
    padding = torch.ones(2, 1, 1, 9).bool()
    names, view = sdpa.mask_view(padding, (2, 4, 6, 9))
    assert (names, view.shape, view.data_ptr()) == ("bj", (2, 9), padding.data_ptr())
    names, view = sdpa.mask_view(padding.expand(2, 4, 6, 9), (2, 4, 6, 9))
    assert (names, view.shape, view.data_ptr()) == ("bj", (2, 9), padding.data_ptr())
    names, view = sdpa.mask_view(padding[:1, 0, 0, :1].expand(6, 9), (2, 4, 6, 9))
    assert (names, view.shape) == ("", ())
    close(ours(q, k, v, padding[:1, 0, 0, :1].expand(6, 9)), pytorchs(q, k, v))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_row_of_the_least_number_has_equal_weights(dtype):
    least = torch.finfo(dtype).min
    table = torch.zeros(6, 9, dtype=dtype)
    table[1], table[2, 3:], table[3], table[4, :3], table[4, 3:] = least, least, -torch.inf, least, -torch.inf
    x, y = q.to(dtype), k.to(dtype)
    close(ours(x, y, y, table), pytorchs(x, y, y, table), 4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("what", ["queries", "keys", "batch", "heads", "value size", "head size"])
def test_empty_tensors(what):
    x, y, z = q, k, v
    if what == "queries":
        x = q[:, :, :0]
    elif what == "keys":
        y, z = k[:, :, :0], v[:, :, :0]
    elif what == "batch":
        x, y, z = q[:0], k[:0], v[:0]
    elif what == "heads":
        x, y, z = q[:, :0], k[:, :0], v[:, :0]
    elif what == "value size":
        z = v[..., :0]
    else:
        x, y = q[..., :0], k[..., :0]
    close(ours(x, y, z), pytorchs(x, y, z))


def test_groups_of_heads_of_other_counts():
    """In batches of as many items as there are heads, in one batch, in nested ones and without any."""
    for kv_heads in ((2, 2), (4, 2), (2, 1), (1, 4), (2, 4)):
        y, z = k[:, :kv_heads[0]], v[:, :kv_heads[1]]
        for lead in [(), (1,), (2,), (4,), (2, 1), (4, 2)]:
            repeated = [x[0].expand(*lead, -1, -1, -1) for x in (q, y, z)]
            close(ours(*repeated, enable_gqa=True), pytorchs(*repeated, enable_gqa=True))


@pytest.mark.parametrize("bias", [causal_upper_left, causal_lower_right])
@pytest.mark.parametrize("keys", [4, 6, 9])
def test_causal_biases(bias, keys):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch's, about rows without keys
        given = bias(6, keys)
    found = ours(q, k[:, :, :keys], v[:, :, :keys], given)
    close(found, pytorchs(q, k[:, :, :keys], v[:, :, :keys], given._materialize()))


def test_negated_views_and_numbers_of_other_kinds():
    negated = torch._neg_view(q)
    close(ours(negated, k, v), pytorchs(-q, k, v))
    close(ours(q, k, v, scale=2), pytorchs(q, k, v, scale=2))
    close(ours(q, k, v, scale=np.float64(0.5)), pytorchs(q, k, v, scale=0.5))
    with torch.inference_mode():
        close(ours(q, k, v, mask), pytorchs(q, k, v, mask))


# --- autocast ---------------------------------------------------------------------------------------------------------


def test_autocast_casts_as_pytorchs():
    with torch.autocast("cpu"):
        close(ours(q, k, v), pytorchs(q, k, v), 2e-2)
        close(ours(q, k.bfloat16(), v), pytorchs(q, k.bfloat16(), v), 2e-2)
        close(ours(q, k, v, mask), pytorchs(q, k, v, mask), 4e-2)
        close(ours(q.double(), k.double(), v.double()), pytorchs(q.double(), k.double(), v.double()))
        for call in (lambda f: f(q.double(), k, v), lambda f: f(q, k, v, mask.double())):
            expected, found = error_of(call, pytorchs), error_of(call, ours)
            assert (type(found), str(found)) == (type(expected), str(expected))
    with torch.autocast("cpu", enabled=False):
        assert ours(q, k, v).dtype == torch.float32


def test_keys_and_values_of_different_lengths_are_named():
    import saccade.torch

    query, key, value = torch.randn(1, 2, 8, 16), torch.randn(1, 2, 8, 16), torch.randn(1, 2, 7, 16)
    for needs in (False, True):
        with pytest.raises(NotImplementedError, match="key has 8 rows and value 7, expected equal"):
            saccade.torch.scaled_dot_product_attention(query.requires_grad_(needs), key, value)


def test_recorded_calls_take_keys_of_fewer_dimensions():
    import saccade.torch

    query, key, value = torch.randn(1, 2, 7, 16, requires_grad=True), torch.randn(2, 9, 16), torch.randn(2, 9, 16)
    found = saccade.torch.scaled_dot_product_attention(query, key, value)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    assert found.stride() == expected.stride()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)
