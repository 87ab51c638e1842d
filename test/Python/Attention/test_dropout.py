"""Dropout of attention weights: `saccade.attention` and `scaled_dot_product_attention` against the NumPy mask."""

import numpy as np
import pytest

import saccade
from saccade.dropout import dropout_mask

B, H, Q, K = 2, 4, 5, 70


def operands(dtype=np.float32, heads=H, kv_heads=2, keys=K, depth=16):
    random = np.random.default_rng(3)
    return tuple(random.standard_normal((B, n, length, depth)).astype(dtype)
                 for n, length in ((heads, Q), (kv_heads, keys), (kv_heads, keys)))  # fmt: skip


def expected(q, k, v, rate, seed, sees=True, weight=1):
    k, v = (np.repeat(x.astype(np.float64), q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scores = np.where(sees, q.astype(np.float64) @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1]), -np.inf)
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p *= weight / p.sum(-1, keepdims=True)
    return p * dropout_mask(scores.shape, rate, seed) / (1 - rate) @ v


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("seed", [0, 7, -3, 2**64 - 1])
def test_the_kept_weights_are_those_of_the_mask(dtype, seed):
    q, k, v = operands(dtype)
    found = saccade.attention(q, k, v, dropout_p=0.25, seed=seed)
    assert np.allclose(found, expected(q, k, v, 0.25, seed), 1e-5, 1e-5)


def test_options_combine():
    q, k, v = operands()
    sees = np.arange(K) <= np.arange(Q)[:, None] + K - Q
    found, lse = saccade.attention(q, k, v, causal="bottom_right", weight=lambda p, b, h, i, j: 2 * p, dropout_p=0.5,
                                   seed=np.array([9]), return_lse=True)
    assert np.allclose(found, expected(q, k, v, 0.5, 9, sees, 2), 1e-5, 1e-5)
    assert (lse == saccade.attention(q, k, v, causal="bottom_right", return_lse=True)[1]).all()


def test_a_probability_of_zero_is_no_dropout():
    q, k, v = operands()
    plain = saccade.attention(q, k, v)
    before = saccade.cache_info().compilations
    for options in ({"dropout_p": 0}, {"dropout_p": 0.0, "seed": 5}, {"seed": np.array([5])}):
        assert (saccade.attention(q, k, v, **options) == plain).all()
    assert saccade.cache_info().compilations == before


def test_a_probability_of_one_gives_zeros():
    assert (saccade.attention(*operands(), dropout_p=1.0, seed=1) == 0).all()


def test_other_probabilities_seeds_and_head_counts_reuse_a_program():
    saccade.attention(*operands(), dropout_p=0.1, seed=1)
    before = saccade.cache_info().compilations
    for heads, rate, seed in ((4, 0.9, 2), (8, 0.1, 3), (2, 0.5, -1)):
        q, k, v = operands(heads=heads)
        found = saccade.attention(q, k, v, dropout_p=rate, seed=seed)
        assert np.allclose(found, expected(q, k, v, rate, seed), 1e-5, 1e-5)
    assert saccade.cache_info().compilations == before


@pytest.mark.parametrize(("options", "error", "message"), [
    ({"dropout_p": 0.5}, TypeError, "seed is None, expected an int, or an int64 tensor"),
    ({"dropout_p": 1.5, "seed": 1}, ValueError, "dropout_p is 1.5, expected a probability, 0 to 1"),
    ({"dropout_p": float("nan"), "seed": 1}, ValueError, "dropout_p is nan, expected a probability"),
    ({"dropout_p": "0.5", "seed": 1}, TypeError, "dropout_p is '0.5', expected a number"),
    ({"dropout_p": None, "seed": 1}, TypeError, "dropout_p is None, expected a number"),
    ({"dropout_p": True, "seed": 1}, TypeError, "dropout_p is True, expected a number"),
    ({"dropout_p": 0.5, "seed": 1.5}, TypeError, "seed is 1.5, expected an int, or an int64 tensor"),
    ({"dropout_p": 0.5, "seed": 2**64}, ValueError, "expected an integer of 64 bits"),
    ({"dropout_p": 0.5, "seed": np.array([1], np.int32)}, TypeError, "seed has element type int32 and shape"),
    ({"dropout_p": 0.5, "seed": np.array([1, 2])}, TypeError, r"seed has element type int64 and shape \(2,\)"),
])  # fmt: skip
def test_errors(options, error, message):
    with pytest.raises(error, match=message):
        saccade.attention(*operands(), **options)


def test_the_mask_rejects_a_rate_that_is_no_probability():
    with pytest.raises(ValueError, match=r"rate is 2\.0, expected a probability, 0 to 1"):
        dropout_mask((1, 1, 1, 1), 2, 0)


def test_the_mask_of_a_part_is_part_of_the_mask():
    whole = dropout_mask((3, 4, 10, 23), 0.5, 6)
    part = dropout_mask((2, 2, 7, 18), 0.5, 6, heads=4, at=(1, 2, 3, 5))
    assert (whole[1:, 2:, 3:, 5:] == part).all()


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5, 0.9])
def test_the_mask_keeps_the_expected_fraction_in_every_direction(rate):
    mask = dropout_mask((8, 8, 64, 64), rate, 123)
    for axes in ((0, 1, 2, 3), (1, 2, 3), (0, 2, 3), (0, 1, 3), (0, 1, 2)):
        kept = mask.sum(axes)
        deviation = np.sqrt(mask.size / kept.size * rate * (1 - rate))
        assert np.abs(kept - mask.size / kept.size * (1 - rate)).max() <= 5 * deviation


