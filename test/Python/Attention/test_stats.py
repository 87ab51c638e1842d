"""saccade.attention with stats=. test/Fuzz/stats_calls.py compares random calls with float64."""

import math
import pickle

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import saccade
from saccade import stats

ALL = ("entropy", "effective_keys", "sink", "diagonal", "distance", "heatmap", "received", stats.band((1, 0)))


def drawn(*shape, dtype=torch.float64, **options):
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(len(shape) + shape[2]), **options)


Q, K, V = drawn(2, 4, 9, 16), drawn(2, 2, 11, 16), drawn(2, 2, 11, 16)


def weights(q=Q, k=K, mask=None):
    scores = q @ k.repeat_interleave(q.shape[1] // k.shape[1], 1).mT / math.sqrt(q.shape[-1])
    return (scores if mask is None else scores.masked_fill(~mask, -math.inf)).softmax(-1).nan_to_num()


def test_results_come_last_and_have_names():
    output, lse, largest, key, found = saccade.attention(Q, K, V, return_lse=True, return_max=True, stats=("entropy", "max"))
    assert list(found) == ["entropy", "max"] and found["entropy"] is found.entropy
    assert torch.equal(found.max, largest) and key.dtype == torch.int64 and lse.shape == found.entropy.shape == (2, 4, 9)
    p = weights()
    torch.testing.assert_close(found.entropy, -(p * p.log()).sum(-1))
    assert torch.equal(output, saccade.attention(Q, K, V, return_lse=True)[0])
    with pytest.raises(AttributeError, match="no statistic 'sink', but entropy, max"):
        _ = found.sink
    assert repr(found) == "Statistics(entropy[2, 4, 9], max[2, 4, 9])"
    copied = pickle.loads(pickle.dumps(found)).over("query")
    assert torch.equal(copied.max, found.max.amax(-1))


def test_means_over_dimensions():
    _, found = saccade.attention(Q, K, V, stats=("entropy", "max", "argmax", "heatmap", "received"))
    over = found.over("batch", "query")
    torch.testing.assert_close(over.entropy, found.entropy.mean((0, 2)))
    torch.testing.assert_close(over.max, found.max.amax((0, 2)))
    assert over.heatmap.shape == (4, 9, 11) and over.received.shape == (4, 11) and "argmax" not in over
    assert over.over("head").entropy.shape == ()
    with pytest.raises(ValueError, match="found 'heads', expected one of batch, head, query"):
        found.over("heads")
    _, named = saccade.attention(Q, K, V, stats=(stats.max().named("largest"), stats.argmax().named("place")))
    over = named.over("batch", "query")
    assert list(over) == ["largest"]
    torch.testing.assert_close(over.largest, found.max.amax((0, 2)))


@pytest.mark.parametrize("queries", [3, 20])  # split-KV in calls without gradients, and a loop
def test_gradients(queries):
    def call(q, k, v, sink):
        options = {"causal": "bottom_right", "sink": sink, "score": saccade.scores.soft_cap(4.0)}
        output, found = saccade.attention(q, k, v, **options, stats=ALL)
        return output, *[x for x in found.values() if hasattr(x, "shape")]

    inputs = [drawn(1, 2, queries, 4), drawn(1, 1, 6, 4), drawn(1, 1, 6, 3), torch.tensor([0.5, -1.0], dtype=torch.float64)]
    assert torch.autograd.gradcheck(call, [x.requires_grad_() for x in inputs], fast_mode=True)
    recorded = call(*inputs)
    for x, y in zip(recorded, call(*[x.detach() for x in inputs])):
        torch.testing.assert_close(x.detach(), y)


def test_gradients_of_what_a_tally_captures():
    values = drawn(1, 1, 11).reshape(11).requires_grad_()
    _, found = saccade.attention(Q, K, V, stats=(stats.tally(lambda s, b, h, i, j: (0, values[j])),))
    gradient, = torch.autograd.grad(found.tally.sum(), values)
    torch.testing.assert_close(gradient, weights().sum((0, 1, 2)))


def test_second_derivatives_are_refused():
    """Also if the gradient of the first derivative is a constant."""
    q = Q.clone().requires_grad_()
    _, found = saccade.attention(q, K, V, stats=("entropy",))
    gradient, = torch.autograd.grad(found.entropy.sum(), q, create_graph=True)
    with pytest.raises(NotImplementedError, match="second derivatives are not supported"):
        gradient.square().sum().backward()


def test_the_maximum_has_no_gradient():
    q = Q.clone().requires_grad_()
    output, found = saccade.attention(q, K, V, stats=("max", "argmax"))
    assert output.requires_grad and not found.max.requires_grad and not found.argmax.requires_grad
    _, alone = saccade.attention(q, K, V, stats=("max", "sink"))
    assert torch.equal(alone.max, found.max) and not alone.max.requires_grad
    torch.testing.assert_close(alone.sink, weights()[..., :4].sum(-1).detach())


@pytest.mark.parametrize("score", [0.0, 5.0])
def test_rows_without_keys(score):
    """A mask, and scores of -inf."""
    q, k, v = (torch.ones(1, 1, n, 4) for n in (12, 5, 5))
    hide = lambda s, b, h, i, j: torch.where(i == 2, -math.inf, s + score)
    for options in ({"mask": lambda b, h, i, j: i != 2}, {"score": hide}):
        _, found = saccade.attention(q, k, v, **options, stats=(*ALL, "max", "argmax"))
        assert all([x.isfinite().all() for name, x in found.items() if hasattr(x, "shape") and name != "max"])
        row = [found[name][0, 0, 2].sum().item() for name in ("entropy", "effective_keys", "sink", "diagonal", "distance")]
        assert row == [0] * 5 and found.max[0, 0, 2] == -math.inf
        torch.testing.assert_close(found.received, torch.full((1, 1, 5), 11 / 5))


def test_nan_stays_visible():
    q = Q.clone()
    q[0, 1, 3] = math.nan
    _, found = saccade.attention(q, K, V, stats=("entropy", "effective_keys", "sink", "max", "argmax"))
    for name in ("entropy", "effective_keys", "sink"):
        assert found[name].isnan().nonzero().tolist() == [[0, 1, 3]]
    assert found.max[0, 1, 3] == -math.inf and found.argmax[0, 1, 3] == -1  # NaN is passed over


def test_functions_of_ones_own():
    ids = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 2, 5, -1])
    spread = stats.tally(lambda s, b, h, i, j: (h, (i - j).to(torch.float64) ** 2), bins=4, name="spread")
    _, found = saccade.attention(Q, K, V, stats=[spread, stats.segments(ids, 3), stats.band(1).named("near"), stats.band(3)])
    p, away = weights(), torch.arange(9)[:, None] - torch.arange(11)
    torch.testing.assert_close(found.spread.sum(-1), (p * away**2).sum(-1))
    assert all([found.spread[:, h, :, [n for n in range(4) if n != h]].abs().max() == 0 for h in range(4)])
    torch.testing.assert_close(found.segments[..., 1], p[..., 2:5].sum(-1))
    torch.testing.assert_close(found.near, (p * (away.abs() <= 1)).sum(-1))
    torch.testing.assert_close(found.band, (p * (away.abs() <= 3)).sum(-1))


