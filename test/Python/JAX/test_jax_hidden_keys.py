"""Queries whose keys masks and biases hide together: JAX's results, gradients and tangents; and JAX's modes.

test/Fuzz/jax_calls.py --values compares random values.
"""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("jax_tvm_ffi")

import jax.numpy as jnp

import saccade.jax

ours, theirs = saccade.jax.dot_product_attention, jax.nn.dot_product_attention
LOWEST = -0.7 * np.finfo(np.float32).max  # as JAX computes it
rng = np.random.default_rng(0)
Q, K, V, WEIGHTS = (jnp.asarray(rng.standard_normal((1, n, 2, 16)), jnp.float32) for n in (8, 6, 6, 8))


def rows():
    """A bias and a mask [1, 2, 8, 6] whose rows hide keys in several ways."""
    bias, mask = rng.standard_normal((1, 2, 8, 6)).astype(np.float32), np.ones((1, 2, 8, 6), bool)
    mask[..., 1:, :2] = False
    mask[..., 2, :] = False  # the mask hides all
    bias[..., 3, 2:] = -np.inf  # the bias hides what the mask leaves
    bias[..., 4, 2:] = np.finfo(np.float32).min
    bias[..., 5, 2:5] = LOWEST  # shares with the hidden keys
    bias[..., 5, 5:] = -np.inf
    bias[..., 6, :2] = -np.inf  # the mask hides what the bias hides
    return jnp.asarray(bias), jnp.asarray(mask)


def derive(function, bias, **options):
    """The output, residual, gradients and tangents of a call."""
    call = lambda q, k, v, bias: function(q, k, v, bias, return_residual=True, **options)
    results, pull = jax.vjp(call, Q, K, V, bias)
    gradients = pull((WEIGHTS, jnp.zeros_like(results[1])))
    pushed = jax.jvp(lambda *x: call(*x)[0], (Q, K, V, bias), (K[:, :1] * Q, -K, V * V, jnp.cos(jnp.maximum(bias, -9))))[1]
    return *results, *gradients, pushed


def agree(found, expected, tolerance=2e-5):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


def test_masks_overwrite_biases():
    bias, mask = rows()
    found = derive(ours, bias, mask=mask)
    agree(found, derive(jax.jit(theirs, static_argnames="return_residual"), bias, mask=mask))
    mean = lambda keys: np.asarray(V[0])[keys].mean(0)
    for row, keys in ((2, range(6)), (3, range(2)), (4, range(2)), (5, range(5))):
        np.testing.assert_allclose(found[0][0, row], mean(list(keys)), atol=1e-6)


def test_bias_that_hides_all_keys_gives_nan():
    bias = rows()[0].at[:, :, 3].set(-jnp.inf)[:, :, :5]  # without the rows of lowest numbers
    bias = bias.at[:, :, 4].set(0)
    call = lambda function: function(Q[:, :5], K, V, bias, return_residual=True)
    (out, residual), expected = call(ours), call(theirs)
    agree((out, residual), expected)
    assert np.isnan(out[0, 3]).all() and np.isneginf(residual[0, 3]).all() and np.isfinite(out[0, 4]).all()
    gradient = lambda function: jax.grad(lambda v: function(Q[:, :5], K, v, bias).sum())(V)
    np.testing.assert_array_equal(np.isnan(gradient(ours)), np.isnan(gradient(theirs)))
    assert np.isnan(gradient(ours)).all()


def test_rows_of_another_batch_keep_their_bits():
    """The second kernel computes ordinary queries, too."""
    bias, mask = rows()
    usual = ours(Q, K, V, jnp.zeros_like(bias), mask.at[..., 2, :].set(True))
    both = lambda x, y: jnp.concatenate([x, y])
    found = ours(both(Q, Q), both(K, K), both(V, V), both(jnp.zeros_like(bias), bias), both(mask, mask))
    np.testing.assert_allclose(found[0, [0, 1, 7]], usual[0, [0, 1, 7]], atol=2e-6)


def test_ranks_are_not_promoted():
    lengths = jnp.asarray([5], jnp.int32)
    bias, mask = rows()
    with jax.numpy_rank_promotion("raise"):
        call = lambda q: ours(q, K, V, bias, mask, query_seq_lengths=lengths, key_value_seq_lengths=lengths,
                              return_residual=True)
        jax.grad(lambda q: call(q)[0].sum())(Q)
        jax.grad(lambda q: ours(q, K, V, mask=mask, scale=jnp.asarray(0.1)).sum())(Q)


def test_replaces_the_function_of_jax(monkeypatch):
    expected = theirs(Q, K, V), theirs(Q[:, :0], K, V), theirs(Q, K, V, implementation="xla")
    monkeypatch.setattr(jax.nn, "dot_product_attention", ours)
    agree((jax.nn.dot_product_attention(Q, K, V), jax.nn.dot_product_attention(Q[:, :0], K, V),
           jax.nn.dot_product_attention(Q, K, V, implementation="xla")), expected)
    with pytest.raises(Exception, match="shape"):
        jax.nn.dot_product_attention(Q, K[..., :8], V)


def test_exports_say_what_to_do():
    with pytest.raises(NotImplementedError, match='implementation="xla" for the export'):
        jax.export.export(jax.jit(ours))(Q, K, V)
    exported = jax.export.export(jax.jit(lambda q, k, v: ours(q, k, v, implementation="xla")))(Q, K, V)
    agree((exported.call(Q, K, V),), (theirs(Q, K, V),))


def test_modes_of_jax():
    expected = theirs(Q, K, V)
    step = jax.jit(jax.grad(lambda q: jax.checkpoint(lambda q: ours(q, K, V))(q).sum()))
    step(Q)
    with jax.debug_nans(True):
        agree((ours(Q, K, V),), (expected,))
        step(Q)
    compiled = jax.jit(ours)
    compiled(Q, K, V)
    with jax.transfer_guard("disallow"):
        found = compiled(Q, K, V)
    agree((found,), (expected,))
