"""`saccade.attention(..., normalizer="stick_breaking")` against cumulative sums of PyTorch in float64."""

import itertools
import math
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from normalizer_calls import TOLERANCES, close, diagonal, draw_call, operands

import saccade
from saccade.dropout import dropout_mask


def plain(q, k, v, sees=None, scale=None, score=None, kept=None):
    """Weights exp(log σ(s_j) + Σ log(1 − σ(s_k)) over the visible k after j), with all of Q·Kᵀ in memory."""
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    s = q @ k.transpose(2, 3) * (q.shape[3] ** -0.5 if scale is None else scale)
    s = s if score is None else score(s)
    sees = torch.ones_like(s, dtype=torch.bool) if sees is None else sees.expand(s.shape) & (s > -math.inf)
    s = torch.where(sees, s, 0.0)
    left = torch.where(sees, F.logsigmoid(-s), 0.0)
    later = left.flip(3).cumsum(3).flip(3)
    later = torch.cat([later[..., 1:], torch.zeros_like(later[..., :1])], 3)
    weights = torch.where(sees, (F.logsigmoid(s) + later).exp(), 0.0)
    return (weights if kept is None else weights * kept) @ v


def attend(*arguments, **options):
    return saccade.attention(*arguments, normalizer="stick_breaking", **options)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("queries", "keys"), [(37, 1053), (3, 2053), (130, 130), (1, 1)])
def test_types_and_kernels(dtype, queries, keys):
    q, k, v = operands(dtype, queries=queries, keys=keys)
    expected = plain(q.double(), k.double(), v.double(), diagonal(queries, keys, keys - queries))
    assert close(attend(q, k, v, causal="bottom_right"), expected, dtype)


def test_a_key_of_the_example_by_hand():
    q, k = torch.ones(1, 1, 1, 1, dtype=torch.float64), torch.tensor([0.0, 1.0, -2.0], dtype=torch.float64)
    v = torch.eye(3, dtype=torch.float64)[None, None]
    taken = [1 / (1 + math.exp(-s)) for s in (0.0, 1.0, -2.0)]
    expected = [taken[0] * (1 - taken[1]) * (1 - taken[2]), taken[1] * (1 - taken[2]), taken[2]]
    found = attend(q, k.reshape(1, 1, 3, 1), v, scale=1.0)
    assert np.allclose(found.flatten().numpy(), expected, 1e-14)


def test_the_strict_causal_form_of_the_paper():
    q, k, v = operands(queries=40, keys=40)
    found = attend(q, k, v, causal=-1)
    assert close(found, plain(q, k, v, diagonal(40, 40, -1)), torch.float64) and (found[:, :, 0] == 0).all()


@pytest.mark.parametrize("size", [30.0, 1e3, 1e4])
@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_strong_scores(dtype, queries, size):
    """Scores are whole numbers, which f32 has, from −size to size."""
    torch.manual_seed(int(size) + queries)
    q = torch.randint(-3, 4, (2, 2, queries, 8)).to(dtype)
    k = torch.randint(-3, 4, (2, 2, 300, 8)).to(dtype)
    v = torch.randn(2, 2, 300, 16, dtype=torch.float64).to(dtype)
    scale = 2.0 ** int(math.log2(size / 72))
    expected = plain(q.double(), k.double(), v.double(), scale=scale)
    assert close(attend(q, k, v, scale=scale), expected, dtype)
    assert attend(q, k, v, scale=scale).isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sign", [-1, 1])