def test_lengths_and_functions_share_kernels():
    calls = lambda n: [saccade.attention(drawn(2, 2, n, 16), drawn(2, 2, n + 3, 16), drawn(2, 2, n + 3, 16), causal="bottom_right",
                                         stats=("entropy", "diagonal", "sink", "received")) for _ in range(2)]
    calls(9)
    before = saccade.cache_info().compilations
    calls(30)
    assert saccade.cache_info().compilations == before


def test_arrays_of_numpy_and_jax():
    q, k, v = (x.numpy().astype(np.float32) for x in (Q, K, V))
    _, expected = saccade.attention(*[torch.from_numpy(x) for x in (q, k, v)], stats=ALL)
    _, found = saccade.attention(q, k, v, stats=ALL)
    _, of_jax = saccade.attention(*[jnp.asarray(x) for x in (q, k, v)], stats=ALL)
    for name, x in expected.items():
        np.testing.assert_allclose(found[name], np.asarray(x), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(np.asarray(of_jax[name]), np.asarray(x), rtol=1e-5, atol=1e-6)
    assert isinstance(found.entropy, np.ndarray) and isinstance(of_jax.entropy, type(jnp.zeros(1)))


def test_calls_in_compiled_functions():
    @torch.compile(backend="eager")
    def call(q):
        output, found = saccade.attention(q + 0, K, V, stats=("entropy",))
        return output, found.entropy

    torch.testing.assert_close(call(Q)[1], saccade.attention(Q, K, V, stats=("entropy",))[1].entropy)


@pytest.mark.parametrize(("given", "error", "message"), [
    ("entropy", TypeError, "stats is 'entropy', expected a sequence of names"),
    (("entrop",), ValueError, "stats has 'entrop', expected one of entropy, effective_keys, max, argmax, sink"),
    (("sink", stats.sink(1)), ValueError, "stats has 'sink' twice"),
    ((stats.tally(lambda s, b, h, i, j: s),), saccade.TraceError, "expected a pair"),
    ((stats.tally(lambda s, b, h, i, j: (s, 1.0)),), saccade.TraceError, "a bin that is no integer"),
    ((stats.tally(lambda s, b, h: (0, s)),), saccade.TraceError, "tally function takes"),
])  # fmt: skip
def test_mistakes_are_refused(given, error, message):
    with pytest.raises(error, match=message):
        saccade.attention(Q, K, V, stats=given)


def test_what_a_form_does_not_give_is_refused_by_name():
    before = saccade.cache_info().compilations
    q, offsets = Q[0].transpose(0, 1), torch.tensor([0, 4, 9])
    for name, options in (("heatmap", {"cu_seqlens_k": offsets}), ("received", {"page_table": torch.zeros(2, 1, dtype=torch.int32)})):
        k = q if name == "heatmap" else Q.transpose(1, 2)
        with pytest.raises(ValueError, match=f"{name}.* is requested with cu_seqlens_q"):
            saccade.attention(q, k, k, cu_seqlens_q=offsets, **options, stats=(name,))
    with pytest.raises(ValueError, match="out is given with stats, expected None"):
        saccade.attention(Q, K, V, out=torch.empty_like(Q), stats=("max",))
    for make in (lambda: stats.band(-1), lambda: stats.sink(0), lambda: stats.distance(40), lambda: stats.segments(3, 2)):
        with pytest.raises((TypeError, ValueError), match="expected"):
            make()
    assert saccade.cache_info().compilations == before


@pytest.mark.parametrize("kv_len", [8, torch.tensor([8, 3])], ids=["a number", "a tensor"])
def test_the_own_key_of_the_last_query_is_the_last_one_within_a_length(kv_len):
    _, found = saccade.attention(Q[:, :, :3], K, V, causal="bottom_right", kv_len=kv_len, stats=("diagonal", "received"))
    for n, length in enumerate([8, 8] if isinstance(kv_len, int) else [8, 3]):
        own = torch.arange(3)[:, None] + length - 3
        p = weights(Q[n : n + 1, :, :3], K[n : n + 1], torch.arange(11) <= own)[0]
        torch.testing.assert_close(found.diagonal[n], p.gather(-1, own.expand(4, 3, 1))[..., 0])
        torch.testing.assert_close(found.received[n], p.sum(-2))
    offsets, ids = torch.tensor([0, 3, 6]), torch.tensor([0, 11, 22])
    ragged = [x.transpose(0, 1).flatten(1, 2).transpose(0, 1) for x in (Q[:, :, :3], K, V)]
    _, packed = saccade.attention(*ragged, causal="bottom_right", cu_seqlens_q=offsets, cu_seqlens_k=ids,
                                  kv_len=torch.as_tensor(kv_len).expand(2).contiguous(), stats=("diagonal", "received"))
    torch.testing.assert_close(packed.diagonal, found.diagonal.transpose(0, 1).flatten(1))
    torch.testing.assert_close(packed.received, found.received.transpose(0, 1).flatten(1))


@pytest.mark.parametrize("options", [{"causal": np.int64(2)}, {"causal": torch.tensor(-1)}, {"window": [2, None]}])
def test_positions_in_numbers_of_other_libraries(options):
    names = ("diagonal", "distance", "received")
    plain = {name: tuple(x) if isinstance(x, list) else int(x) for name, x in options.items()}
    expected, found = (saccade.attention(Q, K, V, **given, stats=names)[-1] for given in (plain, options))
    for name in names:
        assert torch.equal(found[name], expected[name]), name


def test_no_heads():
    _, found = saccade.attention(Q[:, :0], K[:, :0], V[:, :0], stats=("entropy", "received"))
    assert found.received.shape == (2, 0, 11)


def test_mass_received_within_lengths_and_from_pages():
    lengths, order = torch.tensor([11, 5]), torch.tensor([[4, 2, 0], [3, 1, 5]])
    p = weights(mask=torch.arange(11) < lengths.reshape(2, 1, 1, 1))
    _, found = saccade.attention(Q, K, V, kv_len=lengths, stats=("received",))
    torch.testing.assert_close(found.received, p.sum(-2))
    pools = []
    for x in (K, V):
        pools.append(x.new_empty(6, 2, 4, 16))
        pools[-1][order] = torch.nn.functional.pad(x, (0, 0, 0, 1)).unflatten(2, (3, 4)).transpose(1, 2)
    table = order.int()
    table[1, 2] = -1
    _, paged = saccade.attention(Q, *pools, page_table=table, kv_len=lengths, stats=("received",))
    torch.testing.assert_close(paged.received[..., :11], p.sum(-2))
    assert paged.received.shape == (2, 4, 12) and paged.received[1, :, 5:].abs().max() == 0
