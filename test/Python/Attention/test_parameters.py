"""Numbers that are parameters: neutral values are neutral, and values without a meaning are refused by name."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from programs import refused

import saccade
from saccade import masks, scores
from saccade.dropout import dropout_mask
from saccade.torch import flash_attn_with_kvcache

NAN, INF = math.nan, math.inf
RANDOM = torch.Generator().manual_seed(3)
q, k, v = (torch.randn(1, 2, n, 8, generator=RANDOM) for n in (5, 7, 7))
rows = [x.transpose(1, 2) for x in (q, k, v)]


# --- neutral values ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cap", [0, 0.0, -0.0, np.float32(0), np.zeros(()), np.zeros(2, np.float32), torch.tensor(0.0),
                                 torch.zeros(2), [0, 0.0]], ids=repr)  # fmt: skip
@pytest.mark.parametrize("then", [None, scores.temperature(2.0)], ids=["alone", "composed"])
def test_a_soft_cap_of_zero_leaves_scores_as_they_are(cap, then):
    cap = scores.soft_cap(cap)
    expected = saccade.attention(q, k, v, score=then)
    found = saccade.attention(q, k, v, score=cap if then is None else cap >> then)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    assert float(cap(1.5, 0, 0, 0, 0)) == 1.5


def test_caps_of_heads_are_each_off_or_on_with_gradients():
    caps = torch.tensor([0.0, 0.7], requires_grad=True)
    ours, exact = (x.clone().requires_grad_() for x in (q, q.double()))
    output_gradient = torch.randn(q.shape, generator=RANDOM)
    saccade.attention(ours, k, v, score=scores.soft_cap(caps)).backward(output_gradient)
    weights = exact @ k.double().mT / math.sqrt(8)
    bounded = torch.stack([weights[:, 0], 0.7 * torch.tanh(weights[:, 1] / 0.7)], 1)
    (bounded.softmax(-1) @ v.double()).backward(output_gradient.double())
    torch.testing.assert_close(ours.grad.double(), exact.grad, rtol=1e-5, atol=1e-5)
    assert caps.grad[0] == 0 and caps.grad[1] != 0


@pytest.mark.parametrize("is_torch", [True, False], ids=["torch", "numpy"])
def test_a_tensor_may_turn_a_cap_on_and_off_between_calls(is_torch):
    cap = torch.tensor(0.0)
    operands = [q, k, v] if is_torch else [x.numpy() for x in (q, k, v)]
    score = scores.soft_cap(cap if is_torch else cap.numpy())
    plain = torch.as_tensor(saccade.attention(*operands, score=score))
    torch.testing.assert_close(plain, saccade.attention(q, k, v), rtol=1e-6, atol=1e-6)
    cap.fill_(0.5)
    capped = torch.as_tensor(saccade.attention(*operands, score=score))
    torch.testing.assert_close(capped, saccade.attention(q, k, v, score=scores.soft_cap(0.5)), rtol=1e-5, atol=1e-5)
    assert (capped - plain).abs().max() > 0.01


@pytest.mark.parametrize("scale", [0, 0.0, torch.tensor(0.0), torch.tensor(0.0, requires_grad=True)], ids=repr)
def test_a_scale_of_zero_gives_the_mean_of_the_values_and_its_gradients(scale):
    given = [x.clone().requires_grad_() for x in (q, k, v)]
    exact = [x.double().requires_grad_() for x in (q, k, v)]
    output_gradient = torch.randn(q.shape, generator=RANDOM)
    found = saccade.attention(*given, scale=scale)
    expected = ((exact[0] @ exact[1].mT) * 0).softmax(-1) @ exact[2]
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)
    found.backward(output_gradient)
    expected.backward(output_gradient.double())
    for x, y in zip(given, exact):
        torch.testing.assert_close(x.grad.double(), y.grad, rtol=1e-5, atol=1e-5)


def test_open_and_infinite_sides_of_a_window_are_the_same():
    assert torch.equal(saccade.attention(q, k, v, mask=masks.window(INF, 1)),
                       saccade.attention(q, k, v, mask=lambda b, h, i, j: j <= i + 1))  # fmt: skip


# --- values without a meaning -----------------------------------------------------------------------------------------

NO_NUMBERS = [True, "1", None]
REFUSED = {
    "cap": (scores.soft_cap, [-1, -0.5, NAN, INF, -INF, 1e300, 1e-320, np.float32("nan"), [1.0, -1.0], [NAN]]),
    "value": (scores.temperature, [0, -0.0, -1, NAN, INF, [1.0, 0.0], 10**400]),
    "heads": (scores.alibi_slopes, [0, -1, 2.5, NAN]),
    "slopes": (scores.alibi, [[NAN, 1.0], [INF], ["a"], 1.0]),
    "table": (lambda x: scores.relative_bias(x), [[NAN, 1.0, 2.0], 1.0]),
    "scale": (lambda x: scores.shaw_bias(np.zeros((1, 2, 5, 3)), x), [NAN, INF]),
    "max_distance": (lambda x: scores.t5_buckets(32, x), [NAN, 2.5]),
    "buckets": (lambda x: scores.t5_buckets(x), [NAN, 2.5]),
    "width": (lambda x: scores.swin_bias(np.zeros((9, 2)), 2, x), [0, -1, 2.5, NAN]),
    "offset": (masks.causal, [NAN, INF, 0.5]),
    "left": (masks.window, [NAN, 0.5, -1, -INF]),
    "right": (lambda x: masks.window(2, x), [NAN, 0.5, -3]),
    "dilation": (lambda x: masks.dilated(x, 2), [0, -1, NAN, INF, 1.5]),
    "stride": (masks.strided, [0, NAN, INF]),
    "local": (lambda x: masks.strided(2, x), [-1, NAN]),
    "prefix": (masks.prefix_lm, [-1, 0.5, NAN]),
    "lengths": (masks.padding, [[1.5], [NAN], 3]),
    "ids": (masks.documents, [[1.5, 2], [NAN]]),
    "layout": (lambda x: masks.block_sparse(x, 2), [[[NAN, 1]], [[0.5, 1]]]),
    "cu_seqlens": (masks.ragged, [[0, 1.5], [0, NAN], 3, np.array([0.0, 3.0]), torch.tensor([0.0, 2.0])]),
    "parents": (masks.tree, [[-1, 0.5], [-1, NAN], np.array([-1.0, 0.0])]),
    "start": (lambda x: masks.tree([-1, 0], x), [-1, 0.5, NAN]),
    "count": (masks.global_tokens, [-1, NAN, INF, 0.5]),
    "radius": (masks.longformer, [-1, NAN, 0.5]),
    "block_size": (lambda x: masks.bigbird(8, x), [0, NAN, 0.5]),
    "shift_size": (lambda x: masks.swin(4, 4, 2, x), [2, -1, NAN, 0.5]),
    "kernel_size": (lambda x: masks.neighborhood(5, x), [0, 2, -1, NAN, 2.5]),
    "rate": (lambda x: dropout_mask((1, 1, 2, 2), x, 1), [-0.1, 1.1, NAN, INF]),
    "dropout_p": (lambda x: saccade.attention(q, k, v, dropout_p=x, seed=1), [-0.1, 1.1, NAN, INF]),
    "scale of a call": (lambda x: saccade.attention(q, k, v, scale=x), [NAN, INF, -INF, torch.tensor(NAN)]),
    "sink": (lambda x: saccade.attention(q, k, v, sink=x), [NAN, INF]),
    "window": (lambda x: saccade.attention(q, k, v, window=x), [0, -1, NAN, 0.5]),
    "k_scale": (lambda x: saccade.attention(q, k.to(torch.int8), v.to(torch.int8), k_scale=x, v_scale=1.0),
                [NAN, INF, torch.tensor(NAN)]),
    "v_scale": (lambda x: saccade.attention(q, k.to(torch.int8), v.to(torch.int8), k_scale=1.0, v_scale=x),
                [NAN, -INF]),
    "k_zero": (lambda x: saccade.attention(q, *[torch.zeros(*k.shape[:3], 4, dtype=torch.uint8)] * 2, k_scale=1.0, v_scale=1.0,
                                           k_zero=x), [NAN, INF, torch.tensor(NAN)]),
    "softcap": (lambda x: flash_attn_with_kvcache(*rows, softcap=x), [-1.0, NAN, INF, 1e300]),
    "softmax_scale": (lambda x: flash_attn_with_kvcache(*rows, softmax_scale=x), [NAN, INF]),
    "window_size": (lambda x: flash_attn_with_kvcache(*rows, causal=True, window_size=(x, 0)), [-2, NAN, 0.5]),
    "scale of linear attention": (lambda x: saccade.linear_attention(q, k, v, scale=x), [NAN, INF]),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_number_without_a_meaning_is_refused_by_name(name):
    call, values = REFUSED[name]
    for value in values:
        try:
            call(value)
        except (TypeError, ValueError) as error:
            assert name.split()[0] in str(error), f"{value!r}: {error}"
        else:
            raise AssertionError(f"{name} = {value!r} is not refused")


@pytest.mark.parametrize("name", ["cap", "value", "heads", "offset", "left", "dilation", "count", "dropout_p", "softcap"])
def test_what_is_no_number_is_a_type_error(name):
    for value in NO_NUMBERS:
        refused(TypeError, [f"{name} is {value!r}"], REFUSED[name][0], value)


def test_elements_of_tensors_are_data_and_nan_gives_nan():
    assert saccade.attention(q, k, v, score=scores.soft_cap(torch.tensor(NAN))).isnan().all()
    assert saccade.attention(q, k, v, sink=torch.tensor([NAN, 0.0]))[:, 0].isnan().all()
    assert not saccade.attention(q, k, v, sink=torch.tensor([NAN, 0.0]))[:, 1].isnan().any()


# --- configurations of Transformers -----------------------------------------------------------------------------------


def test_a_soft_cap_of_zero_in_a_configuration_is_none():
    pytest.importorskip("transformers")
    from saccade.transformers import reference
    from saccade.transformers.interface import attention_forward

    module = torch.nn.Identity()
    options = {"dropout": 0.0, "scaling": None, "is_causal": False, "position_bias": None, "s_aux": None}
    for function in (attention_forward, reference.attention):
        off, plain = (function(module, q, k[:, :, :5], v[:, :, :5], None, softcap=cap, **options)
                      for cap in (0.0, None))  # fmt: skip
        off, plain = (x[0] if isinstance(x, tuple) else x for x in (off, plain))
        torch.testing.assert_close(off, plain, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("size", [0, -1])
def test_a_window_without_keys_in_a_configuration_is_refused(size):
    pytest.importorskip("transformers")
    from transformers import masking_utils

    from saccade.transformers import make_mask
    from saccade.transformers.interface import attention_forward

    function = masking_utils.sliding_window_causal_mask_function(size)
    mask = make_mask(1, 5, 5, 0, 0, function, None)
    refused(ValueError, [f"sliding_window is {size}, expected an integer of at least 1"], attention_forward,
            torch.nn.Identity(), q, q, q, mask)  # fmt: skip
    for is_causal in (True, False):
        refused(ValueError, [f"sliding_window is {size}"], attention_forward, torch.nn.Identity(), q, q, q, None,
                is_causal=is_causal, sliding_window=size)  # fmt: skip