def test_masks_of_neighbouring_seeds_rows_and_keys_are_independent():
    mask = dropout_mask((2, 4, 256, 256), 0.5, 1)
    for other in (dropout_mask(mask.shape, 0.5, 2), np.roll(mask, 1, 3), np.roll(mask, 4, 3), np.roll(mask, 1, 2),
                  np.roll(mask, 1, 1), np.roll(mask, 1, 0)):
        assert abs((mask == other).sum() - mask.size / 2) <= 5 * np.sqrt(mask.size) / 2


# --- PyTorch ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def sdpa(*args, **options):
    from saccade.torch import scaled_dot_product_attention

    return scaled_dot_product_attention(*args, **options)


def test_a_seed_that_is_a_tensor_is_read_at_each_call(torch):
    q, k, v = (torch.from_numpy(x) for x in operands())
    seed = torch.tensor([4])
    for number in (4, -9):
        seed[0] = number
        found = saccade.attention(q, k, v, dropout_p=0.5, seed=seed)
        assert torch.equal(found, saccade.attention(q, k, v, dropout_p=0.5, seed=number))


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.5}, {"attn_mask": "float"}])
def test_scaled_dot_product_attention_follows_manual_seed(torch, options):
    q, k, v = (torch.from_numpy(x) for x in operands(kv_heads=4))
    if "attn_mask" in options:
        options = {"attn_mask": torch.randn(Q, K)}
    torch.manual_seed(5)
    first, second = (sdpa(q, k, v, dropout_p=0.5, **options) for _ in range(2))
    torch.manual_seed(5)
    assert torch.equal(sdpa(q, k, v, dropout_p=0.5, **options), first)
    assert not torch.equal(first, second)


def test_scaled_dot_product_attention_has_the_distribution_of_pytorch(torch):
    """The mean over many calls is the result without dropout, and the variance is that of PyTorch."""
    torch.manual_seed(5)
    q, k, v = (torch.randn(64, 2, 8, 16), torch.randn(1, 2, 12, 16), torch.randn(1, 2, 12, 16))
    q[:] = q[:1]
    k, v = k.expand(64, -1, -1, -1), v.expand(64, -1, -1, -1)
    plain = torch.nn.functional.scaled_dot_product_attention
    ours = torch.cat([sdpa(q, k, v, dropout_p=0.25) for _ in range(20)])
    theirs = torch.cat([plain(q, k, v, dropout_p=0.25) for _ in range(20)])
    error = (ours.mean(0) - plain(q, k, v)[0]) / (ours.std(0) / len(ours) ** 0.5)
    assert error.abs().max() < 5
    assert (ours.std(0) / theirs.std(0) - 1).abs().max() < 0.2


def test_every_form_of_call_drops_weights(torch):
    """Fewer and more dimensions, broadcast tensors, parts that cannot be joined to one batch."""
    x = torch.ones(2, 3, 2, 4, 40, 8)
    for tensor in (x[0, 0, 0, 0], x[0, 0, 0], x[0, 0], x[0], x, x.transpose(1, 2), x[:, :, :1].expand(-1, -1, 2, -1, -1, -1)):
        found = sdpa(tensor, tensor, tensor, dropout_p=0.5)
        assert found.shape == tensor.shape
        # The mean of 40 factors that are 0 or 2; rows of all parts differ.
        rows = found[..., 0].reshape(-1)
        assert (rows.mean() - 1).abs() < 5 / (40 * len(rows)) ** 0.5
        assert rows.std() > 0.1
        parts = found[..., 0].reshape(-1, 40)
        assert len(torch.unique(parts, dim=0)) == len(parts)


def _masked(torch, q, k, v, seed):
    """Attention with dropout in PyTorch's operators, with the mask of a seed and rate 0.5."""
    weights = torch.softmax(q @ k.transpose(2, 3) / q.shape[-1] ** 0.5, -1)
    return weights * torch.from_numpy(2.0 * dropout_mask(weights.shape, 0.5, seed)).float() @ v


@pytest.mark.parametrize("is_sdpa", [True, False])
def test_gradients_drop_the_same_weights(torch, is_sdpa):
    q, k, v = (torch.from_numpy(x).requires_grad_() for x in operands(kv_heads=4))
    torch.manual_seed(8)
    seed = int(torch.randint(-(2**63), 2**63 - 1, (), dtype=torch.int64)) if is_sdpa else 8
    torch.manual_seed(8)
    found = sdpa(q, k, v, dropout_p=0.5) if is_sdpa else saccade.attention(q, k, v, dropout_p=0.5, seed=seed)
    reference, weights = _masked(torch, q, k, v, seed), torch.randn(found.shape)
    assert torch.allclose(found, reference, 1e-5, 1e-5)
    for mine, theirs in zip(*(torch.autograd.grad(x, (q, k, v), weights) for x in (found, reference)), strict=True):
        assert torch.allclose(mine, theirs, 1e-4, 1e-5)


def test_a_compiled_function_computes_dropout_outside_of_the_graph(torch):
    q, k, v = (torch.from_numpy(x) for x in operands())
    compiled = torch.compile(lambda q: saccade.attention(q, k, v, dropout_p=0.5, seed=3))
    assert torch.equal(compiled(q), saccade.attention(q, k, v, dropout_p=0.5, seed=3))