def test_many_weak_keys(dtype, sign):
    """The rest of the stick after thousands of keys of one score has no bias by rounding."""
    q, k = torch.ones(1, 1, 3, 1, dtype=dtype), torch.full((1, 1, 6000, 1), -8.0, dtype=dtype)
    v = torch.ones(1, 1, 6000, 8, dtype=dtype)
    v[:, :, 3000:] = sign
    expected = plain(q.double(), k.double(), v.double(), scale=1.0)
    assert close(attend(q, k, v, scale=1.0), expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_parts_that_add_nothing_to_1(dtype):
    """Earlier keys are weaker by a ten-thousandth, which is more than 2^-24 of a part 65536 times."""
    q, k = torch.ones(1, 1, 9, 1, dtype=dtype), torch.full((1, 1, 65_536, 1), -17.0, dtype=dtype)
    v = torch.full((1, 1, 65_536, 8), 64.0, dtype=dtype)
    v[:, :, 32_768:] = -64
    half = -math.expm1(-32_768 * math.log1p(math.exp(-17)))
    found = attend(q, k, v, scale=1.0).double()
    assert ((found + 64 * half**2).abs() <= 0.02 * 64 * half**2).all()


@pytest.mark.parametrize("queries", [3, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_a_score_of_nan_is_of_its_row(dtype, queries):
    q, k, v = operands(dtype, queries=queries, keys=90)
    found = attend(q, k, v, score=lambda s, b, h, i, j: torch.where((i == 1) & (j == 85), math.nan, s))
    expected = plain(q.double(), k.double(), v.double())
    assert found[:, :, 1].isnan().all()
    rows = [i for i in range(queries) if i != 1]
    assert close(found[:, :, rows], expected[:, :, rows], dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_without_a_rest_does_not_depend_on_the_others(dtype):
    q, k, v = (x.to(dtype) for x in operands(queries=40, keys=600))

    def score(s, b, h, i, j):
        strong = torch.where(j == 0, math.nan, 30.0)
        return torch.where(i == 1, strong, -9.0)

    whole = attend(q, k, v, score=score)
    assert whole.isfinite().all()
    assert close(whole[:, :, :4], attend(q[:, :, :4], k, v, score=score).double(), dtype)  # another kernel
    other = attend(q, k, v, score=lambda s, b, h, i, j: torch.where(i == 1, 30.0, -9.0))
    assert torch.equal(whole, other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [0.1, 1.0, 6.0])
def test_rows_do_not_depend_on_the_other_rows(dtype, size):
    """Rows that leave nothing of the stick are in one group with rows that take little of it."""
    q, k, v = operands(dtype, queries=60, keys=700)
    q = q * torch.logspace(-2, 1, 60)[torch.randperm(60), None].to(dtype)
    options = {"causal": 640, "scale": size}
    found = attend(q, k, v, **options)
    assert close(found, plain(q.double(), k.double(), v.double(), diagonal(60, 700, 640), size), dtype)
    assert torch.equal(attend(q[:, :, :25], k, v, **options), found[:, :, :25])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("queries", [3, 20])
def test_infinite_scores(dtype, queries):
    q, k, v = operands(dtype, queries=queries, keys=40)
    found = attend(q, k, v, score=lambda s, b, h, i, j: torch.where(j == 30, math.inf, s))
    later = plain(q.double(), k[:, :, 31:].double(), v[:, :, 31:].double())
    rest = 1 - plain(q.double(), k[:, :, 31:].double(), torch.ones_like(v[:, :, 31:]).double())
    taken = rest * v[:, :, 30:31].double().repeat_interleave(2, 1)
    assert close(found, later + taken, dtype)


def test_numpy_score_regions_and_biases():
    q, k, v = operands(torch.float32)
    bias = np.random.default_rng(0).standard_normal((37, 53), np.float32)
    found = attend(*(x.numpy() for x in (q, k, v)), score=lambda s, b, h, i, j: s + bias[i, j])
    expected = plain(*(x.double() for x in (q, k, v)), score=lambda s: s + torch.from_numpy(bias).double())
    assert isinstance(found, np.ndarray) and close(torch.from_numpy(found), expected, torch.float32)


@pytest.mark.parametrize("queries", [2, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_masked_rows_are_zero(dtype, queries):
    q, k, v = operands(dtype, queries=queries, keys=60)
    v[:, :, 50:] = math.nan
    hidden = attend(q, k, v, mask=lambda b, h, i, j: (i % 2 == 0) & (j < 50), kv_len=torch.tensor([0, 50]))
    assert (hidden[:, :, 1::2] == 0).all() and (hidden[0] == 0).all()
    expected = plain(q.double(), k.double()[:, :, :50], v.double()[:, :, :50])
    assert close(hidden[1, :, ::2], expected[1, :, ::2], dtype)
    by_score = attend(q, k, v.nan_to_num(), score=lambda s, b, h, i, j: torch.where(j < 50, s, -math.inf))
    assert close(by_score, expected, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_documents_and_windows(dtype):
    q, k, v = operands(dtype, queries=300, keys=300)
    document = torch.tensor(np.sort(np.random.default_rng(1).integers(0, 5, 300)).astype(np.int32))
    found = attend(q, k, v, mask=lambda b, h, i, j: document[i] == document[j], window=(90, 20))
    distance = torch.arange(300)[:, None] - torch.arange(300)
    sees = (document[:, None] == document) & (distance <= 90) & (distance >= -20)
    assert close(found, plain(*(x.double() for x in (q, k, v)), sees), dtype)


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_weights_and_dropout_apply_to_the_weights(dtype):
    q, k, v = operands(dtype)
    factors = torch.rand(53, dtype=torch.float64 if dtype == torch.float64 else torch.float32)
    found = attend(q, k, v, weight=lambda p, b, h, i, j: p * factors[j], dropout_p=0.25, seed=5)
    kept = torch.from_numpy(dropout_mask((2, 4, 37, 53), 0.25, 5).copy()).double() / 0.75
    assert close(found, plain(q.double(), k.double(), v.double(), kept=factors * kept), dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ragged_batches(dtype):
    offsets = [0, 3, 3, 70, 111]
    q, k, v = operands(dtype, batch=1, queries=111, keys=111)
    q, k, v = (x[0].transpose(0, 1).contiguous() for x in (q, k, v))
    cu = torch.tensor(offsets, dtype=torch.int32)
    found = attend(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal="bottom_right")
    for begin, end in itertools.pairwise(offsets):
        part = (x[begin:end].transpose(0, 1)[None].double() for x in (q, k, v))
        expected = plain(*part, diagonal(end - begin, end - begin))[0].transpose(0, 1)
        assert begin == end or close(found[begin:end], expected, dtype)


def test_pages_and_quantized_caches():
    q, k, v = operands(torch.float32, queries=2, keys=64, depth_v=16)
    lengths, pages = torch.tensor([64, 41], dtype=torch.int32), torch.randperm(16)
    table = pages.reshape(2, 8).int()
    pools = []
    for x in (k, v):
        pool = torch.zeros(16, 2, 8, 16)
        pool[pages] = x.reshape(2, 2, 8, 8, 16).transpose(1, 2).reshape(16, 2, 8, 16)
        pools.append(pool)
    sees = torch.arange(64) < lengths[:, None, None, None]
    expected = plain(q.double(), k.double(), v.double(), sees)
    assert close(attend(q, *pools, page_table=table, kv_len=lengths), expected, torch.float32)
    stored = [(x * 40).round().clamp(-127, 127).to(torch.int8) for x in (k, v)]
    expected = plain(q.double(), stored[0].double() / 40, stored[1].double() / 40)
    assert close(attend(q, *stored, k_scale=1 / 40, v_scale=1 / 40), expected, torch.float32)


def test_products_of_int8():
    q, k, v = operands(torch.float32, queries=100, keys=300, depth=64)
    expected = plain(*(x.double() for x in (q, k, v)))
    found = attend(q, k, v, qk_type="int8")
    assert (found - expected).abs().max() < 0.1 * expected.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_split_keys_do_not_depend_on_the_threads(dtype):
    q, k, v = operands(dtype, batch=1, heads=2, kv_heads=1, queries=1, keys=20_000, depth=32, depth_v=32)
    expected = plain(q.double(), k.double(), v.double(), scale=0.02)
    threads = saccade.num_threads()
    found = []
    try:
        for count in (1, 2, 3):
            saccade.set_num_threads(count)
            found.append(attend(q, k, v, scale=0.02))
    finally:
        saccade.set_num_threads(threads)
    assert close(found[0], expected, dtype)
    assert all(torch.equal(x, found[0]) for x in found)


@pytest.mark.parametrize(("options", "message"), [
    ({"return_lse": True}, "return_lse is True"), ({"sink": 0.0}, "sink is given"),
    ({"return_max": True}, "return_max is True"),
])  # fmt: skip
def test_options_of_the_softmax_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        attend(*operands(torch.float32), **options)


def test_weights_that_are_not_proportional_are_refused():
    with pytest.raises(Exception, match="not proved proportional"):
        attend(*operands(torch.float32), weight=lambda p, b, h, i, j: p * p)


def draw(seed):
    """A random call and its expected output."""
    rng = random.Random(seed)
    (q, k, v), options, sees, scale, score = draw_call(rng, seed)
    kept = None
    if rng.random() < 0.3:
        options["weight"], kept = (lambda p, b, h, i, j: p * 0.5), 0.5
    if rng.random() < 0.2 and q.dtype == torch.float32:
        options["layout"] = "bshd"
    expected = plain(q.double(), k.double(), v.double(), sees, scale, score, kept)
    if "layout" in options:
        q, k, v, expected = (x.transpose(1, 2) for x in (q, k, v, expected))
    return (q, k, v), options, expected


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_random_calls(first):
    for seed in range(first, first + 20):
        arguments, options, expected = draw(seed)
        assert close(attend(*arguments, **options), expected, arguments[0].dtype), (seed, options)


# --- derivatives ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", [{}, {"causal": "bottom_right"}, {"kv_len": 9}, {"window": (3, 1)}, {"causal": -1}],
                         ids=str)  # fmt: skip
def test_gradcheck(options):
    inputs = [x.requires_grad_() for x in operands(queries=7, keys=11, depth=4, depth_v=5)]
    assert torch.autograd.gradcheck(lambda q, k, v: attend(q, k, v, **options), inputs)


def test_gradcheck_of_captures_scales_and_dropout():
    q, k, v = operands(queries=5, keys=9, depth=4, depth_v=3)
    factors, bias, table, scale = (torch.randn(n, dtype=torch.float64) for n in ((4,), (9,), (5, 9), ()))

    def call(q, k, v, factors, bias, table, scale):
        return attend(q, k, v, score=lambda s, b, h, i, j: s * bias[j] + table[i, j], scale=scale, dropout_p=0.3, seed=2,
                      weight=lambda p, b, h, i, j: factors[h] * p)  # fmt: skip

    inputs = [x.requires_grad_() for x in (q, k, v, factors, bias, table, scale)]
    assert torch.autograd.gradcheck(call, inputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [1, 8])
def test_gradients_agree_with_pytorch(dtype, size):
    inputs = [x.requires_grad_() for x in operands(dtype, queries=130, keys=300, depth=32, depth_v=24)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    bias = torch.randn(130, 300, dtype=torch.float64 if dtype == torch.float64 else torch.float32, requires_grad=True)
    inputs.append(bias)
    wide.append(bias.detach().double().requires_grad_())
    scale = size * 32**-0.5
    out = attend(*inputs[:3], causal="bottom_right", scale=scale, score=lambda s, b, h, i, j: s + bias[i, j])
    by = torch.randn(out.shape, dtype=torch.float64).to(dtype)
    found = torch.autograd.grad(out, inputs, by)
    expected = plain(*wide[:3], diagonal(130, 300, 170), scale, lambda s: s + wide[3])
    exact = torch.autograd.grad(expected, wide, by.double())
    for x, y in zip(found, exact):
        tolerance = TOLERANCES[dtype] * (1 if dtype == torch.float64 else 2)
        assert (x.double() - y).abs().max() <= tolerance * y.abs().max()


def test_ragged_gradients():
    offsets = [0, 5, 5, 48]
    q, k, v = (x[0].transpose(0, 1).contiguous().requires_grad_() for x in operands(batch=1, queries=50, keys=50))
    cu = torch.tensor(offsets)
    out = attend(q, k, v, cu_seqlens_q=cu, cu_seqlens_k=cu, causal="top_left")
    by = torch.randn_like(out)
    found = torch.autograd.grad(out, (q, k, v), by)
    parts = []
    for begin, end in itertools.pairwise(offsets):
        part = (x[begin:end].transpose(0, 1)[None] for x in (q, k, v))
        parts.append(plain(*part, diagonal(end - begin, end - begin))[0].transpose(0, 1))
    exact = torch.autograd.grad(torch.cat(parts), (q, k, v), by[:48])
    assert all(close(x, y, torch.float64) for x, y in zip(found, exact))


def test_hidden_keys_have_no_gradient():
    q, k, v = (x.requires_grad_() for x in operands())
    attend(q, k, v, score=lambda s, b, h, i, j: torch.where(j % 2 == 0, s, -math.inf),
           mask=lambda b, h, i, j: j < 40).sum().backward()  # fmt: skip
    for x in (k.grad, v.grad):
        assert (x[:, :, 1::2] == 0).all() and (x[:, :, 40:] == 0).all() and x.isfinite().all()
    assert q.grad.isfinite().all()


def test_keys_that_are_left_nothing_have_no_gradient():
    """The last key takes the whole stick, so the gradients of all others are 0 apart from rounding."""
    q, k, v = (x.requires_grad_() for x in operands(torch.float32, queries=40, keys=400))
    attend(q, k, v, score=lambda s, b, h, i, j: torch.where(j == 399, 90.0, s)).sum().backward()
    assert k.grad[:, :, :399].abs().max() < 1e-5 and v.grad[:, :, :399].abs().max() < 1e-5


def test_tangents_are_refused():
    q, k, v = operands()
    with torch.autograd.forward_ad.dual_level(), pytest.raises(Exception, match="no rule for tangents"):
        attend(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v)
